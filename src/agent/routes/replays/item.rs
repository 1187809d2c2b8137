//! `GET /replays/{replay_id}`, `DELETE /replays/{replay_id}`

use std::io::{Seek, SeekFrom};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::{fs::File, io::AsyncReadExt};
use tokio_util::io::ReaderStream;

use super::{RECORDING_RETRY, TAG};
use crate::{
    agent::{Agent, replays::ReplayError},
    api::{ErrorBody, ids::ReplayId},
    http::{ApiError, ApiResult, Path, RangedAnswer},
};

/// Read at a time.
const CHUNK: usize = 256 << 10;

/// Download a recording
///
/// An MP4 with H.264. It never changes.
#[utoipa::path(
    get,
    path = "/replays/{replay_id}",
    operation_id = "download_replay",
    tag = TAG,
    params(("replay_id" = String, Path), ("Range" = Option<String>, Header)),
    responses(
        (status = 200, body = Vec<u8>, content_type = "video/mp4"),
        (status = 202, description = "it is being recorded; `Retry-After` says when to ask again"),
        (status = 206, body = Vec<u8>, content_type = "video/mp4"),
        (status = 404, body = ErrorBody, description = "there is no such replay, or nothing of it was recorded"),
        (status = 416, body = ErrorBody, description = "the range is not in it"),
    )
)]
pub async fn download(
    State(agent): State<Agent>,
    Path(id): Path<ReplayId>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let (replays, wanted) = (agent.replays.clone(), id.clone());
    let opening = tokio::task::spawn_blocking(move || replays.open(&wanted));
    let (mut file, length) = match opening.await.map_err(ApiError::internal)? {
        Err(ReplayError::Recording) => {
            let retry = HeaderValue::from(RECORDING_RETRY.as_secs());
            return Ok((StatusCode::ACCEPTED, [(header::RETRY_AFTER, retry)]).into_response());
        }
        opened => opened?,
    };
    let etag = HeaderValue::try_from(format!("\"{id}\"")).map_err(ApiError::internal)?;
    let answer = RangedAnswer::to(&headers, length, etag);
    let body = match answer.range() {
        Some(range) => {
            file.seek(SeekFrom::Start(range.start))
                .map_err(ApiError::internal)?;
            let part = File::from_std(file).take(range.end - range.start);
            Body::from_stream(ReaderStream::with_capacity(part, CHUNK))
        }
        None => Body::empty(),
    };
    let mut response = answer.with(body);
    let kind = HeaderValue::from_static("video/mp4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Delete a recording
#[utoipa::path(
    delete,
    path = "/replays/{replay_id}",
    operation_id = "delete_replay",
    tag = TAG,
    params(("replay_id" = String, Path)),
    responses(
        (status = 204),
        (status = 404, body = ErrorBody, description = "there is no such replay"),
        (status = 409, body = ErrorBody, description = "it is being recorded"),
    )
)]
pub async fn delete(State(agent): State<Agent>, Path(id): Path<ReplayId>) -> ApiResult<StatusCode> {
    let deleting = tokio::task::spawn_blocking(move || agent.replays.delete(&id));
    deleting.await.map_err(ApiError::internal)??;
    Ok(StatusCode::NO_CONTENT)
}
