//! Names of API keys, browsers and projects.

use std::fmt;

/// A name of 1–255 characters of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    pub const MAX: usize = 255;

    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule for names.
    pub fn parse(text: String) -> Result<Name, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        // Clients and proxies remove `.` and `..` from the path of a URL.
        if text.is_empty()
            || text.len() > Self::MAX
            || !text.bytes().all(allowed)
            || text == "."
            || text == ".."
        {
            return Err(format!(
                "must have 1 to {} characters of A-Z a-z 0-9 . _ - and not be . or ..",
                Self::MAX
            ));
        }
        Ok(Name(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

/// Checks a project's name: 1–255 characters without `/`, `%` and control characters.
///
/// # Errors
/// Returns the rule for project names.
pub fn check_project_name(text: &str) -> Result<(), String> {
    let count = text.chars().count();
    let is_forbidden = |c: char| matches!(c, '/' | '%') || c.is_control();
    if count == 0 || count > Name::MAX || text.chars().any(is_forbidden) {
        return Err(format!(
            "must have 1 to {} characters, none of them /, % or a control character",
            Name::MAX
        ));
    }
    Ok(())
}
