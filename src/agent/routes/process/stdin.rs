//! `POST /process/{process_id}/stdin`.

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::process::Processes,
    api::{
        ErrorBody,
        ids::ProcessId,
        process::{StdinRequest, StdinWritten},
    },
    http::{ApiError, ApiResult, Json, LargeJson, Path},
};

/// Size limit of a request in bytes: 1 MiB in base64.
const BODY_LIMIT: usize = 2 << 20;

/// Write to the standard input of a process
///
/// `written_bytes` is less than the length of the data if the process does not take all of it
/// within 5 seconds. With `end`, the standard input is closed once all data is written.
#[utoipa::path(
    post,
    path = "/process/{process_id}/stdin",
    operation_id = "write_process_stdin",
    tag = TAG,
    params(("process_id" = ProcessId, Path, description = "The id of the process", example = "3f0c6a52-9d1e-4b7a-8c55-6f2d1e0b9a47")),
    request_body(content = StdinRequest, example = json!({"data_b64": "bHMgLWwK"})),
    responses(
        (status = 200, body = StdinWritten),
        (status = 400, body = ErrorBody, description = "The data is missing, is not base64, or is longer than 1 MiB"),
        (status = 404, body = ErrorBody, description = "The process does not exist"),
        (status = 409, body = ErrorBody, description = "The process has exited, or its standard input is closed"),
    )
)]
pub(crate) async fn stdin(
    State(processes): State<Processes>,
    Path(id): Path<ProcessId>,
    LargeJson(request): LargeJson<StdinRequest, BODY_LIMIT>,
) -> ApiResult<Json<StdinWritten>> {
    let process = find(&processes, &id)?;
    let is_last = request.end.unwrap_or_default();
    let data = match request.data_b64 {
        Some(data) => data.0,
        None if is_last => bytes::Bytes::new(),
        None => return Err(ApiError::bad_field("data_b64", "is required")),
    };
    let written_bytes = process.write_stdin(&data, is_last).await?;
    Ok(Json(StdinWritten { written_bytes }))
}
