use axum::extract::State;
use http::StatusCode;

use super::{TAG, show};
use crate::{
    api::{ErrorBody, api_keys::ApiKey, ids::KeyId},
    control::{Control, routes::auth::Principal},
    http::{ApiResult, Json, Path},
};

/// One key, without its secret.
#[utoipa::path(
    get,
    path = "/org/api_keys/{id}",
    tag = TAG,
    params(("id" = KeyId, Path)),
    responses((status = 200, body = ApiKey), (status = 404, body = ErrorBody))
)]
pub async fn get(
    State(control): State<Control>,
    principal: Principal,
    Path(id): Path<KeyId>,
) -> ApiResult<Json<ApiKey>> {
    let scope = principal.api_key()?.project.as_ref();
    Ok(Json(show(control.keys.get(scope, &id).await?)))
}

/// Deletes a key; it stops working at once.
#[utoipa::path(
    delete,
    path = "/org/api_keys/{id}",
    tag = TAG,
    params(("id" = KeyId, Path)),
    responses((status = 204), (status = 404, body = ErrorBody))
)]
pub async fn delete(
    State(control): State<Control>,
    principal: Principal,
    Path(id): Path<KeyId>,
) -> ApiResult<StatusCode> {
    let scope = principal.api_key()?.project.as_ref();
    control.keys.delete(scope, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
