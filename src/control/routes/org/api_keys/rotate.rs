use axum::extract::State;

use super::{TAG, show_fresh};
use crate::{
    api::{ErrorBody, api_keys::FreshApiKey, ids::KeyId},
    control::{Control, routes::auth::Principal},
    http::{ApiResult, Json, Path},
};

/// Gives a key a new secret; the old one stops working at once.
#[utoipa::path(
    post,
    path = "/org/api_keys/{id}/rotate",
    tag = TAG,
    params(("id" = KeyId, Path)),
    responses((status = 200, body = FreshApiKey), (status = 404, body = ErrorBody))
)]
pub async fn rotate(
    State(control): State<Control>,
    principal: Principal,
    Path(id): Path<KeyId>,
) -> ApiResult<Json<FreshApiKey>> {
    let scope = principal.api_key()?.project.as_ref();
    Ok(Json(show_fresh(control.keys.rotate(scope, &id).await?)))
}
