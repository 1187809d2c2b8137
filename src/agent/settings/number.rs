//! A number with bounds, parsed without failing.

use std::{convert::Infallible, str::FromStr};

/// The value of a numeric option, from `MIN` to `MAX`. Parsing never fails; `Number::value`
/// returns the error. This lets the settings report all errors at once.
#[derive(Clone, Debug)]
pub struct Number<const MIN: u64, const MAX: u64> {
    text: String,
}

impl<const MIN: u64, const MAX: u64> FromStr for Number<MIN, MAX> {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self {
            text: text.to_owned(),
        })
    }
}

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    pub(super) fn value(&self) -> Result<u64, String> {
        let value = self.text.parse().ok();
        let value = value.filter(|value| (MIN..=MAX).contains(value));
        value.ok_or_else(|| format!("`{}` is not a number from {MIN} to {MAX}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_an_error_outside_of_its_bounds() {
        let value = |text: &str| text.parse::<Number<1, 64>>().unwrap().value();
        assert_eq!(value("1"), Ok(1));
        assert_eq!(value("64"), Ok(64));
        for text in ["0", "65", "-1", "soon", "", "1.5"] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
