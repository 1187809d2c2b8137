//! `/browsers/{id}/replays/{replay_id}/stop`.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::StatusCode;

use super::{ReplayContext, TAG};
use crate::{
    api::{ErrorBody, ids::ReplayId, replays::Replay},
    http::{ApiError, ApiResult, Json, Path},
    request_scope::inherit,
};

/// Stop a replay
///
/// Ends the recording, and responds once it can be played. A replay that has already ended is
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
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn stop(
    context: ReplayContext,
    Path((id, replay)): Path<(String, ReplayId)>,
    request: Request,
) -> ApiResult<Response> {
    let (browser, row) = context.find_replay(&id, &replay).await?;
    if !(browser.is_active && row.state.is_open()) {
        return Ok(Json(context.to_replay(row)).into_response());
    }
    let session = context.forwarder.session(&id).await?;
    let shutdown = context.shutdown.clone();
    let task = shutdown.spawn(inherit(async move {
        let path = format!("/replays/{replay}/stop");
        let stopped = context
            .forward_and_record(&session, &path, StatusCode::OK, request)
            .await?;
        let row = match stopped {
            Ok(row) => row,
            Err(response) if response.status() != StatusCode::NOT_FOUND => return Ok(response),
            Err(response) => {
                let found = context
                    .replays
                    .find(context.project(), &session.id, &replay);
                let row = found.await?;
                if row.state.is_open() {
                    return Ok(response);
                }
                // The replay has been fetched since its row was read.
                row
            }
        };
        Ok(Json(context.to_replay(row)).into_response())
    }));
    task.await
        .map_err(|error| ApiError::internal(error).permanent())?
}
