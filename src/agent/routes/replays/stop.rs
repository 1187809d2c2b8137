//! `POST /replays/{replay_id}/stop`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::replays::Replays,
    api::{ErrorBody, ids::ReplayId, replays::Replay},
    http::{ApiResult, Json, Path},
};

/// Stop a replay
///
/// Ends the recording, and responds once it can be played. A replay that has already ended is
/// returned unchanged.
#[utoipa::path(
    post,
    path = "/replays/{replay_id}/stop",
    operation_id = "stop_replay",
    tag = TAG,
    params(("replay_id" = String, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Replay),
        (status = 404, body = ErrorBody, description = "The replay does not exist"),
    )
)]
pub(crate) async fn stop(
    State(replays): State<Replays>,
    Path(id): Path<ReplayId>,
) -> ApiResult<Json<Replay>> {
    Ok(Json(replays.stop(&id).await?))
}
