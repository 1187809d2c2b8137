use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;

use super::{TAG, ask, found, show};
use crate::{
    api::{ErrorBody, ids::ReplayId, replays::Replay},
    control::{
        Control,
        routes::{auth::Principal, public_base_url::PublicBaseUrl},
    },
    http::{ApiError, ApiResult, Json, Path},
    request_scope::inherit,
};

/// Stop a replay
///
/// Ends the recording, and answers once it can be played. A replay that has already ended is
/// returned unchanged.
#[utoipa::path(
    post,
    path = "/browsers/{id}/replays/{replay_id}/stop",
    operation_id = "stop_replay",
    tag = TAG,
    params(
        ("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ("replay_id" = ReplayId, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6"),
    ),
    responses(
        (status = 200, body = Replay),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
    )
)]
pub async fn stop(
    State(control): State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    Path((id, replay)): Path<(String, ReplayId)>,
    request: Request,
) -> ApiResult<Response> {
    let (browser, row) = found(&control, &principal, &id, &replay).await?;
    if !(browser.lives && row.state.is_open()) {
        return Ok(Json(show(&control, &base_url, row)).into_response());
    }
    let session = control.browsers.session(&principal.project, &id).await?;
    let tasks = control.shutdown.clone();
    let stopping = tasks.spawn(inherit(async move {
        let path = format!("/replays/{replay}/stop");
        let ok = StatusCode::OK;
        let row = match ask(&control, &principal, &session, &path, ok, request).await? {
            Ok(row) => row,
            Err(answer) if answer.status() != StatusCode::NOT_FOUND => return Ok(answer),
            Err(answer) => {
                let again = control
                    .replays
                    .find(&principal.project, &session.id, &replay);
                let row = again.await?;
                if row.state.is_open() {
                    return Ok(answer);
                }
                // It has been fetched in this moment.
                row
            }
        };
        Ok(Json(show(&control, &base_url, row)).into_response())
    }));
    let stopped = stopping.await;
    stopped.map_err(|error| ApiError::internal(error).permanent())?
}
