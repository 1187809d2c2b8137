//! The appearance of the hosted login page.

use serde::Serialize;
use utoipa::ToSchema;

/// The appearance of the hosted login page. What is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({
    "name": "Acme",
    "has_logo": true,
    "accent": {"light": "#0b6e4f", "dark": "#6fd8b2"},
}))]
pub struct LoginTheme {
    /// The name of the product that sends people to the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 60)]
    pub name: Option<String>,
    /// Whether `/login/theme/logo` has an image.
    pub has_logo: bool,
    /// The color of buttons and links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accent: Option<ThemeColor>,
    /// The color behind the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<ThemeColor>,
}

/// A color in both color schemes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ThemeColor {
    #[schema(pattern = "^#[0-9a-f]{6}$", example = "#0b6e4f")]
    pub light: String,
    #[schema(pattern = "^#[0-9a-f]{6}$", example = "#6fd8b2")]
    pub dark: String,
}
