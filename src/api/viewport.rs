//! The size of a browser's screen.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::field::{self, Fields};

/// Bounds of a side, in pixels.
pub const SIDE: RangeInclusive<u32> = 240..=3840;
/// Pixels of a screen, at most (3840×2160), because the frame buffer is in memory.
pub const MAX_AREA: u32 = 3840 * 2160;
/// Bounds of the refresh rate, in Hz.
pub const REFRESH_RATE: RangeInclusive<u32> = 1..=120;

/// The size of a screen.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Viewport {
    /// Width in pixels.
    #[schema(minimum = 240, maximum = 3840)]
    pub width: u32,
    /// Height in pixels.
    #[schema(minimum = 240, maximum = 3840)]
    pub height: u32,
    /// Refresh rate in Hz.
    #[schema(minimum = 1, maximum = 120)]
    pub refresh_rate: u32,
}

impl Default for Viewport {
    fn default() -> Self {
        Self {
            width: 1920,
            height: 1080,
            refresh_rate: 25,
        }
    }
}

impl Viewport {
    /// Returns the fields that are out of bounds, with messages.
    fn errors(&self) -> Vec<(&'static str, String)> {
        let mut errors = Vec::new();
        for (field, value, bounds) in [
            ("width", self.width, SIDE),
            ("height", self.height, SIDE),
            ("refresh_rate", self.refresh_rate, REFRESH_RATE),
        ] {
            if !bounds.contains(&value) {
                errors.push((
                    field,
                    format!("must be between {} and {}", bounds.start(), bounds.end()),
                ));
            }
        }
        if errors.is_empty() && self.width * self.height > MAX_AREA {
            errors.push(("width", too_large()));
        }
        errors
    }
}

/// A screen size. Width × height is limited to 3840 × 2160 pixels.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ToSchema)]
pub struct ViewportRequest {
    /// Width in pixels.
    #[schema(value_type = u32, minimum = 240, maximum = 3840)]
    pub width: ScreenSide,
    /// Height in pixels.
    #[schema(value_type = u32, minimum = 240, maximum = 3840)]
    pub height: ScreenSide,
    /// Refresh rate in Hz. By default 25 for a new browser, otherwise unchanged.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 120)]
    pub refresh_rate: Option<RefreshRate>,
}

/// A side in pixels, within [`SIDE`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScreenSide(u32);

/// A refresh rate within [`REFRESH_RATE`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RefreshRate(u32);

impl ViewportRequest {
    /// Returns the size, with `refresh_rate` as the default rate.
    #[must_use]
    pub fn resolve(self, refresh_rate: u32) -> Viewport {
        Viewport {
            width: self.width.0,
            height: self.height.0,
            refresh_rate: self.refresh_rate.map_or(refresh_rate, |rate| rate.0),
        }
    }
}

impl<E: DeserializeError> Deserr<E> for ViewportRequest {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let width: Option<ScreenSide> = fields.required("width");
        let height: Option<ScreenSide> = fields.required("height");
        let refresh_rate = fields.optional("refresh_rate");
        let sides = width.zip(height);
        if sides.is_some_and(|(width, height)| width.0 * height.0 > MAX_AREA) {
            fields.reject("width", too_large());
        }
        fields.finish(sides.map(|(width, height)| ViewportRequest {
            width,
            height,
            refresh_rate,
        }))
    }
}

impl<E: DeserializeError> Deserr<E> for ScreenSide {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, SIDE).map(ScreenSide)
    }
}

impl<E: DeserializeError> Deserr<E> for RefreshRate {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, REFRESH_RATE).map(RefreshRate)
    }
}

fn too_large() -> String {
    format!("width × height must be at most {MAX_AREA} pixels")
}

impl fmt::Display for Viewport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}", self.width, self.height, self.refresh_rate)
    }
}

impl FromStr for Viewport {
    type Err = String;

    /// Parses `1920x1080` or `1920x1080@25`.
    fn from_str(text: &str) -> Result<Self, String> {
        let malformed =
            || format!("`{text}` does not have the form WIDTHxHEIGHT or WIDTHxHEIGHT@RATE");
        let (size, rate) = match text.split_once('@') {
            Some((size, rate)) => (size, Some(rate)),
            None => (text, None),
        };
        let (width, height) = size.split_once('x').ok_or_else(malformed)?;
        let number = |text: &str| text.parse().map_err(|_| malformed());
        let viewport = Self {
            width: number(width)?,
            height: number(height)?,
            refresh_rate: match rate {
                Some(rate) => number(rate)?,
                None => Self::default().refresh_rate,
            },
        };
        match viewport.errors().as_slice() {
            [] => Ok(viewport),
            [(field, message), ..] => Err(format!("{field} {message}")),
        }
    }
}
