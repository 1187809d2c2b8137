//! Extractors whose every rejection has the one error shape.

use std::future::pending;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use deserr::Deserr;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::serve::Stop;
use super::{ApiError, BODY_PATIENCE, BodyError, FieldErrors, JSON_CONTENT_TYPE};

/// The largest JSON body, in bytes.
pub const JSON_BODY_LIMIT: usize = 10 * 1024 * 1024;

/// What a client that the stop has cut off is told to wait.
const STOP_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A JSON body, in or out. An absent body reads as `{}`.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

/// The parameters of the path.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

/// The parameters of the query; numbers are read with [`super::Param`].
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T, S> FromRequest<S> for Json<T>
where
    T: Deserr<FieldErrors>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        // A page of another origin may send a body of no type unasked, but none of this.
        let is_json = request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(is_json_type);
        let bytes = read_body(request, BODY_PATIENCE).await?;
        if bytes.is_empty() {
            return decode(serde_json::Value::Object(serde_json::Map::new()));
        }
        if !is_json {
            return Err(ApiError::unsupported_media_type(
                "send the body as application/json",
            ));
        }
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            // serde_json's text names the position and what was due, never the content.
            ApiError::bad_request("the body is not JSON").detail("body", error.to_string())
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

async fn read_body(request: Request, patience: Duration) -> Result<Bytes, ApiError> {
    let too_large = || {
        ApiError::payload_too_large(format!(
            "a JSON body may have {JSON_BODY_LIMIT} bytes at most"
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
    let stop = request.extensions().get::<Stop>().cloned();
    let mut body: Limited<Body> = Limited::new(request.into_body(), JSON_BODY_LIMIT);
    let mut bytes = BytesMut::new();
    loop {
        let frame = tokio::select! {
            // What has come is looked at first: the stop cuts off a body that is still to come, and no other.
            biased;
            frame = body.frame() => frame,
            () = stopped(stop.as_ref()) => {
                return Err(ApiError::unavailable(
                    "the server is stopping and the body has not come",
                    STOP_RETRY_AFTER,
                ));
            }
            () = sleep(patience) => {
                return Err(BodyError::StoodStill(patience).into());
            }
        };
        match frame {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
            }
            Some(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Some(Err(_)) => return Err(BodyError::BrokeOff.into()),
            None => return Ok(bytes.freeze()),
        }
    }
}

async fn stopped(stop: Option<&Stop>) {
    match stop {
        Some(Stop(stop)) => stop.cancelled().await,
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
            // An id that is none cannot be found: the client asked for something that is not there.
            Err(_) => Err(ApiError::not_found("there is nothing of that id")),
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
    async fn a_body_that_stands_still_is_given_up() {
        let start = stream::iter([Ok::<_, io::Error>("{")]);
        let body = Body::from_stream(start.chain(stream::pending()));
        let error = read_body(Request::new(body), Duration::from_millis(10))
            .await
            .unwrap_err();
        assert_eq!(error.status(), http::StatusCode::REQUEST_TIMEOUT);
        assert_eq!(error.body().code, "timeout");
    }
}
