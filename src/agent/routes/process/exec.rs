//! `POST /process/exec`

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::header::CONTENT_TYPE;

use super::{TAG, display};
use crate::{
    agent::{Agent, process::MemoryReservation},
    api::{
        ErrorBody,
        process::{Base64, ExecResponse, Launch},
    },
    http::{ApiError, ApiResult, JSON_CONTENT_TYPE, Json},
};

/// Bytes of an answer beside the output.
const WITHOUT_OUTPUT: usize = 512;

/// Run a program to its end
///
/// As `/process/spawn` starts it, with nothing to read. All that it has started ends with it, or when the client goes away. Of each of its outputs
/// the first 10 MiB are kept, and of all programs that are run at once 256 MiB, until their answers are taken: where none of that is
/// left, the rest is cut in the same way. Programs that outlive it and hold its output open have half a second before they are ended;
/// what they write until then is in the answer. Through control, an answer that takes more than 15 minutes is given up.
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
pub async fn exec(State(agent): State<Agent>, Json(request): Json<Launch>) -> ApiResult<Response> {
    let execution = agent.processes.exec(request, display(&agent)).await?;
    let raw_bytes = execution.stdout.data.len() + execution.stderr.data.len();
    let answer = ExecResponse {
        exit_code: execution.exit_code,
        stdout_b64: Base64(execution.stdout.data),
        stderr_b64: Base64(execution.stderr.data),
        stdout_truncated: execution.stdout.is_truncated,
        stderr_truncated: execution.stderr.is_truncated,
        output_open: execution.is_output_open,
        duration_ms: u64::try_from(execution.duration.as_millis()).unwrap_or(u64::MAX),
    };
    let mut json = Vec::with_capacity(raw_bytes / 3 * 4 + WITHOUT_OUTPUT);
    serde_json::to_writer(&mut json, &answer).map_err(ApiError::internal)?;
    let body = Bytes::from_owner(Accounted {
        json,
        _memory: execution.memory,
    });
    Ok(([(CONTENT_TYPE, JSON_CONTENT_TYPE)], body).into_response())
}

/// An answer whose memory is given back once the client has taken it.
struct Accounted {
    json: Vec<u8>,
    _memory: MemoryReservation,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}
