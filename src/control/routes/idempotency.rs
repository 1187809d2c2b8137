//! The `Idempotency-Key` header: a repeated request has the result of the first one.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::http::ApiError;

const HEADER: &str = "idempotency-key";
const MAX_LENGTH: usize = 255;

/// The idempotency key of a request, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(pub Option<String>);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(HEADER) else {
            return Ok(IdempotencyKey(None));
        };
        match value.to_str() {
            Ok(key) if (1..=MAX_LENGTH).contains(&key.len()) => {
                Ok(IdempotencyKey(Some(key.to_owned())))
            }
            _ => {
                let message = format!("must have 1 to {MAX_LENGTH} printable ASCII characters");
                Err(ApiError::bad_field(HEADER, message))
            }
        }
    }
}
