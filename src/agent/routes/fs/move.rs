//! `PUT /fs/move`.

use axum::extract::State;

use super::{TAG, blocking, file_error};
use crate::{
    agent::fs::{
        moves::{self, MoveError},
        temp_files::TempFileJournal,
    },
    api::{ErrorBody, agent::Done, fs::MoveRequest},
    http::{ApiResult, Json},
};

/// Move a file or directory
///
/// An existing file at the destination is replaced. The move is atomic if both paths are on one
/// file system; to another file system the source is copied first and appears at once.
#[utoipa::path(
    put,
    path = "/fs/move",
    operation_id = "move_file",
    tag = TAG,
    request_body(content = MoveRequest, example = json!({"src_path": "/tmp/report.txt", "dest_path": "/tmp/archive/report.txt"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A path is not absolute, a directory would move into itself, or the destination has another type"),
        (status = 403, body = ErrorBody, description = "Permission denied"),
        (status = 404, body = ErrorBody, description = "The source or the directory of the destination does not exist"),
        (status = 409, body = ErrorBody, description = "The destination is a directory that is not empty"),
    )
)]
pub(crate) async fn move_file(
    State(temp_files): State<TempFileJournal>,
    Json(request): Json<MoveRequest>,
) -> ApiResult<Json<Done>> {
    let moved = blocking(move || {
        let (from, to) = (request.src_path.as_path(), request.dest_path.as_path());
        moves::move_path(from, to, &temp_files)
    });
    match moved.await? {
        Ok(()) => Ok(Json(Done { ok: true })),
        Err(MoveError::Source(error)) => Err(file_error("src_path", error)),
        Err(MoveError::Destination(error)) => Err(file_error("dest_path", error)),
    }
}
