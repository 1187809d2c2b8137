//! `PUT /fs/delete_directory`

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{ErrorBody, agent::Done, fs::PathRequest},
    http::{ApiResult, Json},
};

/// Remove a directory and all that is in it
///
/// A symbolic link is refused, unless a slash follows it: then what it leads to is removed.
#[utoipa::path(
    put,
    path = "/fs/delete_directory",
    operation_id = "delete_directory",
    tag = TAG,
    request_body = PathRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "not an absolute path, one that ends in `..`, not a directory, or the root"),
        (status = 403, body = ErrorBody, description = "it may not be removed"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
    )
)]
pub async fn delete_directory(Json(request): Json<PathRequest>) -> ApiResult<Json<Done>> {
    blocking_on("path", move || {
        files::delete_directory(request.path.as_path())
    })
    .await?;
    Ok(Json(Done { ok: true }))
}
