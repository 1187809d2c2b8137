//! `POST /fs/watch` and `DELETE /fs/watch/{watch_id}`.

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    agent::fs::watches::Watches,
    api::{
        ErrorBody,
        fs::{WatchRequest, WatchResponse},
        ids::WatchId,
    },
    http::{ApiError, ApiResult, Json, Path},
};

pub(crate) mod events;

/// Watch a directory
///
/// Events are stored until they are read, up to 16 MiB. A watch without a reader for 10 minutes
/// ends.
///
/// With `recursive`, directories that are created or moved into the tree later are watched as well,
/// and their content is reported with one `CREATE` each. A directory that is moved within the tree
/// is watched under its new path before its `RENAME` is reported, which stands for all of its
/// content; changes inside it between the move and that moment may be reported under the old path,
/// or not at all. The `RENAME` of a directory that is moved out of the tree is its last event.
/// Links are not followed, and virtual file systems such as `/proc` are not watched.
///
/// All recursive watches together may watch 65,536 subdirectories. If directories that are created
/// later exceed this limit, or the system's, an `OVERFLOW` event reports that the watch is
/// incomplete.
#[utoipa::path(
    post,
    path = "/fs/watch",
    operation_id = "watch_directory",
    tag = TAG,
    request_body(content = WatchRequest, example = json!({"path": "/tmp/downloads", "recursive": true})),
    responses(
        (status = 201, body = WatchResponse),
        (status = 400, body = ErrorBody, description = "The path is not absolute, or not a readable directory"),
        (status = 403, body = ErrorBody, description = "The directory is the agent's own, or with `recursive` contains the agent's own files"),
        (status = 404, body = ErrorBody, description = "The directory does not exist"),
        (status = 429, body = ErrorBody, description = "64 directories or 65,536 subdirectories are watched, or the system's limit of inotify watches is reached"),
        (status = 503, body = ErrorBody, description = "The agent is stopping"),
    )
)]
pub(crate) async fn start(
    State(watches): State<Watches>,
    Json(request): Json<WatchRequest>,
) -> ApiResult<(StatusCode, Json<WatchResponse>)> {
    let path = request.path.as_path().to_owned();
    let recursive = request.recursive.unwrap_or_default();
    let watch_id = watches.start(path, recursive).await?;
    Ok((StatusCode::CREATED, Json(WatchResponse { watch_id })))
}

/// Stop a watch
///
/// The event streams of its readers end.
#[utoipa::path(
    delete,
    path = "/fs/watch/{watch_id}",
    operation_id = "stop_watch",
    tag = TAG,
    params(("watch_id" = String, Path, description = "The id of the watch", example = "watch_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The watch is stopped"),
        (status = 404, body = ErrorBody, description = "The watch does not exist"),
    )
)]
pub(crate) async fn stop(
    State(watches): State<Watches>,
    Path(id): Path<WatchId>,
) -> ApiResult<StatusCode> {
    if watches.stop(&id) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(watch_not_found())
    }
}

fn watch_not_found() -> ApiError {
    ApiError::not_found("no watch with that id")
}
