//! `GET /fs/file_info`.

use axum::extract::State;

use super::{TAG, blocking_on};
use crate::{
    agent::fs::{access::FileAccess, files},
    api::{
        ErrorBody,
        fs::{FileInfo, PathQuery},
    },
    http::{ApiResult, Json, Query},
};

/// Get information on a file
///
/// Describes a file, a directory or anything else with a path; a symbolic link itself, not its
/// target.
#[utoipa::path(
    get,
    path = "/fs/file_info",
    operation_id = "get_file_info",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = FileInfo),
        (status = 400, body = ErrorBody, description = "The path is not absolute"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the file is the agent's own"),
        (status = 404, body = ErrorBody, description = "The path does not exist"),
    )
)]
pub(crate) async fn file_info(
    State(access): State<FileAccess>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Json<FileInfo>> {
    let info = blocking_on("path", move || {
        files::info(access.root(), query.path.as_path())
    })
    .await?;
    Ok(Json(info))
}
