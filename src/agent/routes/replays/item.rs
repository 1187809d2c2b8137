//! `GET /replays/{replay_id}` and `DELETE /replays/{replay_id}`.

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};

use super::{TAG, video};
use crate::{
    agent::replays::Replays,
    api::{Binary, ErrorBody, ids::ReplayId},
    http::{ApiError, ApiResult, Path},
};

/// Download a replay
///
/// An MP4 video with H.264. It never changes, and supports range requests.
#[utoipa::path(
    get,
    path = "/replays/{replay_id}",
    operation_id = "download_replay",
    tag = TAG,
    params(
        ("replay_id" = ReplayId, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ("Range" = Option<String>, Header, description = "The part to return", example = "bytes=0-1048575"),
        ("If-Range" = Option<String>, Header, description = "The entity tag that `Range` applies to; of another version the whole is returned", example = "\"rep_01kgc3v7e8r9t0w1x2y3z4a5b6\""),
        ("If-None-Match" = Option<String>, Header, description = "The entity tag of the client's copy", example = "\"rep_01kgc3v7e8r9t0w1x2y3z4a5b6\""),
    ),
    responses(
        (status = 200, body = inline(Binary), content_type = "video/mp4"),
        (status = 202, description = "The replay is still being recorded; repeat the request after `Retry-After` seconds"),
        (status = 206, body = inline(Binary), content_type = "video/mp4"),
        (status = 304, description = "The client's copy is current"),
        (status = 404, body = ErrorBody, description = "The replay does not exist, or nothing was recorded"),
        (status = 416, body = ErrorBody, description = "The range is not satisfiable"),
    )
)]
pub(crate) async fn download(
    State(replays): State<Replays>,
    Path(id): Path<ReplayId>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    video::respond(replays.stored().clone(), id, &headers).await
}

/// Delete a replay
#[utoipa::path(
    delete,
    path = "/replays/{replay_id}",
    operation_id = "delete_replay",
    tag = TAG,
    params(("replay_id" = String, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The replay is deleted"),
        (status = 404, body = ErrorBody, description = "The replay does not exist"),
        (status = 409, body = ErrorBody, description = "The replay is still being recorded"),
    )
)]
pub(crate) async fn delete(
    State(replays): State<Replays>,
    Path(id): Path<ReplayId>,
) -> ApiResult<StatusCode> {
    let deleted = tokio::task::spawn_blocking(move || replays.stored().delete(&id));
    deleted.await.map_err(ApiError::internal)??;
    Ok(StatusCode::NO_CONTENT)
}
