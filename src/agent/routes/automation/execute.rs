//! `POST /automation/execute`, and `/playwright/execute`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::{Agent, automation::Script},
    api::{
        ErrorBody,
        automation::{ExecuteRequest, ExecuteResponse, MAX_CODE},
    },
    http::{ApiError, ApiResult, Json},
};

/// Run TypeScript in the browser
///
/// A script that throws, times out, exhausts its memory or crashes is `success: false` with the reason in `error`.
/// It cannot touch the page after the answer.
#[utoipa::path(
    post,
    path = "/automation/execute",
    operation_id = "execute",
    tag = TAG,
    request_body = ExecuteRequest,
    responses(
        (status = 200, body = ExecuteResponse),
        (status = 400, body = ErrorBody, description = "no code, or a field out of its bounds"),
        (status = 413, body = ErrorBody, description = "code over 1 MiB, or a body over 10 MiB"),
        (status = 429, body = ErrorBody, description = "as many scripts as may run at once are running, or as many calls as may wait for the executor are waiting"),
        (status = 503, body = ErrorBody, description = "the browser is down"),
    )
)]
pub async fn execute(
    State(agent): State<Agent>,
    Json(request): Json<ExecuteRequest>,
) -> ApiResult<Json<ExecuteResponse>> {
    if request.code.len() > MAX_CODE {
        return Err(
            ApiError::payload_too_large(format!("code may have {MAX_CODE} bytes at most"))
                .detail("code", format!("has {} bytes", request.code.len())),
        );
    }
    let script = Script {
        code: request.code.into_string(),
        timeout: request.timeout_sec.unwrap_or_default().into(),
    };
    let execution = agent.automation.execute(script, request.executor).await?;
    Ok(Json(ExecuteResponse {
        success: execution.success,
        result: execution.result,
        error: execution.error,
        stdout: execution.stdout,
        stderr: execution.stderr,
    }))
}

/// Run TypeScript in the browser
///
/// Another name of `/automation/execute`.
#[utoipa::path(
    post,
    path = "/playwright/execute",
    operation_id = "execute_as_playwright",
    tag = TAG,
    request_body = ExecuteRequest,
    responses((status = 200, body = ExecuteResponse), (status = "default", body = ErrorBody))
)]
pub async fn execute_as_playwright(
    agent: State<Agent>,
    request: Json<ExecuteRequest>,
) -> ApiResult<Json<ExecuteResponse>> {
    execute(agent, request).await
}
