//! The id that an engine has given to a machine.

use std::{fmt, ops::RangeInclusive, str::FromStr};

/// Bounds of the length, in bytes.
const LENGTH: RangeInclusive<usize> = 1..=256;

/// The id of a machine, as its launch command has printed it: 1–256 printable ASCII characters
/// without spaces. The first one is no hyphen, so that no program takes it for an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineId(String);

/// A text that is not an engine id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an engine id: 1–256 printable ASCII characters without spaces, not beginning with a hyphen"
)]
pub struct InvalidEngineId;

impl FromStr for EngineId {
    type Err = InvalidEngineId;

    fn from_str(text: &str) -> Result<EngineId, InvalidEngineId> {
        let is_valid = LENGTH.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.starts_with('-');
        match is_valid {
            true => Ok(EngineId(text.to_owned())),
            false => Err(InvalidEngineId),
        }
    }
}

impl EngineId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_id_is_printable_bounded_and_no_option() {
        let longest = "x".repeat(256);
        for valid in ["i-0abc", "projects/p/zones/z/instances/n", "7", &longest] {
            assert_eq!(valid.parse::<EngineId>().unwrap().as_str(), valid);
        }
        let too_long = "x".repeat(257);
        for invalid in ["", " ", "a b", "a\nb", "a\0", "-rf", "ä", &too_long] {
            let parsed = invalid.parse::<EngineId>();
            assert_eq!(parsed, Err(InvalidEngineId), "{invalid:?}");
        }
    }
}
