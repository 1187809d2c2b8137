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
        let pairs = decode_query(parts.uri.query().unwrap_or_default())?;
        deserr::deserialize::<T, _, FieldErrors>(serde_json::Value::Object(pairs))
            .map(Self)
            .map_err(ApiError::from)
    }
}

/// Decodes the pairs of a query. Text that is not UTF-8 is an error: its replacement characters
/// would name another file.
fn decode_query(query: &str) -> Result<serde_json::Map<String, serde_json::Value>, FieldErrors> {
    let mut pairs = serde_json::Map::new();
    let mut errors = FieldErrors::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name), decode(value));
        match (String::from_utf8(name), String::from_utf8(value)) {
            (Ok(name), Ok(value)) => {
                pairs.insert(name, value.into());
            }
            (Ok(name), Err(_)) => errors.add(name, "must be UTF-8"),
            (Err(error), _) => {
                let name = String::from_utf8_lossy(error.as_bytes());
                errors.add(name, "must have a name in UTF-8");
            }
        }
    }
    match errors.is_empty() {
        true => Ok(pairs),
        false => Err(errors),
    }
}

/// Decodes a name or value of a query.
fn decode(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn query_is_decoded_like_a_form() {
        let decoded = decode_query("a=1&b=%2Fx+y%2B&&c&=d&e==&%C3%BC=%F0%9F%98%80&a=2").unwrap();
        let expected = json!({"a": "2", "b": "/x y+", "c": "", "": "d", "e": "=", "ü": "😀"});
        assert_eq!(serde_json::Value::Object(decoded), expected);
    }

    #[test]
    fn query_that_is_not_utf8_names_each_invalid_parameter() {
        let errors = decode_query("path=/tmp/bad%FF&mode=600&x=%ED%A0%80&n%FFme=1").unwrap_err();
        let error = ApiError::from(errors);
        let details = error.body().details.iter();
        let details: Vec<_> = details
            .map(|detail| (detail.code.as_str(), detail.message.as_str()))
            .collect();
        assert_eq!(
            details,
            [
                ("path", "must be UTF-8"),
                ("x", "must be UTF-8"),
                ("n\u{fffd}me", "must have a name in UTF-8"),
            ]
        );
    }
}
