use axum::{
    extract::{Request, State},
    response::Response,
};
use http::StatusCode;

use super::{TAG, file, found, lost, not_yet};
use crate::{
    api::{ErrorBody, ids::ReplayId},
    control::{
        Control,
        browsers::BrowserError,
        proxy::SessionPath,
        replays::state::State as Where,
        routes::{auth::Principal, browsers::session::agent},
    },
    http::{ApiResult, Path},
};

/// Download a replay
///
/// An MP4 video with H.264. It never changes. Supports range and conditional requests (`Range`,
/// `If-Range`, `If-None-Match`).
#[utoipa::path(
    get,
    path = "/browsers/{id}/replays/{replay_id}",
    operation_id = "download_replay",
    tag = TAG,
    params(
        ("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ("replay_id" = ReplayId, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "video/mp4"),
        (status = 202, description = "The replay is still being recorded or stored; repeat the request after `Retry-After` seconds"),
        (status = 206, body = Vec<u8>, content_type = "video/mp4"),
        (status = 304, description = "The client's copy is current"),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 410, body = ErrorBody, description = "The recording is lost"),
        (status = 416, body = ErrorBody, description = "The range is not satisfiable"),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
    )
)]
pub async fn get(
    State(control): State<Control>,
    principal: Principal,
    Path((id, replay)): Path<(String, ReplayId)>,
    request: Request,
) -> ApiResult<Response> {
    let (browser, row) = found(&control, &principal, &id, &replay).await?;
    let headers = request.headers().clone();
    match row.state {
        Where::Kept => return file(&control, &replay, &headers).await,
        Where::Lost => return Err(lost(&row)),
        Where::Recording | Where::Finished if !browser.lives => return Ok(not_yet()),
        Where::Recording | Where::Finished => {}
    }
    let session = match control.browsers.session(&principal.project, &id).await {
        Ok(session) => session,
        // It has ended in this moment.
        Err(BrowserError::NotFound) => return Ok(not_yet()),
        Err(error) => return Err(error.into()),
    };
    let path = format!("/replays/{replay}");
    let path = SessionPath::own(&path);
    let answer = control.proxy.pass(&agent(&session), path, request).await?;
    if answer.status() != StatusCode::NOT_FOUND {
        return Ok(answer);
    }
    // It may have been fetched in this moment, or is about to be found lost.
    let again = control
        .replays
        .find(&principal.project, &browser.id, &replay);
    let row = again.await?;
    match row.state {
        Where::Kept => file(&control, &replay, &headers).await,
        Where::Lost => Err(lost(&row)),
        Where::Recording | Where::Finished => {
            session.replays_changed.notify_one();
            Ok(not_yet())
        }
    }
}
