//! `POST /replays/{replay_id}/stop`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::Agent,
    api::{ErrorBody, ids::ReplayId, replays::Replay},
    http::{ApiResult, Json, Path},
};

/// End a recording
///
/// Answered once it can be played. One that has ended is told as it is.
#[utoipa::path(
    post,
    path = "/replays/{replay_id}/stop",
    operation_id = "stop_replay",
    tag = TAG,
    params(("replay_id" = String, Path)),
    responses(
        (status = 200, body = Replay),
        (status = 404, body = ErrorBody, description = "there is no such replay"),
    )
)]
pub async fn stop(State(agent): State<Agent>, Path(id): Path<ReplayId>) -> ApiResult<Json<Replay>> {
    Ok(Json(agent.replays.stop(&id).await?))
}
