//! The error format of all responses.

use std::{fmt::Display, time::Duration};

use axum::response::{IntoResponse, Response};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};

use super::FieldErrors;
use crate::api::{ErrorBody, ErrorDetail};

pub const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");

const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error response: status, [`ErrorBody`] and the headers a client acts upon.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Inner>);

/// The result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

#[derive(Debug, Clone)]
struct Inner {
    status: StatusCode,
    body: ErrorBody,
    retry_after: Option<Duration>,
    permanent: bool,
}

impl ApiError {
    fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let body = ErrorBody {
            code: code.to_owned(),
            message: message.into(),
            details: Vec::new(),
            inner_error: None,
        };
        Self(Box::new(Inner {
            status,
            body,
            retry_after: None,
            permanent: false,
        }))
    }

    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// Returns a 400 about one field of the request.
    #[must_use]
    pub fn bad_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut errors = FieldErrors::default();
        errors.add(field, message);
        errors.into()
    }

    #[must_use]
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    #[must_use]
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            message,
        )
    }

    /// Returns a 400: the route accepts only WebSocket handshakes.
    #[must_use]
    pub fn websocket_required() -> Self {
        Self::bad_request("this route requires a WebSocket handshake")
    }

    /// Returns a 408: the request did not arrive in time, had no effect and may be repeated.
    #[must_use]
    pub fn request_timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    #[must_use]
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "gone", message)
    }

    #[must_use]
    pub fn payload_too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
    }

    #[must_use]
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            message,
        )
    }

    #[must_use]
    pub fn limit_exceeded(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "limit_exceeded", message).retry_after(retry_after)
    }

    /// Returns a 500. The cause is logged and never sent.
    #[must_use]
    pub fn internal(cause: impl Display) -> Self {
        tracing::error!(%cause, "internal error");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            "internal error; the server's log has the cause under this request id",
        )
    }

    #[must_use]
    pub fn bad_gateway(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "bad_gateway", message)
    }

    #[must_use]
    pub fn unavailable(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(retry_after)
    }

    #[must_use]
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    /// Replaces the code of the status by a more specific one.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        code.clone_into(&mut self.0.body.code);
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.0.body.message = message.into();
        self
    }

    #[must_use]
    pub fn detail(mut self, code: impl Into<String>, message: impl Into<String>) -> Self {
        self.0.body.details.push(ErrorDetail {
            code: code.into(),
            message: message.into(),
        });
        self
    }

    #[must_use]
    pub fn details(mut self, details: impl IntoIterator<Item = ErrorDetail>) -> Self {
        self.0.body.details.extend(details);
        self
    }

    #[must_use]
    pub fn inner(mut self, code: impl Into<String>, message: impl Into<String>) -> Self {
        self.0.body.inner_error = Some(ErrorDetail {
            code: code.into(),
            message: message.into(),
        });
        self
    }

    /// Adds `X-Should-Retry: false`, for clients that retry this status by default.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.0.permanent = true;
        self
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    #[must_use]
    pub fn body(&self) -> &ErrorBody {
        &self.0.body
    }

    fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Returns the error for a status that another layer produced without an [`ErrorBody`].
    pub(super) fn from_status(status: StatusCode) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::not_found("no such route"),
            StatusCode::METHOD_NOT_ALLOWED => {
                Self::method_not_allowed("method not allowed on this route")
            }
            StatusCode::PAYLOAD_TOO_LARGE => Self::payload_too_large("request body too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Self::unsupported_media_type("unsupported content type")
            }
            status if status.is_server_error() => {
                let mut error =
                    Self::internal(format_args!("a middleware responded with {status}"));
                error.0.status = status;
                error
            }
            status => {
                let mut error =
                    Self::bad_request(status.canonical_reason().unwrap_or("request rejected"));
                error.0.status = status;
                error
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Inner {
            status,
            body,
            retry_after,
            permanent,
        } = *self.0;
        let bytes = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (status, bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON_CONTENT_TYPE);
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(after) = retry_after {
            // Whole seconds, at least one.
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if permanent {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// Headers that a normalized error keeps, because clients act upon them.
const PRESERVED_HEADERS: [HeaderName; 4] = [ALLOW, CONTENT_RANGE, RETRY_AFTER, WWW_AUTHENTICATE];

/// Marks a response that [`normalize_error`] must not change: a relayed response of an agent, which
/// already uses the error format, or an HTML page.
#[derive(Debug, Clone, Copy)]
pub struct PassThrough;

/// Converts an error response of another layer to the error format, with [`PRESERVED_HEADERS`].
pub(super) fn normalize_error(response: Response) -> Response {
    let status = response.status();
    let is_normalized = response.headers().get(CONTENT_TYPE) == Some(&JSON_CONTENT_TYPE)
        || response.extensions().get::<PassThrough>().is_some();
    if is_normalized || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let mut normalized = ApiError::from_status(status).into_response();
    for name in &PRESERVED_HEADERS {
        if let Some(value) = response.headers().get(name) {
            normalized.headers_mut().insert(name, value.clone());
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_error_keeps_preserved_headers() {
        let headers = [
            (ALLOW, "GET"),
            (CONTENT_RANGE, "bytes */5"),
            (RETRY_AFTER, "7"),
            (WWW_AUTHENTICATE, "Bearer realm=\"there\""),
        ];
        let refused = (StatusCode::UNAUTHORIZED, headers.clone(), "plain text");
        let normalized = normalize_error(refused.into_response());
        assert_eq!(normalized.headers()[CONTENT_TYPE], JSON_CONTENT_TYPE);
        for (name, value) in headers {
            assert_eq!(normalized.headers()[&name], value);
        }
    }
}
