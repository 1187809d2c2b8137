//! Limits the requests and the open streams of each API key.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::Method;

use crate::{
    api::ids::KeyId,
    control::caller_limits::{CallerLimitError, CallerLimits},
    http::{ApiError, GuardedBody, is_websocket_upgrade},
};

/// `Retry-After` of a request beyond the rate.
const RATE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// `Retry-After` of a stream beyond the limit.
const STREAM_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The length from which a response counts as a stream, because sending it may take long.
const LONG_BODY: u64 = 1 << 20;

/// Marks the response to a request beyond the rate of its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Throttled;

/// Runs an authenticated request of a key, or rejects it if it exceeds a limit of the key.
///
/// A stream is a WebSocket, or a response to GET whose length is unknown or more than
/// [`LONG_BODY`]. A response that turns out to be one too many is dropped: the request was a read,
/// which a client may repeat.
pub(super) async fn run_within_limits(
    limits: &CallerLimits,
    key: &KeyId,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(error) = limits.count_request(key) {
        let mut response = ApiError::from(error).into_response();
        response.extensions_mut().insert(Throttled);
        return response;
    }
    if is_websocket_upgrade(&request) {
        return match limits.open_stream(key) {
            Ok(permit) => {
                // What serves the WebSocket takes it over.
                request.extensions_mut().insert(permit);
                next.run(request).await
            }
            Err(error) => ApiError::from(error).into_response(),
        };
    }
    let is_read = request.method() == Method::GET;
    let response = next.run(request).await;
    if !is_read || !is_stream(&response) {
        return response;
    }
    match limits.open_stream(key) {
        Ok(permit) => response.map(|body| Body::new(GuardedBody::new(body, permit))),
        Err(error) => ApiError::from(error).into_response(),
    }
}

fn is_stream(response: &Response) -> bool {
    let length = response.body().size_hint().exact();
    response.status().is_success() && length.is_none_or(|length| length > LONG_BODY)
}

impl From<CallerLimitError> for ApiError {
    fn from(error: CallerLimitError) -> Self {
        let retry_after = match error {
            CallerLimitError::Requests(_) => RATE_RETRY_DELAY,
            CallerLimitError::Streams(_) => STREAM_RETRY_DELAY,
        };
        ApiError::limit_exceeded(error.to_string(), retry_after)
    }
}
