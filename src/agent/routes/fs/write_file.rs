//! `PUT /fs/write_file`

use axum::body::Body;
use futures::StreamExt;
use http::StatusCode;
use tokio::{fs::File, io::AsyncWriteExt};

use super::{TAG, blocking, refusal};
use crate::{
    agent::fs::files::{Draft, FileError},
    api::{ErrorBody, agent::Done, fs::WriteQuery},
    http::{ApiError, ApiResult, Json, Query},
};

/// The longest file that is taken.
const MAX_FILE: u64 = 64 << 30;

/// Write a file
///
/// The body is the file's content, 64 GiB at most. The file appears or changes in one step once all of it is there; a request that
/// breaks off changes nothing. Where the path is a symbolic link, what it leads to is written.
#[utoipa::path(
    put,
    path = "/fs/write_file",
    operation_id = "write_file",
    tag = TAG,
    params(WriteQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "not an absolute path, something that is no regular file, or a bad mode"),
        (status = 403, body = ErrorBody, description = "it may not be written"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
        (status = 413, body = ErrorBody, description = "over 64 GiB, or more than the disk takes"),
    )
)]
pub async fn write_file(
    Query(query): Query<WriteQuery>,
    body: Body,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let (draft, file) = blocking("path", move || {
        let mut draft = Draft::new(query.path.as_path(), query.mode)?;
        let file = draft.file().try_clone()?;
        Ok((draft, file))
    })
    .await?;
    receive(body, File::from_std(file)).await?;
    blocking("path", move || draft.publish()).await?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}

async fn receive(body: Body, mut file: File) -> ApiResult<()> {
    let failed = |error: std::io::Error| refusal("path", FileError::from(error));
    let mut received = 0;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::bad_request("the body broke off"))?;
        received += chunk.len() as u64;
        if received > MAX_FILE {
            return Err(ApiError::payload_too_large(format!(
                "a file may have {MAX_FILE} bytes at most"
            )));
        }
        file.write_all(&chunk).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)
}
