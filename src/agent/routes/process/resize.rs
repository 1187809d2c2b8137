//! `POST /process/{process_id}/resize`.

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::process::Processes,
    api::{ErrorBody, agent::Done, ids::ProcessId, process::ResizeRequest},
    http::{ApiResult, Json, Path},
    system::process::pty::TerminalSize,
};

/// Resize the terminal of a process
///
/// Programs on the terminal receive `SIGWINCH`.
#[utoipa::path(
    post,
    path = "/process/{process_id}/resize",
    operation_id = "resize_process",
    tag = TAG,
    params(("process_id" = ProcessId, Path, description = "The id of the process", example = "3f0c6a52-9d1e-4b7a-8c55-6f2d1e0b9a47")),
    request_body(content = ResizeRequest, example = json!({"rows": 40, "cols": 120})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The size is out of bounds, or the process has no terminal"),
        (status = 404, body = ErrorBody, description = "The process does not exist"),
        (status = 409, body = ErrorBody, description = "The process has exited"),
    )
)]
pub(crate) async fn resize(
    State(processes): State<Processes>,
    Path(id): Path<ProcessId>,
    Json(request): Json<ResizeRequest>,
) -> ApiResult<Json<Done>> {
    find(&processes, &id)?.resize(TerminalSize {
        rows: request.rows.get(),
        cols: request.cols.get(),
    })?;
    Ok(Json(Done { ok: true }))
}
