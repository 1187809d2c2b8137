//! What the checked types of this vocabulary share: refusing a field with a message at its place.

use std::convert::Infallible;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Value, ValuePointerRef, take_cf_content,
};

/// Adds to `errors` that the field at `location` is wrong, and why.
pub(crate) fn add<E: DeserializeError>(
    errors: Option<E>,
    message: impl Into<String>,
    location: ValuePointerRef,
) -> E {
    let kind = ErrorKind::Unexpected::<Infallible> {
        msg: message.into(),
    };
    take_cf_content(E::error(errors, kind, location))
}

/// Reads a string and turns it into a `T`; `parse`'s error is told as the field's.
pub(crate) fn from_text<T, V: IntoValue, E: DeserializeError>(
    value: Value<V>,
    location: ValuePointerRef,
    parse: impl FnOnce(String) -> Result<T, String>,
) -> Result<T, E> {
    let text: String = Deserr::<E>::deserialize_from_value(value, location)?;
    parse(text).map_err(|message| add(None, message, location))
}

/// A field of the contract that this build cannot honour: accepted only where it asks for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsupported;

impl<E: DeserializeError> Deserr<E> for Unsupported {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        use deserr::{Map, Sequence};
        let asks_for_nothing = match value {
            Value::Null | Value::Boolean(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Sequence(items) => items.len() == 0,
            Value::Map(entries) => entries.len() == 0,
            _ => false,
        };
        if asks_for_nothing {
            Ok(Unsupported)
        } else {
            Err(add(None, "is not supported by this build", location))
        }
    }
}
