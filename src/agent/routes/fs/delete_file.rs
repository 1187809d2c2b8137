//! `PUT /fs/delete_file`

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{ErrorBody, agent::Done, fs::PathRequest},
    http::{ApiResult, Json},
};

/// Remove a file
///
/// Of a symbolic link, the link.
#[utoipa::path(
    put,
    path = "/fs/delete_file",
    operation_id = "delete_file",
    tag = TAG,
    request_body = PathRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "not an absolute path, or a directory"),
        (status = 403, body = ErrorBody, description = "it may not be removed"),
        (status = 404, body = ErrorBody, description = "there is no such file"),
    )
)]
pub async fn delete_file(Json(request): Json<PathRequest>) -> ApiResult<Json<Done>> {
    blocking_on("path", move || files::delete_file(request.path.as_path())).await?;
    Ok(Json(Done { ok: true }))
}
