//! `GET /fs/list_files`.

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

/// List a directory
///
/// Ordered by name. A directory with more than 100,000 entries, or whose names and paths have more
/// than 64 MiB, is rejected. In names, invalid UTF-8 is replaced by U+FFFD; such an entry cannot be
/// named in a request.
#[utoipa::path(
    get,
    path = "/fs/list_files",
    operation_id = "list_files",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = Vec<FileInfo>),
        (status = 400, body = ErrorBody, description = "The path is not absolute or not a directory, or the directory has too many entries"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the directory is the agent's own"),
        (status = 404, body = ErrorBody, description = "The directory does not exist"),
    )
)]
pub(crate) async fn list_files(
    State(access): State<FileAccess>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Json<Vec<FileInfo>>> {
    let entries = blocking_on("path", move || {
        files::list(access.root(), query.path.as_path())
    })
    .await?;
    Ok(Json(entries))
}
