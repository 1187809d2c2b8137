//! The region of this server, as clients see it.

use std::{fmt, str::FromStr, sync::Arc};

/// The longest name of a region.
const MAX_LENGTH: usize = 64;

/// The name of a region: 1–64 letters, digits or `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRegion(Arc<str>);

impl ServerRegion {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerRegion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ServerRegion {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerRegion, String> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        match !text.is_empty() && text.len() <= MAX_LENGTH && text.bytes().all(is_valid) {
            true => Ok(ServerRegion(text.into())),
            false => Err(format!("must be 1 to {MAX_LENGTH} letters, digits or `-`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_short_and_plain() {
        assert_eq!(
            "us-east".parse::<ServerRegion>().unwrap().as_str(),
            "us-east"
        );
        assert!("a".repeat(64).parse::<ServerRegion>().is_ok());
        for bad in ["", "us east", "us/east", "é", &"a".repeat(65)] {
            assert!(bad.parse::<ServerRegion>().is_err(), "{bad}");
        }
    }
}
