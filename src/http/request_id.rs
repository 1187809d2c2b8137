use http::{HeaderName, HeaderValue, Request};

/// The header that carries it, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LEN: usize = 128;

/// What names a request in every log line and on both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's own where it is fit for a log line, else a new one.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        match request.headers().get(REQUEST_ID) {
            Some(value) if is_fit(value) => Self(value.clone()),
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

    #[must_use]
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

fn is_fit(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= MAX_LEN
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}
