//! `/org/api_keys/{id}/rotate`.

use axum::extract::State;
use chrono::Utc;
use http::StatusCode;

use super::{TAG, to_created_key};
use crate::{
    api::{
        ErrorBody,
        api_keys::{ApiKeyWithSecret, RotateApiKey},
        ids::KeyId,
    },
    control::{
        keys::{ApiKeys, Rotation},
        routes::authentication::Principal,
    },
    http::{ApiResult, Json, Path},
};

/// Rotate an API key
///
/// Creates a key with the name and the project of the old one, and a new secret, which is not shown
/// again. The old key remains valid for `expire_in_days`, and so do the tokens in URLs that were
/// issued for it. A key that expires creates only keys that expire no later.
#[utoipa::path(
    post,
    path = "/org/api_keys/{id}/rotate",
    operation_id = "rotate_api_key",
    tag = TAG,
    params(("id" = KeyId, Path, description = "The id of the old key", example = "key_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = RotateApiKey, example = json!({"days_to_expire": 90, "expire_in_days": 7})),
    responses(
        (status = 201, body = ApiKeyWithSecret),
        (status = 403, body = ErrorBody, description = "The key of the request expires before the new key would"),
        (status = 409, body = ErrorBody, description = "The old key has expired, and the request has no `days_to_expire`"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn rotate(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Path(id): Path<KeyId>,
    Json(request): Json<RotateApiKey>,
) -> ApiResult<(StatusCode, Json<ApiKeyWithSecret>)> {
    let rotation = Rotation {
        expires_at: request.days_to_expire.map(|days| days.after(Utc::now())),
        grace_period: request.expire_in_days.unwrap_or_default().period(),
    };
    let rotated = keys.rotate(principal.api_key()?, &id, rotation).await?;
    Ok((StatusCode::CREATED, Json(to_created_key(rotated))))
}
