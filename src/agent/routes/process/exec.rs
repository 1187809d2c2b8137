//! `POST /process/exec`.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::header::CONTENT_TYPE;

use super::{TAG, display_access};
use crate::{
    agent::{
        chromium::Chromium,
        process::{MemoryReservation, Processes},
        settings::Config,
    },
    api::{
        ErrorBody,
        process::{Base64, ExecResponse, Launch},
    },
    http::{ApiError, ApiResult, JSON_CONTENT_TYPE, LargeJson},
};

/// Size limit of a request in bytes: arguments and variables of 1 MiB, escaped.
const BODY_LIMIT: usize = 2 << 20;

/// The size of a response without the output, generously.
const FIXED_RESPONSE_BYTES: usize = 512;

/// Run a program and wait for it
///
/// Starts the program as `/process/spawn` does, with an empty standard input, and returns its exit
/// code and output. Everything that it started is ended with it, or when the client disconnects.
///
/// The first 10 MiB of each output are returned, and all concurrent requests together hold up to
/// 256 MiB until their responses are sent; output beyond that is dropped (`stdout_truncated`,
/// `stderr_truncated`). Programs that outlive the program and hold its output open are ended after
/// half a second; what they write until then is included. Through the control plane, a request that
/// takes longer than 15 minutes is cancelled.
#[utoipa::path(
    post,
    path = "/process/exec",
    operation_id = "exec_process",
    tag = TAG,
    request_body(content = Launch, example = json!({"command": "uname", "args": ["-a"], "timeout_sec": 10})),
    responses(
        (status = 200, body = ExecResponse),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, or the program, directory or user does not exist"),
        (status = 403, body = ErrorBody, description = "The agent may not run programs as that user"),
        (status = 429, body = ErrorBody, description = "256 processes are running"),
        (status = 503, body = ErrorBody, description = "The system cannot start another process"),
    )
)]
pub(crate) async fn exec(
    State(processes): State<Processes>,
    State(chromium): State<Chromium>,
    State(config): State<Arc<Config>>,
    LargeJson(request): LargeJson<Launch, BODY_LIMIT>,
) -> ApiResult<Response> {
    let execution = processes
        .exec(request, display_access(&chromium, &config))
        .await?;
    let raw_bytes = execution.stdout.data.len() + execution.stderr.data.len();
    let response = ExecResponse {
        exit_code: execution.exit_code,
        stdout_b64: Base64(execution.stdout.data),
        stderr_b64: Base64(execution.stderr.data),
        stdout_truncated: execution.stdout.is_truncated,
        stderr_truncated: execution.stderr.is_truncated,
        output_open: execution.is_output_open,
        duration_ms: u64::try_from(execution.duration.as_millis()).unwrap_or(u64::MAX),
    };
    let mut json = Vec::with_capacity(raw_bytes / 3 * 4 + FIXED_RESPONSE_BYTES);
    serde_json::to_writer(&mut json, &response).map_err(ApiError::internal)?;
    let body = Bytes::from_owner(ReservedBody {
        json,
        _reservation: execution.memory,
    });
    Ok(([(CONTENT_TYPE, JSON_CONTENT_TYPE)], body).into_response())
}

/// A response body that holds its memory reservation until it has been sent.
struct ReservedBody {
    json: Vec<u8>,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for ReservedBody {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}
