//! `POST /process/{process_id}/resize`

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::Agent,
    api::{ErrorBody, agent::Done, ids::ProcessId, process::ResizeRequest},
    http::{ApiResult, Json, Path},
    system::process::pty::TerminalSize,
};

/// Resize a process's terminal
#[utoipa::path(
    post,
    path = "/process/{process_id}/resize",
    operation_id = "resize_process",
    tag = TAG,
    params(("process_id" = ProcessId, Path)),
    request_body = ResizeRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a size out of its bounds, or the process has no terminal"),
        (status = 404, body = ErrorBody, description = "there is no such process"),
        (status = 409, body = ErrorBody, description = "it has exited"),
    )
)]
pub async fn resize(
    State(agent): State<Agent>,
    Path(id): Path<ProcessId>,
    Json(request): Json<ResizeRequest>,
) -> ApiResult<Json<Done>> {
    find(&agent, &id)?.resize(TerminalSize {
        rows: request.rows.get(),
        cols: request.cols.get(),
    })?;
    Ok(Json(Done { ok: true }))
}
