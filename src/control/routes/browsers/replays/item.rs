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

/// A replay's file
///
/// In whole or in part (`Range`, `If-Range`); it does not change any more.
#[utoipa::path(
    get,
    path = "/browsers/{id}/replays/{replay_id}",
    tag = TAG,
    params(
        ("id" = String, Path, description = "Id or name"),
        ("replay_id" = ReplayId, Path),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "video/mp4"),
        (status = 202, description = "It is being recorded; `Retry-After` says when to ask again"),
        (status = 206, body = Vec<u8>, content_type = "video/mp4"),
        (status = 304, description = "The client has it"),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 410, body = ErrorBody, description = "It is lost"),
        (status = 416, body = ErrorBody, description = "The part is not there"),
        (status = 503, body = ErrorBody, description = "The browser is being started again"),
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
