//! `PUT /fs/write_file`

use axum::extract::State;
use futures::StreamExt;
use http::StatusCode;

use super::{TAG, blocking_on, receive::Receiving};
use crate::{
    agent::{Agent, fs::atomic_file::AtomicFile},
    api::{ErrorBody, agent::Done, fs::WriteQuery},
    http::{ApiResult, Json, Query, RawBody},
};

/// Write a file
///
/// The body is the file's content, 64 GiB at most. The file appears or changes in one step once all of it is there; a request that
/// breaks off, or stands still for 30 seconds, changes nothing. Where the path is a symbolic link, what it leads to is
/// written, or made where there is nothing; the link stays.
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
        (status = 408, body = ErrorBody, description = "nothing more of the body came for 30 seconds"),
        (status = 413, body = ErrorBody, description = "over 64 GiB, or more than the disk takes"),
    )
)]
pub async fn write_file(
    State(agent): State<Agent>,
    Query(query): Query<WriteQuery>,
    mut body: RawBody,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let (target, file) = blocking_on("path", move || {
        let mut target = AtomicFile::new(query.path.as_path(), query.mode, &agent.temp_files)?;
        let file = target.file().try_clone()?;
        Ok((target, file))
    })
    .await?;
    let mut receiving = Receiving::new(file, "path");
    while let Some(chunk) = body.next().await {
        receiving.write(&chunk?).await?;
    }
    receiving.finish().await?;
    blocking_on("path", move || target.publish()).await?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}
