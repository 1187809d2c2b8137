//! `GET /fs/read_file`

use axum::{body::Body, response::Response};
use http::{HeaderValue, header};
use tokio::{fs::File, io::AsyncReadExt};
use tokio_util::io::ReaderStream;

use super::{TAG, blocking_on};
use crate::{
    agent::fs::files,
    api::{ErrorBody, fs::PathQuery},
    http::{ApiResult, Query},
};

/// Read at a time: large enough that the disk is asked seldom, small enough that many readers cost little.
const CHUNK: usize = 256 << 10;

/// Read a file
///
/// Streamed as it is. A file that shrinks meanwhile breaks the answer off; what is added to it is not sent.
#[utoipa::path(
    get,
    path = "/fs/read_file",
    operation_id = "read_file",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 400, body = ErrorBody, description = "not an absolute path, or not a regular file"),
        (status = 403, body = ErrorBody, description = "it may not be read"),
        (status = 404, body = ErrorBody, description = "there is no such file"),
    )
)]
pub async fn read_file(Query(query): Query<PathQuery>) -> ApiResult<Response> {
    let (file, length) =
        blocking_on("path", move || files::open_regular(query.path.as_path())).await?;
    let file = File::from_std(file).take(length.unwrap_or(u64::MAX));
    let body = Body::from_stream(ReaderStream::with_capacity(file, CHUNK));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}
