//! `/org/api_keys/{id}/rotate`.

use axum::extract::State;

use super::{TAG, to_created_key};
use crate::{
    api::{ErrorBody, api_keys::ApiKeyWithSecret, ids::KeyId},
    control::{keys::ApiKeys, routes::auth::Principal},
    http::{ApiResult, Json, Path},
};

/// Rotate an API key
///
/// Gives the key a new secret, which is not shown again. The old secret stops working, and so do
/// the tokens in URLs that were issued for it. A key that expires can rotate only keys that expire
/// no later.
#[utoipa::path(
    post,
    path = "/org/api_keys/{id}/rotate",
    operation_id = "rotate_api_key",
    tag = TAG,
    params(("id" = KeyId, Path, description = "The id of the key", example = "key_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = ApiKeyWithSecret),
        (status = 403, body = ErrorBody, description = "The key of the request expires before the key"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn rotate(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Path(id): Path<KeyId>,
) -> ApiResult<Json<ApiKeyWithSecret>> {
    let caller = principal.api_key()?;
    Ok(Json(to_created_key(keys.rotate(caller, &id).await?)))
}
