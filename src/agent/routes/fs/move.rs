//! `PUT /fs/move`

use axum::extract::State;

use super::{TAG, blocking, refusal};
use crate::{
    agent::{
        Agent,
        fs::moves::{self, MoveError},
    },
    api::{ErrorBody, agent::Done, fs::MoveRequest},
    http::{ApiResult, Json},
};

/// Move a file or directory
///
/// In one step where both paths are on one file system; to another one it is copied first and appears in one step.
#[utoipa::path(
    put,
    path = "/fs/move",
    operation_id = "move_file",
    tag = TAG,
    request_body = MoveRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "not an absolute path, a directory into itself, or over something of another kind"),
        (status = 403, body = ErrorBody, description = "it may not be moved"),
        (status = 404, body = ErrorBody, description = "there is nothing of that name, or no such directory to move it to"),
        (status = 409, body = ErrorBody, description = "a directory that is not empty has the new name"),
    )
)]
pub async fn move_file(
    State(agent): State<Agent>,
    Json(request): Json<MoveRequest>,
) -> ApiResult<Json<Done>> {
    let moving = blocking(move || {
        let (from, to) = (request.src_path.as_path(), request.dest_path.as_path());
        moves::move_path(from, to, &agent.temp_files)
    });
    match moving.await? {
        Ok(()) => Ok(Json(Done { ok: true })),
        Err(MoveError::Source(error)) => Err(refusal("src_path", error)),
        Err(MoveError::Destination(error)) => Err(refusal("dest_path", error)),
    }
}
