//! The response with the video of a recording.

use std::io::{Seek, SeekFrom};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::{fs::File, io::AsyncReadExt};
use tokio_util::io::ReaderStream;

use super::RECORDING_RETRY_DELAY;
use crate::{
    agent::replays::{ReplayError, StoredReplays},
    api::ids::ReplayId,
    http::{ApiError, ApiResult, RangeResponse},
};

/// Bytes per read.
const CHUNK_SIZE: usize = 256 << 10;

/// Responds with the part of a recording that a request's headers name, or with 202 if it is not
/// finished.
pub(crate) async fn respond(
    replays: StoredReplays,
    id: ReplayId,
    headers: &HeaderMap,
) -> ApiResult<Response> {
    let replay_id = id.clone();
    let opened = tokio::task::spawn_blocking(move || replays.open(&replay_id));
    let (mut file, length) = match opened.await.map_err(ApiError::internal)? {
        Err(ReplayError::Recording) => {
            let retry = HeaderValue::from(RECORDING_RETRY_DELAY.as_secs());
            return Ok((StatusCode::ACCEPTED, [(header::RETRY_AFTER, retry)]).into_response());
        }
        result => result?,
    };
    let etag = HeaderValue::try_from(format!("\"{id}\"")).map_err(ApiError::internal)?;
    let range_response = RangeResponse::new(headers, length, etag);
    let body = match range_response.range() {
        Some(range) => {
            file.seek(SeekFrom::Start(range.start))
                .map_err(ApiError::internal)?;
            let part = File::from_std(file).take(range.end - range.start);
            Body::from_stream(ReaderStream::with_capacity(part, CHUNK_SIZE))
        }
        None => Body::empty(),
    };
    let mut response = range_response.with_body(body);
    let kind = HeaderValue::from_static("video/mp4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
