//! `GET /sessions/{generation}/replays/{replay_id}` and
//! `DELETE /sessions/{generation}/replays/{replay_id}`.

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, StatusCode};

use super::TAG;
use crate::{
    agent::{
        routes::{replays::video, session_scope::being_replaced},
        sessions::Sessions,
    },
    api::{Binary, ErrorBody, ids::ReplayId},
    http::{ApiError, ApiResult, GuardedBody, Path},
};

/// Download a replay of an ended session
///
/// An MP4 video with H.264. It never changes, and supports range requests.
#[utoipa::path(
    get,
    path = "/sessions/{generation}/replays/{replay_id}",
    operation_id = "download_replay_of_ended_session",
    tag = TAG,
    params(
        ("generation" = u64, Path, description = "The number of the session", example = 1),
        ("replay_id" = ReplayId, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ("Range" = Option<String>, Header, description = "The part to return", example = "bytes=0-1048575"),
        ("If-Range" = Option<String>, Header, description = "The entity tag that `Range` applies to; of another version the whole is returned", example = "\"rep_01kgc3v7e8r9t0w1x2y3z4a5b6\""),
        ("If-None-Match" = Option<String>, Header, description = "The entity tag of the client's copy", example = "\"rep_01kgc3v7e8r9t0w1x2y3z4a5b6\""),
    ),
    responses(
        (status = 200, body = inline(Binary), content_type = "video/mp4"),
        (status = 202, description = "The replay is still being finished; repeat the request after `Retry-After` seconds"),
        (status = 206, body = inline(Binary), content_type = "video/mp4"),
        (status = 304, description = "The client's copy is current"),
        (status = 404, body = ErrorBody, description = "No session with this number has ended, it has no such replay, or nothing was recorded"),
        (status = 416, body = ErrorBody, description = "The range is not satisfiable"),
    )
)]
pub(crate) async fn download(
    State(sessions): State<Sessions>,
    Path((generation, id)): Path<(u64, ReplayId)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let guard = sessions.begin_request().ok_or_else(being_replaced)?;
    let response = video::respond(sessions.replays_of(generation)?, id, &headers).await?;
    Ok(response.map(|body| Body::new(GuardedBody::new(body, guard))))
}

/// Delete a replay of an ended session
#[utoipa::path(
    delete,
    path = "/sessions/{generation}/replays/{replay_id}",
    operation_id = "delete_replay_of_ended_session",
    tag = TAG,
    params(
        ("generation" = u64, Path, description = "The number of the session", example = 1),
        ("replay_id" = String, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6"),
    ),
    responses(
        (status = 204, description = "The replay is deleted"),
        (status = 404, body = ErrorBody, description = "No session with this number has ended, or it has no such replay"),
        (status = 409, body = ErrorBody, description = "The replay is still being finished"),
    )
)]
pub(crate) async fn delete(
    State(sessions): State<Sessions>,
    Path((generation, id)): Path<(u64, ReplayId)>,
) -> ApiResult<StatusCode> {
    let _guard = sessions.begin_request().ok_or_else(being_replaced)?;
    let deleted = tokio::task::spawn_blocking(move || sessions.delete_replay(generation, &id));
    deleted.await.map_err(ApiError::internal)??;
    Ok(StatusCode::NO_CONTENT)
}
