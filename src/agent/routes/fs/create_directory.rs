//! `PUT /fs/create_directory`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, blocking_on};
use crate::{
    agent::fs::{access::FileAccess, files},
    api::{ErrorBody, agent::Done, fs::CreateDirectoryRequest},
    http::{ApiResult, Json},
};

/// Create a directory
///
/// Creates missing parents as well. An existing directory stays unchanged.
#[utoipa::path(
    put,
    path = "/fs/create_directory",
    operation_id = "create_directory",
    tag = TAG,
    request_body(content = CreateDirectoryRequest, example = json!({"path": "/tmp/reports/2026", "mode": "755"})),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "The path is not absolute, or the mode is invalid"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the directory would be among the agent's own files"),
        (status = 409, body = ErrorBody, description = "The path or one of its parents is a file"),
    )
)]
pub(crate) async fn create_directory(
    State(access): State<FileAccess>,
    Json(request): Json<CreateDirectoryRequest>,
) -> ApiResult<(StatusCode, Json<Done>)> {
    blocking_on("path", move || {
        files::create_directory(&access, request.path.as_path(), request.mode)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}
