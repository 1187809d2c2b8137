//! `GET /fs/file_info`

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{
        ErrorBody,
        fs::{FileInfo, PathQuery},
    },
    http::{ApiResult, Json, Query},
};

/// Look at a file or directory
#[utoipa::path(
    get,
    path = "/fs/file_info",
    operation_id = "file_info",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = FileInfo),
        (status = 400, body = ErrorBody, description = "not an absolute path"),
        (status = 403, body = ErrorBody, description = "it may not be seen"),
        (status = 404, body = ErrorBody, description = "there is nothing of that name"),
    )
)]
pub async fn file_info(Query(query): Query<PathQuery>) -> ApiResult<Json<FileInfo>> {
    let info = blocking_on("path", move || files::info(query.path.as_path())).await?;
    Ok(Json(info))
}
