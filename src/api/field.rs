//! What the checked types of this vocabulary share: refusing a field with a message at its place.

use std::convert::Infallible;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Value, ValueKind, ValuePointerRef,
    take_cf_content,
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

/// `viewport.width`, `actions[3].type`; the body itself is `body`.
pub(crate) fn path_of(location: ValuePointerRef) -> String {
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

fn kind_name(kind: ValueKind) -> &'static str {
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

fn accepted_kinds(accepted: &[ValueKind]) -> String {
    let mut names: Vec<&str> = accepted.iter().copied().map(kind_name).collect();
    names.dedup();
    match names.as_slice() {
        [] => "another kind of value".to_owned(),
        ["a positive integer", "a negative integer"] => "an integer".to_owned(),
        _ => names.join(" or "),
    }
}

/// The path of the field that is wrong, and why it is.
pub(crate) fn what_is_wrong<V: IntoValue>(
    error: ErrorKind<V>,
    location: ValuePointerRef,
) -> (String, String) {
    match error {
        ErrorKind::IncorrectValueKind { actual, accepted } => {
            let (due, found) = (accepted_kinds(accepted), kind_name(actual.kind()));
            (path_of(location), format!("must be {due}, not {found}"))
        }
        ErrorKind::MissingField { field } => {
            (path_of(location.push_key(field)), "is required".to_owned())
        }
        ErrorKind::UnknownKey { key, .. } => {
            (path_of(location.push_key(key)), "is not known".to_owned())
        }
        ErrorKind::UnknownValue { accepted, .. } => (
            path_of(location),
            format!("must be one of {}", accepted.join(", ")),
        ),
        ErrorKind::BadSequenceLen { actual, expected } => {
            use deserr::Sequence;
            let found = actual.len();
            (
                path_of(location),
                format!("must have {expected} elements, not {found}"),
            )
        }
        ErrorKind::Unexpected { msg } => (path_of(location), msg),
    }
}

/// The fields of an object, read one by one: what is wrong with one hides nothing that is wrong with the others.
pub(crate) struct Fields<'a, M, E> {
    map: M,
    errors: Option<E>,
    location: ValuePointerRef<'a>,
}

/// A field was wrong, which has been noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted;

impl<'a, M: Map, E: DeserializeError> Fields<'a, M, E> {
    pub fn of<V: IntoValue<Map = M>>(
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

    /// `None` where the field is missing or wrong, which is noted.
    pub fn required<T: Deserr<E>>(&mut self, key: &str) -> Option<T> {
        match self.map.remove(key) {
            Some(value) => self.read(key, value),
            None => {
                self.refuse(key, "is required");
                None
            }
        }
    }

    /// `None` where the field is absent or null, or wrong, which is noted.
    pub fn optional<T: Deserr<E>>(&mut self, key: &str) -> Option<T> {
        let value = self.map.remove(key)?;
        self.read::<Option<T>>(key, value).flatten()
    }

    /// Tells a field that is absent from one that is wrong, which is noted.
    pub fn given<T: Deserr<E>>(&mut self, key: &str) -> Result<Option<T>, Noted> {
        match self.map.remove(key) {
            Some(value) => self.read::<Option<T>>(key, value).ok_or(Noted),
            None => Ok(None),
        }
    }

    /// Notes that the field is wrong, and why, where there is one.
    pub fn refuse_present(&mut self, key: &str, message: &str) {
        if self.map.remove(key).is_some() {
            self.refuse(key, message);
        }
    }

    /// Notes that the field is wrong, and why.
    pub fn refuse(&mut self, key: &str, message: impl Into<String>) {
        let place = self.location.push_key(key);
        self.errors = Some(add(self.errors.take(), message, place));
    }

    /// `whole`, unless anything was wrong. There is a whole where nothing was.
    pub fn finish<T>(self, whole: Option<T>) -> Result<T, E> {
        match (self.errors, whole) {
            (None, Some(whole)) => Ok(whole),
            (Some(errors), _) => Err(errors),
            (None, None) => Err(add(None, "is not complete", self.location)),
        }
    }

    fn read<T: Deserr<E>>(&mut self, key: &str, value: M::Value) -> Option<T> {
        let place = self.location.push_key(key);
        match T::deserialize_from_value(value.into_value(), place) {
            Ok(value) => Some(value),
            Err(more) => {
                let merged = E::merge(self.errors.take(), more, place);
                self.errors = Some(take_cf_content(merged));
                None
            }
        }
    }
}

/// A whole number of these bounds; the message tells them.
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
        let (from, to) = (bounds.start(), bounds.end());
        add(
            None,
            format!("must be a whole number from {from} to {to}"),
            location,
        )
    })
}

/// `true` or `false` in a query.
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

/// A field of the contract that this build cannot honour: accepted only where it asks for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsupported;

impl<E: DeserializeError> Deserr<E> for Unsupported {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        use deserr::Sequence;
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
