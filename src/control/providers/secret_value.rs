//! Values in responses, decoded without a copy that is not zeroed.

use std::fmt;

use secrecy::SecretString;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A text, number or boolean as a secret text. Anything else, and an empty text, is none.
#[derive(Default)]
pub(super) struct SecretValue(pub(super) Option<SecretString>);

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

struct SecretVisitor;

impl SecretVisitor {
    fn text<E>(text: String) -> Result<SecretValue, E> {
        let secret = (!text.is_empty()).then(|| SecretString::from(text));
        Ok(SecretValue(secret))
    }
}

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = SecretValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<SecretValue, E> {
        Self::text(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<SecretValue, E> {
        Self::text(text)
    }

    fn visit_bool<E>(self, value: bool) -> Result<SecretValue, E> {
        Self::text(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<SecretValue, E> {
        Self::text(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<SecretValue, E> {
        Self::text(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<SecretValue, E> {
        Self::text(value.to_string())
    }

    fn visit_unit<E>(self) -> Result<SecretValue, E> {
        Ok(SecretValue(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<SecretValue, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(SecretValue(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SecretValue, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(SecretValue(None))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn scalar_is_a_secret_text_and_anything_else_is_none() {
        for (json, expected) in [
            (r#""a\"b""#, Some("a\"b")),
            ("123456", Some("123456")),
            ("-1", Some("-1")),
            ("1.5", Some("1.5")),
            ("true", Some("true")),
            (r#""""#, None),
            ("null", None),
            (r#"["a"]"#, None),
            (r#"{"a": {"b": 1}}"#, None),
        ] {
            let value: SecretValue = serde_json::from_str(json).unwrap();
            let text = value.0.as_ref().map(|secret| secret.expose_secret());
            assert_eq!(text, expected, "{json}");
        }
        assert!(serde_json::from_str::<SecretValue>("{").is_err());
    }
}
