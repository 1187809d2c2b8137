//! `GET /fs/read_file`.

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderValue, header};
use tokio::{fs::File, io::AsyncReadExt};
use tokio_util::io::ReaderStream;

use super::{FULL_RETRY_DELAY, TAG, blocking_on};
use crate::{
    agent::fs::{
        access::FileAccess,
        files,
        generated_reads::{GeneratedReads, MAX_GENERATED_READS},
    },
    api::{Binary, ErrorBody, fs::PathQuery},
    http::{ApiError, ApiResult, Query},
};

/// Bytes per read: large enough for few reads of the disk, small enough for many readers.
const CHUNK_SIZE: usize = 256 << 10;

/// Read a file
///
/// Returns the content of the file. If the file shrinks meanwhile, the connection is closed early;
/// data that is appended meanwhile is not sent. A file on a virtual file system ends where a read
/// would have to wait for more.
#[utoipa::path(
    get,
    path = "/fs/read_file",
    operation_id = "read_file",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = inline(Binary), content_type = "application/octet-stream", headers(("Content-Length" = u64, description = "The size of the file; absent on virtual file systems"))),
        (status = 400, body = ErrorBody, description = "The path is not absolute or not a regular file"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the file is the agent's own"),
        (status = 404, body = ErrorBody, description = "The file does not exist"),
        (status = 429, body = ErrorBody, description = "16 files on virtual file systems are being read"),
    )
)]
pub(crate) async fn read_file(
    State(access): State<FileAccess>,
    State(generated): State<GeneratedReads>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Response> {
    let opened = blocking_on("path", move || {
        files::open_regular(access.root(), query.path.as_path())
    })
    .await?;
    let length = opened.length;
    let body = match opened.is_generated {
        true => generated_body(&generated, opened.file)?,
        false => {
            let file = File::from_std(opened.file).take(length.unwrap_or(u64::MAX));
            Body::from_stream(ReaderStream::with_capacity(file, CHUNK_SIZE))
        }
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, content_type);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

fn generated_body(reads: &GeneratedReads, file: std::fs::File) -> ApiResult<Body> {
    let reading = reads.start(file).ok_or_else(|| {
        let message =
            format!("limit of reads on virtual file systems reached ({MAX_GENERATED_READS})");
        ApiError::limit_exceeded(message, FULL_RETRY_DELAY)
    })?;
    Ok(Body::from_stream(reading.into_stream()))
}
