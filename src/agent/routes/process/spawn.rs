//! `POST /process/spawn`.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;

use super::{TAG, display_access};
use crate::{
    agent::{chromium::Chromium, process::Processes, settings::Config},
    api::{
        ErrorBody,
        process::{SpawnRequest, Spawned},
    },
    http::{ApiResult, Json, LargeJson},
};

/// Size limit of a request in bytes: arguments and variables of 1 MiB, escaped.
const BODY_LIMIT: usize = 2 << 20;

/// Start a process
///
/// Starts a program in the background, as the leader of a new session, with or without a terminal,
/// that ends with the agent.
///
/// Its environment has `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, language and time zone,
/// `DISPLAY` if the browser has a display, `TERM` if it has a terminal, and the variables in `env`.
/// `XAUTHORITY` gives the agent's own user access to the display. Another user is given access by
/// name, with all of that user's programs, until the display is restarted.
///
/// Isolated client processes have a user, a home directory, `/tmp`, `/var/tmp` and
/// `/dev/shm` of their own, which end with the session and which the file routes and the browser
/// share. Such a process cannot gain rights, as by `sudo`: start it with `as_root` instead.
///
/// The newest 4 MiB of its output are stored, whether or not they are read. An exited process can
/// be queried for two minutes, or until 1,024 others have exited, or until exited processes hold
/// 128 MiB of output.
#[utoipa::path(
    post,
    path = "/process/spawn",
    operation_id = "spawn_process",
    tag = TAG,
    request_body(content = SpawnRequest, example = json!({"command": "bash", "args": ["-l"], "allocate_tty": true, "rows": 24, "cols": 80})),
    responses(
        (status = 201, body = Spawned),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, or the program, directory or user does not exist"),
        (status = 403, body = ErrorBody, description = "The agent may not run programs as that user"),
        (status = 429, body = ErrorBody, description = "256 processes are running"),
        (status = 503, body = ErrorBody, description = "The system cannot start another process"),
    )
)]
pub(crate) async fn spawn(
    State(processes): State<Processes>,
    State(chromium): State<Chromium>,
    State(config): State<Arc<Config>>,
    LargeJson(request): LargeJson<SpawnRequest, BODY_LIMIT>,
) -> ApiResult<(StatusCode, Json<Spawned>)> {
    let process = processes
        .spawn(request, display_access(&chromium, &config))
        .await?;
    let spawned = Spawned {
        process_id: process.id,
        pid: process.pid(),
        started_at: process.started_at.into(),
    };
    Ok((StatusCode::CREATED, Json(spawned)))
}
