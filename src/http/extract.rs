//! Extractors whose rejections use the common error format.

use std::{future::pending, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use deserr::Deserr;
use http::{
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use super::{
    ApiError, BODY_IDLE_TIMEOUT, BodyError, FieldErrors, JSON_CONTENT_TYPE, serve::ServerShutdown,
};

/// Size limit of a JSON body, in bytes.
pub const JSON_BODY_LIMIT: usize = 10 * 1024 * 1024;

/// `Retry-After` of requests that the server's shutdown has aborted.
const SHUTDOWN_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A JSON body of a request or response. An absent request body is read as `{}`.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

/// The parameters of the path.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

/// The parameters of the query; numbers are declared as [`super::Param`].
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T, S> FromRequest<S> for Json<T>
where
    T: Deserr<FieldErrors>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        // Requiring the type prevents cross-site requests: without a CORS preflight, a web page can
        // send only bodies of no type or of a text or form type.
        let is_json = request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(is_json_type);
        let bytes = read_body(request, BODY_IDLE_TIMEOUT).await?;
        if bytes.is_empty() {
            return decode(serde_json::Value::Object(serde_json::Map::new()));
        }
        if !is_json {
            return Err(ApiError::unsupported_media_type(
                "content type must be application/json",
            ));
        }
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            // The text of serde_json names the position and the expected token, never the content.
            ApiError::bad_request("the body is not valid JSON").detail("body", error.to_string())
        })?;
        decode(value)
    }
}

fn decode<T: Deserr<FieldErrors>>(value: serde_json::Value) -> Result<Json<T>, ApiError> {
    deserr::deserialize::<T, _, FieldErrors>(value)
        .map(Json)
        .map_err(ApiError::from)
}

fn is_json_type(value: &http::HeaderValue) -> bool {
    let essence = value
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    essence.eq_ignore_ascii_case("application/json")
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

async fn read_body(request: Request, idle_timeout: Duration) -> Result<Bytes, ApiError> {
    let too_large = || {
        ApiError::payload_too_large(format!(
            "JSON bodies are limited to {JSON_BODY_LIMIT} bytes"
        ))
    };
    let declared = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > JSON_BODY_LIMIT as u64) {
        return Err(too_large());
    }
    let shutdown = request.extensions().get::<ServerShutdown>().cloned();
    let mut body: Limited<Body> = Limited::new(request.into_body(), JSON_BODY_LIMIT);
    let mut bytes = BytesMut::new();
    loop {
        let frame = tokio::select! {
            // Received frames first: the shutdown aborts only requests whose body is incomplete.
            biased;
            frame = body.frame() => frame,
            () = shutdown_requested(shutdown.as_ref()) => {
                return Err(ApiError::unavailable(
                    "the server is shutting down and the request body is incomplete",
                    SHUTDOWN_RETRY_AFTER,
                ));
            }
            () = sleep(idle_timeout) => {
                return Err(BodyError::IdleTimeout(idle_timeout).into());
            }
        };
        match frame {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
            }
            Some(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Some(Err(_)) => return Err(BodyError::Incomplete.into()),
            None => return Ok(bytes.freeze()),
        }
    }
}

async fn shutdown_requested(shutdown: Option<&ServerShutdown>) {
    match shutdown {
        Some(ServerShutdown(token)) => token.cancelled().await,
        None => pending().await,
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => ([(CONTENT_TYPE, JSON_CONTENT_TYPE)], bytes).into_response(),
            Err(error) => ApiError::internal(error).into_response(),
        }
    }
}

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            // A malformed id identifies nothing, so this is 404 and not 400.
            Err(_) => Err(ApiError::not_found("no resource with that id")),
        }
    }
}

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: Deserr<FieldErrors>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes())
            .map(|(key, value)| {
                (
                    key.into_owned(),
                    serde_json::Value::String(value.into_owned()),
                )
            })
            .collect();
        deserr::deserialize::<T, _, FieldErrors>(serde_json::Value::Object(pairs))
            .map(Self)
            .map_err(ApiError::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::stream::{self, StreamExt};

    use super::*;

    #[tokio::test]
    async fn json_body_without_progress_is_408() {
        let start = stream::iter([Ok::<_, io::Error>("{")]);
        let body = Body::from_stream(start.chain(stream::pending()));
        let error = read_body(Request::new(body), Duration::from_millis(10))
            .await
            .unwrap_err();
        assert_eq!(error.status(), http::StatusCode::REQUEST_TIMEOUT);
        assert_eq!(error.body().code, "timeout");
    }
}
