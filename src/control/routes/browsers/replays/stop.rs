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
        routes::{guard::Caller, reached::Reached},
    },
    http::{ApiError, ApiResult, Json, Path},
    request_scope::inherit,
};

/// Ends a recording; answers once it can be played
///
/// One that has ended stays as it is.
#[utoipa::path(
    post,
    path = "/browsers/{id}/replays/{replay_id}/stop",
    tag = TAG,
    params(
        ("id" = String, Path, description = "Id or name"),
        ("replay_id" = ReplayId, Path),
    ),
    responses(
        (status = 200, body = Replay),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is being started again"),
    )
)]
pub async fn stop(
    State(control): State<Control>,
    caller: Caller,
    reached: Reached,
    Path((id, replay)): Path<(String, ReplayId)>,
    request: Request,
) -> ApiResult<Response> {
    let (browser, row) = found(&control, &caller, &id, &replay).await?;
    if !(browser.lives && row.state.is_open()) {
        return Ok(Json(show(&control, &reached, row)).into_response());
    }
    let session = control.browsers.session(&caller.project, &id).await?;
    let tasks = control.shutdown.clone();
    let stopping = tasks.spawn(inherit(async move {
        let path = format!("/replays/{replay}/stop");
        let ok = StatusCode::OK;
        let row = match ask(&control, &caller, &session, &path, ok, request).await? {
            Ok(row) => row,
            Err(answer) if answer.status() != StatusCode::NOT_FOUND => return Ok(answer),
            Err(answer) => {
                let again = control.replays.find(&caller.project, &session.id, &replay);
                let row = again.await?;
                if row.state.is_open() {
                    return Ok(answer);
                }
                // It has been fetched in this moment.
                row
            }
        };
        Ok(Json(show(&control, &reached, row)).into_response())
    }));
    let stopped = stopping.await;
    stopped.map_err(|error| ApiError::internal(error).permanent())?
}
