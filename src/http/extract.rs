//! Extractors whose rejections use the common error format.

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use deserr::Deserr;
use http::{header::CONTENT_TYPE, request::Parts};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    ApiError, FieldErrors, JSON_CONTENT_TYPE,
    json_body::{JSON_BODY_LIMIT, read_json},
};

/// A JSON body of a response, or of a request of up to [`JSON_BODY_LIMIT`] bytes. An absent request
/// body is read as `{}`.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

/// A JSON body of a request of up to `LIMIT` bytes. An absent body is read as `{}`.
#[derive(Debug, Clone, Copy)]
pub struct LargeJson<T, const LIMIT: usize>(pub T);

/// The parameters of the path.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

/// The parameters of the query; numbers are declared as [`super::Param`].
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T, S> FromRequest<S> for Json<T>
where
    T: Deserr<FieldErrors> + Send + 'static,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        read_json(request, JSON_BODY_LIMIT).await.map(Self)
    }
}

impl<T, S, const LIMIT: usize> FromRequest<S> for LargeJson<T, LIMIT>
where
    T: Deserr<FieldErrors> + Send + 'static,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        read_json(request, LIMIT).await.map(Self)
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
