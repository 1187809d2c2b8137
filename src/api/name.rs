//! Names of browsers, API keys and projects.

use std::fmt;

use super::ids::ProjectId;

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

/// The name of an API key: 1–255 characters, none of them a control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyName(String);

impl ApiKeyName {
    pub const MAX: usize = 255;

    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule for names.
    pub fn parse(text: String) -> Result<ApiKeyName, String> {
        let count = text.chars().count();
        if !(1..=Self::MAX).contains(&count) || text.chars().any(char::is_control) {
            return Err(format!(
                "must have 1 to {} characters, none of them a control character",
                Self::MAX
            ));
        }
        Ok(ApiKeyName(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ApiKeyName> for String {
    fn from(name: ApiKeyName) -> String {
        name.0
    }
}

/// The name of a project: 1–255 characters, none of them `/`, `%` or a control character, and not
/// of the form of a project id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

impl ProjectName {
    pub const MAX: usize = 255;

    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: String) -> Result<ProjectName, String> {
        let count = text.chars().count();
        let is_forbidden = |c: char| matches!(c, '/' | '%') || c.is_control();
        if !(1..=Self::MAX).contains(&count)
            || text.chars().any(is_forbidden)
            // Clients and proxies remove `.` and `..` from the path of a URL.
            || text == "."
            || text == ".."
        {
            return Err(format!(
                "must have 1 to {} characters, none of them /, % or a control character, \
                 and not be . or ..",
                Self::MAX
            ));
        }
        if text.parse::<ProjectId>().is_ok() {
            return Err("must not have the form of a project id".to_owned());
        }
        Ok(ProjectName(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ProjectName> for String {
    fn from(name: ProjectName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_name_is_bounded_in_characters() {
        let accepts = |text: &str| ApiKeyName::parse(text.to_owned()).is_ok();
        assert!(accepts("a b/%ü") && accepts(&"ü".repeat(255)));
        for bad in ["", "a\nb", "\0", &"ü".repeat(256)] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn project_name_is_bounded_in_characters() {
        let accepts = |text: &str| ProjectName::parse(text.to_owned()).is_ok();
        for good in [
            "a",
            "Ünïcode 😀",
            " ",
            "'; DROP TABLE projects; --",
            "proj_x",
            "...",
            "a\\b?c#d",
            &"ü".repeat(255),
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "a/b",
            "%",
            "a%2Fb",
            ".",
            "..",
            "a\nb",
            "\0",
            "\u{7f}",
            &"ü".repeat(256),
            ProjectId::generate().as_str(),
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }
}
