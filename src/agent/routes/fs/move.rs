//! `PUT /fs/move`.

use axum::extract::State;

use super::{FULL_RETRY_DELAY, TAG, blocking, file_error};
use crate::{
    agent::fs::moves::{MAX_COPIES, MoveError, Moves},
    api::{ErrorBody, agent::Done, fs::MoveRequest},
    http::{ApiError, ApiResult, Json},
};

/// Move a file or directory
///
/// An existing file at the destination is replaced. The move is atomic if both paths are on one
/// file system. To another file system the source is copied first, at most 128 levels of
/// directories, and appears at once. The copy ends when the client disconnects. Changes to the
/// source during the copy may be lost.
#[utoipa::path(
    put,
    path = "/fs/move",
    operation_id = "move_file",
    tag = TAG,
    request_body(content = MoveRequest, example = json!({"src_path": "/tmp/report.txt", "dest_path": "/tmp/archive/report.txt"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A path is not absolute, a directory would move into itself, or the destination has another type"),
        (status = 403, body = ErrorBody, description = "Permission denied, or a path leads to the agent's own files or above them, or to a directory that the agent has created for the session"),
        (status = 404, body = ErrorBody, description = "The source or the directory of the destination does not exist"),
        (status = 409, body = ErrorBody, description = "The destination is a directory that is not empty"),
        (status = 429, body = ErrorBody, description = "4 moves to another file system are in progress"),
        (status = 503, body = ErrorBody, description = "The agent is stopping; nothing was moved"),
    )
)]
pub(crate) async fn move_file(
    State(moves): State<Moves>,
    Json(request): Json<MoveRequest>,
) -> ApiResult<Json<Done>> {
    let cancel = moves.cancellation_token();
    // Dropped with this future when the client disconnects.
    let _cancel_on_drop = cancel.clone().drop_guard();
    let moved = blocking(move || {
        let (from, to) = (request.src_path.as_path(), request.dest_path.as_path());
        moves.move_path(from, to, &cancel)
    });
    moved.await?.map_err(move_error)?;
    Ok(Json(Done { ok: true }))
}

fn move_error(error: MoveError) -> ApiError {
    match error {
        MoveError::Source(error) => file_error("src_path", error),
        MoveError::Destination(error) => file_error("dest_path", error),
        MoveError::LimitReached => {
            let message = format!("limit of moves to another file system reached ({MAX_COPIES})");
            ApiError::limit_exceeded(message, FULL_RETRY_DELAY)
        }
        MoveError::Cancelled => {
            ApiError::unavailable("the agent is shutting down", FULL_RETRY_DELAY)
        }
    }
}
