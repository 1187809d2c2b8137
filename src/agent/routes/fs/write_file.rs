//! `PUT /fs/write_file`.

use axum::extract::State;
use futures::StreamExt;
use http::StatusCode;

use super::{TAG, blocking_on, receive::BodyWriter};
use crate::{
    agent::fs::{atomic_file::AtomicFile, temp_files::TempFileJournal},
    api::{Binary, ErrorBody, agent::Done, fs::WriteQuery},
    http::{ApiResult, Json, Query, RawBody},
};

/// Write a file
///
/// The body is the content of the file, up to 64 GiB. The file is created or replaced atomically
/// once the body is complete; a request that is interrupted, or makes no progress for 30 seconds,
/// changes nothing. The directory must exist. A symbolic link is followed: its target is written,
/// or created if it is missing. In a sticky directory such as `/tmp`, links and files of other
/// users are rejected.
#[utoipa::path(
    put,
    path = "/fs/write_file",
    operation_id = "write_file",
    tag = TAG,
    params(WriteQuery),
    request_body(content = inline(Binary), content_type = "application/octet-stream", description = "The content of the file"),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "The path is not absolute or not a regular file, or the mode is invalid"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the file is among the agent's own"),
        (status = 404, body = ErrorBody, description = "The directory does not exist; the message names the first one that is missing"),
        (status = 408, body = ErrorBody, description = "The body made no progress for 30 s"),
        (status = 413, body = ErrorBody, description = "The body exceeds 64 GiB, or the space on the disk"),
    )
)]
pub(crate) async fn write_file(
    State(temp_files): State<TempFileJournal>,
    Query(query): Query<WriteQuery>,
    mut body: RawBody,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let (target, file) = blocking_on("path", move || {
        let mut target = AtomicFile::new(query.path.as_path(), query.mode, &temp_files)?;
        let file = target.file()?.try_clone()?;
        Ok((target, file))
    })
    .await?;
    let mut writer = BodyWriter::new(file, "path");
    while let Some(chunk) = body.next().await {
        writer.write(&chunk?).await?;
    }
    writer.finish().await?;
    blocking_on("path", move || target.publish()).await?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}
