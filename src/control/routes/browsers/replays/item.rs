//! `/browsers/{id}/replays/{replay_id}`.

use axum::{extract::Request, response::Response};
use http::StatusCode;

use super::{ReplayContext, TAG, lost, not_ready};
use crate::{
    api::{Binary, ErrorBody, ids::ReplayId},
    control::{
        browsers::BrowserError,
        proxy::{ProxyError, SessionPath},
        replays::state::State,
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
        ("Range" = Option<String>, Header, description = "The part to return", example = "bytes=0-1048575"),
        ("If-Range" = Option<String>, Header, description = "The entity tag that `Range` applies to; of another version the whole is returned", example = "\"rep_01kgc3v7e8r9t0w1x2y3z4a5b6\""),
        ("If-None-Match" = Option<String>, Header, description = "The entity tag of the client's copy", example = "\"rep_01kgc3v7e8r9t0w1x2y3z4a5b6\""),
    ),
    responses(
        (status = 200, body = inline(Binary), content_type = "video/mp4", headers(("Content-Disposition" = String, description = "A file name for the video"))),
        (status = 202, description = "The replay is still being recorded or stored; repeat the request after `Retry-After` seconds"),
        (status = 206, body = inline(Binary), content_type = "video/mp4", headers(("Content-Disposition" = String, description = "A file name for the video"))),
        (status = 304, description = "The client's copy is current"),
        (status = 410, body = ErrorBody, description = "The recording is lost"),
        (status = 416, body = ErrorBody, description = "The range is not satisfiable"),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting, or the replay storage is not available"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn get(
    context: ReplayContext,
    Path((id, replay)): Path<(String, ReplayId)>,
    request: Request,
) -> ApiResult<Response> {
    let (browser, row) = context.find_replay(&id, &replay).await?;
    let headers = request.headers().clone();
    match row.state {
        State::Stored => return context.file(&replay, &headers).await,
        State::Lost => return Err(lost(&row)),
        State::Recording | State::Finished if !browser.is_active => return Ok(not_ready()),
        State::Recording | State::Finished => {}
    }
    let session = match context.forwarder.session(&id).await {
        Ok(session) => session,
        // The browser has ended since it was found.
        Err(BrowserError::NotFound) => return Ok(not_ready()),
        Err(error) => return Err(error.into()),
    };
    let path = format!("/replays/{replay}");
    let path = SessionPath::internal(&path);
    let forwarded = context.forwarder.try_forward(&session, path, request);
    let response = match forwarded.await {
        Ok(response) => response,
        // The replay outlives it.
        Err(ProxyError::BrowserEnded) => return Ok(not_ready()),
        Err(error) => return Err(error.into()),
    };
    if response.status() != StatusCode::NOT_FOUND {
        return Ok(response);
    }
    // The replay has been fetched since its row was read, or is about to be found lost.
    let found = context
        .replays
        .find(context.project(), &browser.id, &replay);
    let row = found.await?;
    match row.state {
        State::Stored => context.file(&replay, &headers).await,
        State::Lost => Err(lost(&row)),
        State::Recording | State::Finished => {
            session.replays_changed.notify_one();
            Ok(not_ready())
        }
    }
}
