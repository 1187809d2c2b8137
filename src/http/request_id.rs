//! Request ids: one id per request, in every log line and on both servers.

use http::{HeaderName, HeaderValue, Request};

/// The header that carries the request id in requests and responses.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LEN: usize = 128;

/// The id of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the caller's id if it is safe to log, else a new one.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        match request.headers().get(REQUEST_ID) {
            Some(value) if is_valid(value) => Self(value.clone()),
            _ => Self::generate(),
        }
    }

    fn generate() -> Self {
        let id = format!(
            "req_{}",
            ulid::Ulid::generate().to_string().to_ascii_lowercase()
        );
        Self(HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("req_unknown")))
    }

    /// Returns the id as a header value.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

fn is_valid(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= MAX_LEN
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}
