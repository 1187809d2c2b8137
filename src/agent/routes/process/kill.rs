//! `POST /process/{process_id}/kill`

use axum::extract::State;

use super::{TAG, find};
use crate::{
    agent::Agent,
    api::{ErrorBody, agent::Done, ids::ProcessId, process::KillRequest},
    http::{ApiResult, Json, Path},
};

/// Signal a process and all it has started
///
/// `KILL` finds what has left its session and outlived its parents as well, by its environment, and answers when nothing is left; only what
/// has left session and parents and cleared its environment gets away. `TERM` and `HUP` wake what is stopped. What a process that has
/// exited has left behind can still be signalled.
#[utoipa::path(
    post,
    path = "/process/{process_id}/kill",
    operation_id = "kill_process",
    tag = TAG,
    params(("process_id" = ProcessId, Path)),
    request_body = KillRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "another signal"),
        (status = 404, body = ErrorBody, description = "there is no such process"),
        (status = 503, body = ErrorBody, description = "something has not died within five seconds of `KILL`; it goes on being killed"),
    )
)]
pub async fn kill(
    State(agent): State<Agent>,
    Path(id): Path<ProcessId>,
    Json(request): Json<KillRequest>,
) -> ApiResult<Json<Done>> {
    let process = find(&agent, &id)?;
    let signal = request.signal.unwrap_or_default();
    process.signal(signal).await?;
    Ok(Json(Done { ok: true }))
}
