//! `PUT /fs/delete_directory`.

use super::{TAG, blocking_on};
use crate::{
    agent::fs::{access::FileAccess, files},
    api::{ErrorBody, agent::Done, fs::PathRequest},
    http::{ApiResult, Json},
};
use axum::extract::State;

/// Delete a directory
///
/// Deletes the directory with its content. A symbolic link is rejected, unless a slash follows it:
/// then its target is deleted.
#[utoipa::path(
    put,
    path = "/fs/delete_directory",
    operation_id = "delete_directory",
    tag = TAG,
    request_body(content = PathRequest, example = json!({"path": "/tmp/reports"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The path is not absolute, ends in `..`, is not a directory, or is the root"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the directory is or contains the agent's own files, or is one that the agent has created for the session"),
        (status = 404, body = ErrorBody, description = "The directory does not exist"),
    )
)]
pub(crate) async fn delete_directory(
    State(access): State<FileAccess>,
    Json(request): Json<PathRequest>,
) -> ApiResult<Json<Done>> {
    blocking_on("path", move || {
        files::delete_directory(&access, request.path.as_path())
    })
    .await?;
    Ok(Json(Done { ok: true }))
}
