//! `PUT /fs/delete_file`.

use super::{TAG, blocking_on};
use crate::{
    agent::fs::{access::FileAccess, files},
    api::{ErrorBody, agent::Done, fs::PathRequest},
    http::{ApiResult, Json},
};
use axum::extract::State;

/// Delete a file
///
/// Deletes a symbolic link itself, not its target.
#[utoipa::path(
    put,
    path = "/fs/delete_file",
    operation_id = "delete_file",
    tag = TAG,
    request_body(content = PathRequest, example = json!({"path": "/tmp/report.txt"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The path is not absolute, or is a directory"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the file is the agent's own"),
        (status = 404, body = ErrorBody, description = "The file does not exist"),
    )
)]
pub(crate) async fn delete_file(
    State(access): State<FileAccess>,
    Json(request): Json<PathRequest>,
) -> ApiResult<Json<Done>> {
    blocking_on("path", move || {
        files::delete_file(&access, request.path.as_path())
    })
    .await?;
    Ok(Json(Done { ok: true }))
}
