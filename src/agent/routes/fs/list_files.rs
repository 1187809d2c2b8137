//! `GET /fs/list_files`

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{
        ErrorBody,
        fs::{FileInfo, PathQuery},
    },
    http::{ApiResult, Json, Query},
};

/// List a directory
///
/// By name, 100,000 entries at most.
#[utoipa::path(
    get,
    path = "/fs/list_files",
    operation_id = "list_files",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = Vec<FileInfo>),
        (status = 400, body = ErrorBody, description = "not an absolute path, not a directory, or too many entries"),
        (status = 403, body = ErrorBody, description = "it may not be read"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
    )
)]
pub async fn list_files(Query(query): Query<PathQuery>) -> ApiResult<Json<Vec<FileInfo>>> {
    let entries = blocking_on("path", move || files::list(query.path.as_path())).await?;
    Ok(Json(entries))
}
