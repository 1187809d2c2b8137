//! `GET /sessions/{generation}/replays`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::sessions::Sessions,
    api::{ErrorBody, replays::Replay},
    http::{ApiResult, Json, Path},
};

/// List the replays of an ended session
///
/// All replays that are not deleted yet, ordered by start time.
#[utoipa::path(
    get,
    path = "/sessions/{generation}/replays",
    operation_id = "list_replays_of_ended_session",
    tag = TAG,
    params(("generation" = u64, Path, description = "The number of the session", example = 1)),
    responses(
        (status = 200, body = Vec<Replay>),
        (status = 404, body = ErrorBody, description = "No session with this number has ended"),
    )
)]
pub(crate) async fn list(
    State(sessions): State<Sessions>,
    Path(generation): Path<u64>,
) -> ApiResult<Json<Vec<Replay>>> {
    Ok(Json(sessions.list_replays(generation)?))
}
