//! `PUT /fs/set_file_permissions`

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{ErrorBody, agent::Done, fs::PermissionsRequest},
    http::{ApiResult, Json},
};

/// Set permissions, owner and group
#[utoipa::path(
    put,
    path = "/fs/set_file_permissions",
    operation_id = "set_file_permissions",
    tag = TAG,
    request_body = PermissionsRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "not an absolute path, a bad mode, or no such user or group"),
        (status = 403, body = ErrorBody, description = "it may not be changed"),
        (status = 404, body = ErrorBody, description = "there is no such file"),
    )
)]
pub async fn set_file_permissions(
    Json(request): Json<PermissionsRequest>,
) -> ApiResult<Json<Done>> {
    blocking_on("path", move || {
        files::set_permissions(
            request.path.as_path(),
            request.mode,
            request.owner.as_ref(),
            request.group.as_ref(),
        )
    })
    .await?;
    Ok(Json(Done { ok: true }))
}
