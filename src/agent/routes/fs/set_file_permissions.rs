//! `PUT /fs/set_file_permissions`.

use super::{TAG, blocking_on};
use crate::{
    agent::fs::{access::FileAccess, files},
    api::{ErrorBody, agent::Done, fs::PermissionsRequest},
    http::{ApiResult, Json},
};
use axum::extract::State;

/// Set permissions, owner and group
///
/// The owner and the group stay unchanged if they are not given.
#[utoipa::path(
    put,
    path = "/fs/set_file_permissions",
    operation_id = "set_file_permissions",
    tag = TAG,
    request_body(content = PermissionsRequest, example = json!({"path": "/tmp/report.txt", "mode": "644", "owner": "root"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The path is not absolute, the mode is invalid, or the user or group does not exist"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the file is or contains the agent's own files"),
        (status = 404, body = ErrorBody, description = "The file does not exist"),
    )
)]
pub(crate) async fn set_file_permissions(
    State(access): State<FileAccess>,
    Json(request): Json<PermissionsRequest>,
) -> ApiResult<Json<Done>> {
    blocking_on("path", move || {
        files::set_permissions(
            &access,
            request.path.as_path(),
            request.mode,
            request.owner.as_ref(),
            request.group.as_ref(),
        )
    })
    .await?;
    Ok(Json(Done { ok: true }))
}
