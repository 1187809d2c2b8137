//! `/org/api_keys/{id}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, to_api_key};
use crate::{
    api::{
        ErrorBody,
        api_keys::{ApiKey, UpdateApiKey},
        ids::KeyId,
    },
    control::{keys::ApiKeys, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// Get an API key
///
/// The response does not contain the secret.
#[utoipa::path(
    get,
    path = "/org/api_keys/{id}",
    operation_id = "get_api_key",
    tag = TAG,
    params(("id" = KeyId, Path, description = "The id of the key", example = "key_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses((status = 200, body = ApiKey))
)]
pub(crate) async fn get(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Path(id): Path<KeyId>,
) -> ApiResult<Json<ApiKey>> {
    let scope = principal.api_key()?.project.as_ref();
    Ok(Json(to_api_key(keys.get(scope, &id).await?)))
}

/// Update an API key
///
/// Changes the name.
#[utoipa::path(
    patch,
    path = "/org/api_keys/{id}",
    operation_id = "update_api_key",
    tag = TAG,
    params(("id" = KeyId, Path, description = "The id of the key", example = "key_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateApiKey, example = json!({"name": "ci"})),
    responses(
        (status = 200, body = ApiKey),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Path(id): Path<KeyId>,
    Json(request): Json<UpdateApiKey>,
) -> ApiResult<Json<ApiKey>> {
    let renamed = keys.rename(principal.api_key()?, &id, request.name.as_str());
    Ok(Json(to_api_key(renamed.await?)))
}

/// Delete an API key
///
/// Requests with the key, and with tokens in URLs that were issued for it, fail from now on; other
/// server processes on the same database may accept them for up to 2 seconds. The list of deleted
/// keys has its record for as long as it is retained.
#[utoipa::path(
    delete,
    path = "/org/api_keys/{id}",
    operation_id = "delete_api_key",
    tag = TAG,
    params(("id" = KeyId, Path, description = "The id of the key", example = "key_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The key is deleted"),
        (status = 503, body = ErrorBody, description = "The deletion cannot be stored yet. The server denies the key, and repeats the deletion until it succeeds or the server ends"),
    )
)]
pub(crate) async fn delete(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Path(id): Path<KeyId>,
) -> ApiResult<StatusCode> {
    keys.delete(principal.api_key()?, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
