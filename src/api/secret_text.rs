//! Secrets in requests.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroize};

use super::field::from_text;

/// A secret text of `MIN` to `MAX` bytes. It cannot be printed or serialized, and its memory is
/// zeroed when it is dropped.
#[derive(Clone)]
pub struct SecretText<const MIN: usize, const MAX: usize>(SecretString);

impl<const MIN: usize, const MAX: usize> SecretText<MIN, MAX> {
    /// Parses a secret.
    ///
    /// # Errors
    /// Returns the rule for its length, without the text.
    pub fn parse(mut text: String) -> Result<Self, String> {
        if (MIN..=MAX).contains(&text.len()) {
            return Ok(SecretText(text.into()));
        }
        text.zeroize();
        Err(format!("must have {MIN} to {MAX} bytes"))
    }

    /// Returns a secret that was parsed before, or is shorter than `MAX` for another reason.
    #[must_use]
    pub fn from_secret(secret: SecretString) -> Self {
        SecretText(secret)
    }

    /// Returns the text.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl<const MIN: usize, const MAX: usize> From<SecretText<MIN, MAX>> for SecretString {
    fn from(secret: SecretText<MIN, MAX>) -> SecretString {
        secret.0
    }
}

impl<E: DeserializeError, const MIN: usize, const MAX: usize> Deserr<E> for SecretText<MIN, MAX> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, Self::parse)
    }
}
