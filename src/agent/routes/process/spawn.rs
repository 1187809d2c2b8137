//! `POST /process/spawn`

use axum::extract::State;
use http::StatusCode;

use super::{TAG, display};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        process::{SpawnRequest, Spawned},
    },
    http::{ApiResult, Json},
};

/// Start a process
///
/// It leads a session of its own, with a terminal or without, and ends with the agent. Its environment has `PATH`, `HOME`, `USER`,
/// `LOGNAME`, `SHELL`, language and time zone, `DISPLAY` where the browser has a screen, `TERM` where it has a terminal, and what
/// `env` says. `XAUTHORITY` lets the agent's own user onto the screen; another one is let onto it by name, with all of that user's
/// programs, until the screen is started again. Its newest output is kept, 4 MiB of it, whether it is read or not. A process that has
/// exited can be asked about for two minutes, or until 1024 others have exited, or 128 MiB of output are kept of those that have.
#[utoipa::path(
    post,
    path = "/process/spawn",
    operation_id = "spawn_process",
    tag = TAG,
    request_body = SpawnRequest,
    responses(
        (status = 201, body = Spawned),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, no such program, directory or user"),
        (status = 403, body = ErrorBody, description = "the agent may not run programs as that user"),
        (status = 429, body = ErrorBody, description = "256 processes run"),
        (status = 503, body = ErrorBody, description = "the system has no room for another process"),
    )
)]
pub async fn spawn(
    State(agent): State<Agent>,
    Json(request): Json<SpawnRequest>,
) -> ApiResult<(StatusCode, Json<Spawned>)> {
    let process = agent.processes.spawn(request, display(&agent)).await?;
    let spawned = Spawned {
        process_id: process.id,
        pid: process.pid(),
        started_at: process.started_at.into(),
    };
    Ok((StatusCode::CREATED, Json(spawned)))
}
