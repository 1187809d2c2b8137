//! `GET /process/{process_id}/status`.

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::process::Processes,
    api::{
        ErrorBody,
        ids::ProcessId,
        process::{ProcessState, ProcessStatus},
    },
    http::{ApiError, ApiResult, Json, Path},
};

/// Get the status of a process
///
/// CPU and memory are sums over the session of the process: itself and everything that it started,
/// except processes that have started a session themselves.
#[utoipa::path(
    get,
    path = "/process/{process_id}/status",
    operation_id = "get_process_status",
    tag = TAG,
    params(("process_id" = ProcessId, Path, description = "The id of the process", example = "3f0c6a52-9d1e-4b7a-8c55-6f2d1e0b9a47")),
    responses(
        (status = 200, body = ProcessStatus),
        (status = 404, body = ErrorBody, description = "The process does not exist"),
    )
)]
pub(crate) async fn status(
    State(processes): State<Processes>,
    Path(id): Path<ProcessId>,
) -> ApiResult<Json<ProcessStatus>> {
    let process = find(&processes, &id)?;
    let status = process.status().await.map_err(ApiError::internal)?;
    Ok(Json(ProcessStatus {
        state: match status.exit_code {
            Some(_) => ProcessState::Exited,
            None => ProcessState::Running,
        },
        exit_code: status.exit_code,
        cpu_pct: status.cpu_percent,
        mem_bytes: status.resident_bytes,
    }))
}
