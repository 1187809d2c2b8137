use std::fmt::Display;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use super::FieldErrors;
use crate::api::{ErrorBody, ErrorDetail};

pub const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");

const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error on its way to the client, in the one shape all errors have.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Inner>);

/// What handlers return.
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

    /// One field of the request is wrong.
    #[must_use]
    pub fn bad_field(field: impl Into<String>, what: impl Into<String>) -> Self {
        let mut errors = FieldErrors::default();
        errors.add(field, what);
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

    /// The request itself did not come in time: nothing was done, and it may be sent again.
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

    /// The cause is logged here and never sent.
    #[must_use]
    pub fn internal(cause: impl Display) -> Self {
        tracing::error!(%cause, "internal error");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            "something went wrong on our side; the request id finds it in the log",
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

    /// A more exact code than the status's own.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        code.clone_into(&mut self.0.body.code);
        self
    }

    /// In place of what is told of every error of its kind.
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

    /// Tells clients that repeat conflicts by themselves that it would be in vain.
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

    /// The error for a status some layer below produced without a body of ours.
    pub(super) fn from_status(status: StatusCode) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::not_found("no such route"),
            StatusCode::METHOD_NOT_ALLOWED => {
                Self::method_not_allowed("this route does not take that method")
            }
            StatusCode::PAYLOAD_TOO_LARGE => Self::payload_too_large("the body is too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Self::unsupported_media_type("this content type is not understood here")
            }
            status if status.is_server_error() => {
                let mut error = Self::internal(format_args!("a layer answered {status}"));
                error.0.status = status;
                error
            }
            status => {
                let mut error = Self::bad_request(status.canonical_reason().unwrap_or("refused"));
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
            // Whole seconds, and never "at once".
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if permanent {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// What a client acts upon beside an error's body.
const TELLING: [HeaderName; 4] = [ALLOW, CONTENT_RANGE, RETRY_AFTER, WWW_AUTHENTICATE];

/// Marks an answer that is in its shape already: of a server that keeps to ours by itself, as an agent does, or a page for people. It passes as it is.
#[derive(Debug, Clone, Copy)]
pub struct AsItIs;

/// Turns an error that a layer below made in another shape into ours, keeping what its headers say.
pub(super) fn reshape(response: Response) -> Response {
    let status = response.status();
    let ours = response.headers().get(CONTENT_TYPE) == Some(&JSON_CONTENT_TYPE)
        || response.extensions().get::<AsItIs>().is_some();
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let mut reshaped = ApiError::from_status(status).into_response();
    for name in &TELLING {
        if let Some(value) = response.headers().get(name) {
            reshaped.headers_mut().insert(name, value.clone());
        }
    }
    reshaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshaped_error_keeps_what_a_client_acts_upon() {
        let headers = [
            (ALLOW, "GET"),
            (CONTENT_RANGE, "bytes */5"),
            (RETRY_AFTER, "7"),
            (WWW_AUTHENTICATE, "Bearer realm=\"there\""),
        ];
        let refused = (StatusCode::UNAUTHORIZED, headers.clone(), "as it came");
        let reshaped = reshape(refused.into_response());
        assert_eq!(reshaped.headers()[CONTENT_TYPE], JSON_CONTENT_TYPE);
        for (name, value) in headers {
            assert_eq!(reshaped.headers()[&name], value);
        }
    }
}
