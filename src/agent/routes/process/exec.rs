//! `POST /process/exec`

use axum::extract::State;

use super::{TAG, display};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        process::{Base64, ExecResponse, Launch},
    },
    http::{ApiResult, Json},
};

/// Run a program to its end
///
/// As `/process/spawn` starts it, with nothing to read. All that it has started ends with it, or when the client goes away. Of each of its outputs
/// the first 10 MiB are kept. Programs that outlive it and hold its output open are waited for half a second. Through control, an answer
/// that takes more than 15 minutes is given up.
#[utoipa::path(
    post,
    path = "/process/exec",
    operation_id = "exec_process",
    tag = TAG,
    request_body = Launch,
    responses(
        (status = 200, body = ExecResponse),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, no such program, directory or user"),
        (status = 403, body = ErrorBody, description = "the agent may not run programs as that user"),
        (status = 429, body = ErrorBody, description = "256 processes run"),
        (status = 503, body = ErrorBody, description = "the system has no room for another process"),
    )
)]
pub async fn exec(
    State(agent): State<Agent>,
    Json(request): Json<Launch>,
) -> ApiResult<Json<ExecResponse>> {
    let execution = agent.processes.exec(request, display(&agent)).await?;
    Ok(Json(ExecResponse {
        exit_code: execution.exit_code,
        stdout_b64: Base64(execution.stdout.data),
        stderr_b64: Base64(execution.stderr.data),
        stdout_truncated: execution.stdout.is_cut,
        stderr_truncated: execution.stderr.is_cut,
        duration_ms: u64::try_from(execution.took.as_millis()).unwrap_or(u64::MAX),
    }))
}
