//! `POST /process/{process_id}/stdin`

use axum::extract::State;

use super::{TAG, find, wrong};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        ids::ProcessId,
        process::{StdinRequest, StdinWritten},
    },
    http::{ApiResult, Json, Path},
};

/// Write to a process
///
/// `written_bytes` is less than what was sent where the process did not take it all within five seconds. With `end`, its standard input
/// ends once all is written.
#[utoipa::path(
    post,
    path = "/process/{process_id}/stdin",
    operation_id = "write_stdin",
    tag = TAG,
    params(("process_id" = ProcessId, Path)),
    request_body = StdinRequest,
    responses(
        (status = 200, body = StdinWritten),
        (status = 400, body = ErrorBody, description = "no data, no base64, or more than 1 MiB"),
        (status = 404, body = ErrorBody, description = "there is no such process"),
        (status = 409, body = ErrorBody, description = "it has exited, or its standard input has ended"),
    )
)]
pub async fn stdin(
    State(agent): State<Agent>,
    Path(id): Path<ProcessId>,
    Json(request): Json<StdinRequest>,
) -> ApiResult<Json<StdinWritten>> {
    let process = find(&agent, &id)?;
    let ends = request.end.unwrap_or_default();
    let data = match request.data_b64 {
        Some(data) => data.0,
        None if ends => bytes::Bytes::new(),
        None => return Err(wrong("data_b64", "is required")),
    };
    let written_bytes = process.write_stdin(&data, ends).await?;
    Ok(Json(StdinWritten { written_bytes }))
}
