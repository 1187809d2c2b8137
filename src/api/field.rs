//! Validation helpers of the wire types: reading fields and rejecting one with a message.

use std::convert::Infallible;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Sequence, Value, ValueKind,
    ValuePointerRef, take_cf_content,
};

/// Adds an error about the field at `location` to `errors`.
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

/// Reads a string and parses it; the error of `parse` becomes the field's.
pub(crate) fn from_text<T, V: IntoValue, E: DeserializeError>(
    value: Value<V>,
    location: ValuePointerRef,
    parse: impl FnOnce(String) -> Result<T, String>,
) -> Result<T, E> {
    let text: String = Deserr::<E>::deserialize_from_value(value, location)?;
    parse(text).map_err(|message| add(None, message, location))
}

/// Returns the path of a field, such as `viewport.width` or `actions[3].type`; `body` for the body.
pub(crate) fn field_path(location: ValuePointerRef) -> String {
    fn write(location: ValuePointerRef, out: &mut String) {
        match location {
            ValuePointerRef::Origin => {}
            ValuePointerRef::Key { key, prev } => {
                write(*prev, out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            ValuePointerRef::Index { index, prev } => {
                write(*prev, out);
                out.push_str(&format!("[{index}]"));
            }
        }
    }
    let mut path = String::new();
    write(location, &mut path);
    if path.is_empty() {
        "body".to_owned()
    } else {
        path
    }
}

fn describe_kind(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Null => "null",
        ValueKind::Boolean => "a boolean",
        ValueKind::Integer => "a positive integer",
        ValueKind::NegativeInteger => "a negative integer",
        ValueKind::Float => "a number",
        ValueKind::String => "a string",
        ValueKind::Sequence => "an array",
        ValueKind::Map => "an object",
    }
}

fn describe_kinds(accepted: &[ValueKind]) -> String {
    let mut names: Vec<&str> = accepted.iter().copied().map(describe_kind).collect();
    names.dedup();
    match names.as_slice() {
        [] => "another kind of value".to_owned(),
        ["a positive integer", "a negative integer"] => "an integer".to_owned(),
        _ => names.join(" or "),
    }
}

/// Returns the path of the invalid field and the message about it.
pub(crate) fn describe_error<V: IntoValue>(
    error: ErrorKind<V>,
    location: ValuePointerRef,
) -> (String, String) {
    match error {
        ErrorKind::IncorrectValueKind { actual, accepted } => {
            let (expected, found) = (describe_kinds(accepted), describe_kind(actual.kind()));
            (
                field_path(location),
                format!("must be {expected}, not {found}"),
            )
        }
        ErrorKind::MissingField { field } => (
            field_path(location.push_key(field)),
            "is required".to_owned(),
        ),
        ErrorKind::UnknownKey { key, .. } => (
            field_path(location.push_key(key)),
            "is not a known field".to_owned(),
        ),
        ErrorKind::UnknownValue { accepted, .. } => (
            field_path(location),
            format!("must be one of {}", accepted.join(", ")),
        ),
        ErrorKind::BadSequenceLen { actual, expected } => {
            let found = actual.len();
            (
                field_path(location),
                format!("must have {expected} elements, not {found}"),
            )
        }
        ErrorKind::Unexpected { msg } => (field_path(location), msg),
    }
}

/// The fields of an object, read one by one. An invalid field does not hide errors of the others.
pub(crate) struct Fields<'a, M, E> {
    map: M,
    errors: Option<E>,
    location: ValuePointerRef<'a>,
}

/// An invalid field whose error has been recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InvalidField;

impl<'a, M: Map, E: DeserializeError> Fields<'a, M, E> {
    pub(crate) fn new<V: IntoValue<Map = M>>(
        value: Value<V>,
        location: ValuePointerRef<'a>,
    ) -> Result<Self, E> {
        match value {
            Value::Map(map) => Ok(Self {
                map,
                errors: None,
                location,
            }),
            actual => {
                let accepted = &[ValueKind::Map];
                let kind = ErrorKind::IncorrectValueKind { actual, accepted };
                Err(take_cf_content(E::error(None, kind, location)))
            }
        }
    }

    /// Reads a required field; records an error and returns `None` if it is missing or invalid.
    pub(crate) fn required<T: Deserr<E>>(&mut self, key: &str) -> Option<T> {
        match self.map.remove(key) {
            Some(value) => self.read(key, value),
            None => {
                self.reject(key, "is required");
                None
            }
        }
    }

    /// Reads an optional field; returns `None` if it is absent, null or invalid. Records an error
    /// if it is invalid.
    pub(crate) fn optional<T: Deserr<E>>(&mut self, key: &str) -> Option<T> {
        let value = self.map.remove(key)?;
        self.read::<Option<T>>(key, value).flatten()
    }

    /// Reads an optional field like [`Self::optional`], but distinguishes absent from invalid.
    pub(crate) fn try_optional<T: Deserr<E>>(
        &mut self,
        key: &str,
    ) -> Result<Option<T>, InvalidField> {
        match self.map.remove(key) {
            Some(value) => self.read::<Option<T>>(key, value).ok_or(InvalidField),
            None => Ok(None),
        }
    }

    /// Records an error if the field is present.
    pub(crate) fn reject_if_present(&mut self, key: &str, message: &str) {
        if self.map.remove(key).is_some() {
            self.reject(key, message);
        }
    }

    /// Records an error about the field.
    pub(crate) fn reject(&mut self, key: &str, message: impl Into<String>) {
        let location = self.location.push_key(key);
        self.errors = Some(add(self.errors.take(), message, location));
    }

    /// Returns the value, or the recorded errors. `value` must be present if there are none.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, E> {
        match (self.errors, value) {
            (None, Some(value)) => Ok(value),
            (Some(errors), _) => Err(errors),
            (None, None) => Err(add(None, "is incomplete", self.location)),
        }
    }

    fn read<T: Deserr<E>>(&mut self, key: &str, value: M::Value) -> Option<T> {
        let location = self.location.push_key(key);
        match T::deserialize_from_value(value.into_value(), location) {
            Ok(value) => Some(value),
            Err(other) => {
                let merged = E::merge(self.errors.take(), other, location);
                self.errors = Some(take_cf_content(merged));
                None
            }
        }
    }
}

/// Reads a whole number within bounds.
pub(crate) fn whole_number<V: IntoValue, E: DeserializeError>(
    value: Value<V>,
    location: ValuePointerRef,
    bounds: std::ops::RangeInclusive<u32>,
) -> Result<u32, E> {
    match value {
        Value::Integer(number) => u32::try_from(number).ok(),
        _ => None,
    }
    .filter(|number| bounds.contains(number))
    .ok_or_else(|| {
        let (min, max) = (bounds.start(), bounds.end());
        add(
            None,
            format!("must be a whole number from {min} to {max}"),
            location,
        )
    })
}

/// A boolean query parameter: `true` or `false`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flag(pub bool);

impl<E: DeserializeError> Deserr<E> for Flag {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| match text.as_str() {
            "true" => Ok(Flag(true)),
            "false" => Ok(Flag(false)),
            _ => Err("must be true or false".to_owned()),
        })
    }
}

/// Declares a request with the fields of a browser's launch that this build does not support, in
/// addition to its own.
macro_rules! with_unsupported_launch_fields {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident { $($fields:tt)* }) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($fields)*
            /// Not supported by this build.
            #[deserr(default)]
            #[schema(value_type = Option<bool>)]
            pub stealth: $crate::api::field::Unsupported,
            /// Not supported by this build.
            #[deserr(default)]
            #[schema(value_type = Option<Object>)]
            pub proxy: $crate::api::field::Unsupported,
            /// Not supported by this build.
            #[deserr(default)]
            #[schema(value_type = Option<Vec<Object>>)]
            pub extensions: $crate::api::field::Unsupported,
            /// Not supported by this build.
            #[deserr(default)]
            #[schema(value_type = Option<Object>)]
            pub network: $crate::api::field::Unsupported,
            /// Not supported by this build.
            #[deserr(default)]
            #[schema(value_type = Option<String>)]
            pub proxy_id: $crate::api::field::Unsupported,
            /// Not supported by this build.
            #[deserr(default)]
            #[schema(value_type = Option<Object>)]
            pub chrome_policy: $crate::api::field::Unsupported,
        }
    };
}
pub(crate) use with_unsupported_launch_fields;

/// The error about an [`Unsupported`] field.
pub(crate) const UNSUPPORTED: &str = "is not supported by this build";

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeNumber<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> WholeNumber<MIN, MAX> {
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<E: DeserializeError, const MIN: u32, const MAX: u32> Deserr<E> for WholeNumber<MIN, MAX> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, MIN..=MAX).map(WholeNumber)
    }
}

/// A field of the contract that this build does not support: accepted only if null, false or empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsupported;

impl<E: DeserializeError> Deserr<E> for Unsupported {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let is_empty = match value {
            Value::Null | Value::Boolean(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Sequence(items) => items.len() == 0,
            Value::Map(entries) => entries.len() == 0,
            _ => false,
        };
        if is_empty {
            Ok(Unsupported)
        } else {
            Err(add(None, UNSUPPORTED, location))
        }
    }
}
