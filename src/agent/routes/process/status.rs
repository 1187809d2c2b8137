//! `GET /process/{process_id}/status`

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        ids::ProcessId,
        process::{ProcessState, ProcessStatus},
    },
    http::{ApiError, ApiResult, Json, Path},
};

/// How a process is doing
///
/// The sums are over its session: itself and what it has started, but for what has begun a session of its own.
#[utoipa::path(
    get,
    path = "/process/{process_id}/status",
    operation_id = "process_status",
    tag = TAG,
    params(("process_id" = ProcessId, Path)),
    responses(
        (status = 200, body = ProcessStatus),
        (status = 404, body = ErrorBody, description = "there is no such process"),
    )
)]
pub async fn status(
    State(agent): State<Agent>,
    Path(id): Path<ProcessId>,
) -> ApiResult<Json<ProcessStatus>> {
    let process = find(&agent, &id)?;
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
