//! Validation errors: one error detail per invalid field of a request.

use std::{fmt::Display, ops::ControlFlow, str::FromStr};

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, MergeWithError, Value, ValuePointerRef,
};

use super::ApiError;
use crate::api::{
    ErrorDetail,
    field::{UNSUPPORTED, describe_error, field_path},
};

/// Details reported at most; the rest is only counted, so that a body of a million invalid entries
/// does not produce a response of that size.
const MAX_DETAILS: usize = 1000;
/// Characters of a field's path and of its message, both of which may echo the request.
const MAX_TEXT: usize = 200;

/// The invalid fields of a request; each detail's `code` is the field's path.
#[derive(Debug, Default)]
pub struct FieldErrors {
    details: Vec<ErrorDetail>,
    omitted: usize,
}

/// A value that parses but is out of bounds; the text states the bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BoundsError(pub String);

impl BoundsError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// A query parameter parsed from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param<T>(pub T);

impl FieldErrors {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.details.is_empty()
    }

    /// Adds an error. Keeps only the first error per field.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let field = truncate(field.into());
        if self.details.iter().all(|detail| detail.code != field) {
            self.push(field, message.into());
        }
    }

    /// Returns the number of invalid fields.
    #[must_use]
    pub fn count(&self) -> usize {
        self.details.len() + self.omitted
    }

    fn push(&mut self, path: String, message: String) {
        if self.details.len() < MAX_DETAILS {
            self.details.push(ErrorDetail {
                code: truncate(path),
                message: truncate(message),
            });
        } else {
            self.omitted += 1;
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
        let is_unsupported = |detail: &ErrorDetail| detail.message == UNSUPPORTED;
        let all_unsupported = count > 0 && errors.details.iter().all(is_unsupported);
        let error = ApiError::bad_request(message).details(errors.details);
        match all_unsupported {
            true => error.code("unsupported_field"),
            false => error,
        }
    }
}

/// Returns at most [`MAX_TEXT`] characters, with an ellipsis if the text was longer.
fn truncate(mut text: String) -> String {
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
        let (path, message) = describe_error(error, location);
        errors.push(path, message);
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
            errors.push(detail.code, detail.message);
        }
        errors.omitted += other.omitted;
        ControlFlow::Continue(errors)
    }
}

impl<E: Display> MergeWithError<E> for FieldErrors {
    fn merge(errors: Option<Self>, other: E, location: ValuePointerRef) -> ControlFlow<Self, Self> {
        let mut errors = errors.unwrap_or_default();
        errors.push(field_path(location), other.to_string());
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
            errors.push(field_path(location), error.to_string());
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
    fn every_invalid_field_has_a_detail() {
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
    fn body_that_is_not_an_object_is_rejected() {
        let error =
            ApiError::from(deserr::deserialize::<Outer, _, FieldErrors>(json!([1])).unwrap_err());
        assert_eq!(error.body().details[0].code, "body");
        assert_eq!(
            error.body().details[0].message,
            "must be an object, not an array"
        );
    }

    #[test]
    fn long_key_is_truncated_in_the_detail() {
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
