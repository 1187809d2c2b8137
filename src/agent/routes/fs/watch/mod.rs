//! `POST /fs/watch`, `DELETE /fs/watch/{watch_id}`

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        fs::{WatchCreated, WatchRequest},
        ids::WatchId,
    },
    http::{ApiError, ApiResult, Json, Path},
};

pub mod events;

/// Watch a directory
///
/// Its events are kept until they are read, within 16 MiB. A watch that nobody reads for ten minutes ends by itself.
///
/// With `recursive`, directories that are made or moved there later are watched as well, and what was in them before is told with a
/// `CREATE` each. One that is moved within is watched anew under its new path before its `RENAME` is told, which stands for all that is
/// in it; what happens in it between the move and then may be told under its old path, or not at all. Of one that is moved away its
/// `RENAME` is the last that is told. Links are not followed, and other file
/// systems that the kernel makes up, as `/proc`, are not watched.
///
/// All recursive watches together take 65,536 directories below their own. Where directories that come later reach that limit, or the
/// system's, an `OVERFLOW` says that not all is seen.
#[utoipa::path(
    post,
    path = "/fs/watch",
    operation_id = "watch_directory",
    tag = TAG,
    request_body = WatchRequest,
    responses(
        (status = 201, body = WatchCreated),
        (status = 400, body = ErrorBody, description = "not an absolute path, or not a directory that can be read"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
        (status = 429, body = ErrorBody, description = "64 directories are watched, or 65,536 below them, or the system has no inotify watch left"),
        (status = 503, body = ErrorBody, description = "the agent is being stopped"),
    )
)]
pub async fn start(
    State(agent): State<Agent>,
    Json(request): Json<WatchRequest>,
) -> ApiResult<(StatusCode, Json<WatchCreated>)> {
    let path = request.path.as_path().to_owned();
    let recursive = request.recursive.unwrap_or_default();
    let watch_id = agent.watches.start(path, recursive).await?;
    Ok((StatusCode::CREATED, Json(WatchCreated { watch_id })))
}

/// End a watch
///
/// The streams of its readers end.
#[utoipa::path(
    delete,
    path = "/fs/watch/{watch_id}",
    operation_id = "end_watch",
    tag = TAG,
    params(("watch_id" = String, Path)),
    responses(
        (status = 204),
        (status = 404, body = ErrorBody, description = "there is no such watch"),
    )
)]
pub async fn end(State(agent): State<Agent>, Path(id): Path<WatchId>) -> ApiResult<StatusCode> {
    if agent.watches.stop(&id) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(no_watch())
    }
}

fn no_watch() -> ApiError {
    ApiError::not_found("there is no such watch")
}
