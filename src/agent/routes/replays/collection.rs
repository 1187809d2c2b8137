//! `GET /replays`, `POST /replays`

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        replays::{Replay, ReplayRequest},
    },
    http::{ApiResult, Json},
};

/// List recordings
///
/// All there are, in the order in which they were started, those that earlier agents have left as well.
#[utoipa::path(
    get,
    path = "/replays",
    operation_id = "list_replays",
    tag = TAG,
    responses((status = 200, body = Vec<Replay>))
)]
pub async fn list(State(agent): State<Agent>) -> Json<Vec<Replay>> {
    Json(agent.replays.list())
}

/// Record the screen
///
/// The recording plays up to where it is whatever happens to it: `end_reason` says what did. It shows what the screen shows, the cursor included where that is
/// shown, with a frame when something has changed, once more a second later, and every five seconds else. It keeps the size it begins with; a screen that has another one meanwhile is seen
/// in the middle, made smaller where it has to be. One that goes is waited for, for 10 seconds, and the next one is recorded.
#[utoipa::path(
    post,
    path = "/replays",
    operation_id = "start_replay",
    tag = TAG,
    request_body = ReplayRequest,
    responses(
        (status = 201, body = Replay),
        (status = 400, body = ErrorBody, description = "out of bounds"),
        (status = 409, body = ErrorBody, description = "`no_display`: this browser runs without one; `no_audio`: there is no sound server; `no_encoder`: there is no ffmpeg"),
        (status = 429, body = ErrorBody, description = "two are being recorded, or those that are kept leave no room"),
        (status = 503, body = ErrorBody, description = "the display is not up, or the agent is being stopped"),
    )
)]
pub async fn start(
    State(agent): State<Agent>,
    Json(request): Json<ReplayRequest>,
) -> ApiResult<(StatusCode, Json<Replay>)> {
    let replay = agent.replays.record(request).await?;
    Ok((StatusCode::CREATED, Json(replay)))
}
