//! `POST /process/{process_id}/kill`.

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::process::Processes,
    api::{ErrorBody, agent::Done, ids::ProcessId, process::KillRequest},
    http::{ApiResult, Json, Path},
};

/// Signal a process
///
/// Signals the process and everything that it started. The descendants of an exited process can
/// still be signalled. `TERM` and `HUP` also wake stopped processes.
///
/// `KILL` also finds processes that have left the session and outlived their parents, by a variable
/// in their environment. It responds when none remains. Only a process that has left its session,
/// outlived its parents and cleared its environment escapes.
#[utoipa::path(
    post,
    path = "/process/{process_id}/kill",
    operation_id = "kill_process",
    tag = TAG,
    params(("process_id" = ProcessId, Path, description = "The id of the process", example = "3f0c6a52-9d1e-4b7a-8c55-6f2d1e0b9a47")),
    request_body(content = KillRequest, example = json!({"signal": "TERM"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The signal is not supported"),
        (status = 404, body = ErrorBody, description = "The process does not exist"),
        (status = 503, body = ErrorBody, description = "Some processes survived `KILL` for 5 s; the agent continues to kill them"),
    )
)]
pub(crate) async fn kill(
    State(processes): State<Processes>,
    Path(id): Path<ProcessId>,
    Json(request): Json<KillRequest>,
) -> ApiResult<Json<Done>> {
    let process = find(&processes, &id)?;
    let signal = request.signal.unwrap_or_default();
    process.signal(signal).await?;
    Ok(Json(Done { ok: true }))
}
