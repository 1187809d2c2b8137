//! `GET /replays` and `POST /replays`.

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    agent::replays::Replays,
    api::{
        ErrorBody,
        replays::{Replay, ReplayRequest},
    },
    http::{ApiResult, Json},
};

/// List replays
///
/// All replays of the current session, including those of earlier runs of the agent, ordered by
/// start time.
#[utoipa::path(
    get,
    path = "/replays",
    operation_id = "list_replays",
    tag = TAG,
    responses((status = 200, body = Vec<Replay>))
)]
pub(crate) async fn list(State(replays): State<Replays>) -> Json<Vec<Replay>> {
    Json(replays.stored().list())
}

/// Start a replay
///
/// Starts to record the screen. A recording can be played up to its end whatever interrupts it;
/// `end_reason` names the cause. It shows what the screen shows, including the pointer if it is
/// shown. A frame is added when the screen changes, once more a second later, and every 5 seconds
/// otherwise.
///
/// The video keeps the size of the screen at the start; if the screen is resized, its image is
/// centred, and scaled down if necessary. If the screen goes away, the recording waits up to 10
/// seconds and continues with the next one.
#[utoipa::path(
    post,
    path = "/replays",
    operation_id = "start_replay",
    tag = TAG,
    request_body(content = ReplayRequest, example = json!({"framerate": 15, "max_duration_in_seconds": 600})),
    responses(
        (status = 201, body = Replay),
        (status = 400, body = ErrorBody, description = "A field is out of bounds"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display; `no_audio`: no sound server is running; `no_encoder`: ffmpeg is not installed"),
        (status = 429, body = ErrorBody, description = "Two replays are being recorded, or the stored replays reach their size limit"),
        (status = 503, body = ErrorBody, description = "The display is not running, or the agent is stopping"),
    )
)]
pub(crate) async fn start(
    State(replays): State<Replays>,
    Json(request): Json<ReplayRequest>,
) -> ApiResult<(StatusCode, Json<Replay>)> {
    let replay = replays.record(request).await?;
    Ok((StatusCode::CREATED, Json(replay)))
}
