//! `PUT /fs/create_directory`

use http::StatusCode;

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{ErrorBody, agent::Done, fs::CreateDirectoryRequest},
    http::{ApiResult, Json},
};

/// Make a directory
///
/// And its missing parents. One that is there already stays as it is.
#[utoipa::path(
    put,
    path = "/fs/create_directory",
    operation_id = "create_directory",
    tag = TAG,
    request_body = CreateDirectoryRequest,
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "not an absolute path, or a bad mode"),
        (status = 403, body = ErrorBody, description = "it may not be made there"),
        (status = 409, body = ErrorBody, description = "a file has that name, or that of one of its parents"),
    )
)]
pub async fn create_directory(
    Json(request): Json<CreateDirectoryRequest>,
) -> ApiResult<(StatusCode, Json<Done>)> {
    blocking_on("path", move || {
        files::create_directory(request.path.as_path(), request.mode)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}
