//! Decoding requests with one detail per invalid field.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::str::FromStr;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, MergeWithError, Value, ValuePointerRef,
};

use super::ApiError;
use crate::api::{
    ErrorDetail,
    field::{path_of, what_is_wrong},
};

/// Beyond this many the rest is summed up: a body of a million bad entries is not echoed.
const MAX_DETAILS: usize = 1000;
/// Characters of a path, and of what is said of it; both may repeat what came.
const MAX_TEXT: usize = 200;

/// All that is wrong with a request's fields; each detail's `code` is the field's path.
#[derive(Debug, Default)]
pub struct FieldErrors {
    details: Vec<ErrorDetail>,
    left_out: usize,
}

/// A value that parses but is out of its bounds; the text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BoundsError(pub String);

impl BoundsError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// A query parameter's text read as a `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param<T>(pub T);

impl FieldErrors {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.details.is_empty()
    }

    /// Of what is wrong with a field, the first is told.
    pub fn add(&mut self, field: impl Into<String>, what: impl Into<String>) {
        let field = cut(field.into());
        if self.details.iter().all(|detail| detail.code != field) {
            self.push_at(field, what.into());
        }
    }

    /// How many fields are wrong.
    #[must_use]
    pub fn count(&self) -> usize {
        self.details.len() + self.left_out
    }

    fn push(&mut self, location: ValuePointerRef, message: String) {
        self.push_at(path_of(location), message);
    }

    fn push_at(&mut self, path: String, message: String) {
        if self.details.len() < MAX_DETAILS {
            self.details.push(ErrorDetail {
                code: cut(path),
                message: cut(message),
            });
        } else {
            self.left_out += 1;
        }
    }
}

impl From<FieldErrors> for ApiError {
    fn from(errors: FieldErrors) -> Self {
        let count = errors.count();
        let message = match errors.details.as_slice() {
            [one] => format!("{}: {}", one.code, one.message),
            _ => format!("{count} fields are invalid"),
        };
        ApiError::bad_request(message).details(errors.details)
    }
}

/// The start of a long text, with a sign that there was more.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl DeserializeError for FieldErrors {
    fn error<V: IntoValue>(
        errors: Option<Self>,
        error: ErrorKind<V>,
        location: ValuePointerRef,
    ) -> ControlFlow<Self, Self> {
        let mut errors = errors.unwrap_or_default();
        let (path, message) = what_is_wrong(error, location);
        errors.push_at(path, message);
        ControlFlow::Continue(errors)
    }
}

impl MergeWithError<FieldErrors> for FieldErrors {
    fn merge(
        errors: Option<Self>,
        other: FieldErrors,
        _location: ValuePointerRef,
    ) -> ControlFlow<Self, Self> {
        let mut errors = errors.unwrap_or_default();
        for detail in other.details {
            errors.push_at(detail.code, detail.message);
        }
        errors.left_out += other.left_out;
        ControlFlow::Continue(errors)
    }
}

impl<E: Display> MergeWithError<E> for FieldErrors {
    fn merge(errors: Option<Self>, other: E, location: ValuePointerRef) -> ControlFlow<Self, Self> {
        let mut errors = errors.unwrap_or_default();
        errors.push(location, other.to_string());
        ControlFlow::Continue(errors)
    }
}

impl<T> Deserr<FieldErrors> for Param<T>
where
    T: FromStr,
    T::Err: Display,
{
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, FieldErrors> {
        let text = String::deserialize_from_value(value, location)?;
        text.parse().map(Param).map_err(|error: T::Err| {
            let mut errors = FieldErrors::default();
            errors.push(location, error.to_string());
            errors
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserr)]
    #[deserr(error = FieldErrors)]
    struct Outer {
        #[deserr(default)]
        #[expect(dead_code, reason = "only decoding it is tested")]
        inner: Option<Inner>,
        #[expect(dead_code, reason = "only decoding it is tested")]
        name: String,
        #[expect(dead_code, reason = "only decoding it is tested")]
        list: Vec<bool>,
    }

    #[derive(Debug, Deserr)]
    #[deserr(error = FieldErrors)]
    struct Inner {
        #[expect(dead_code, reason = "only decoding it is tested")]
        size: Size,
    }

    #[derive(Debug, Deserr)]
    #[deserr(try_from(u64) = Size::new -> BoundsError)]
    #[expect(dead_code, reason = "only decoding it is tested")]
    struct Size(u64);

    impl Size {
        fn new(n: u64) -> Result<Self, BoundsError> {
            (n <= 10)
                .then_some(Self(n))
                .ok_or_else(|| BoundsError::new("must be at most 10"))
        }
    }

    #[test]
    fn every_invalid_field_has_its_detail() {
        let body = json!({"inner": {"size": 11}, "list": [true, 1, "x"], "other": 1});
        let error = ApiError::from(deserr::deserialize::<Outer, _, FieldErrors>(body).unwrap_err());
        let mut paths: Vec<_> = error
            .body()
            .details
            .iter()
            .map(|d| d.code.as_str())
            .collect();
        paths.sort_unstable();
        assert_eq!(paths, ["inner.size", "list[1]", "list[2]", "name"]);
    }

    #[test]
    fn a_body_that_is_no_object_is_told() {
        let error =
            ApiError::from(deserr::deserialize::<Outer, _, FieldErrors>(json!([1])).unwrap_err());
        assert_eq!(error.body().details[0].code, "body");
        assert_eq!(
            error.body().details[0].message,
            "must be an object, not an array"
        );
    }

    #[test]
    fn a_long_key_is_not_echoed_whole() {
        #[derive(Debug, Deserr)]
        #[deserr(error = FieldErrors)]
        struct Tagged {
            #[expect(dead_code, reason = "only decoding it is tested")]
            tags: crate::api::browsers::Tags,
        }
        let key = "é".repeat(1024 * 1024);
        let body = json!({"tags": {&key: ""}});
        let error =
            ApiError::from(deserr::deserialize::<Tagged, _, FieldErrors>(body).unwrap_err());
        let body = error.body();
        assert!(body.details[0].code.starts_with("tags.éé"));
        assert_eq!(body.details[0].code.chars().count(), MAX_TEXT + 1);
        assert!(serde_json::to_vec(body).unwrap().len() < 2048);
    }
}
