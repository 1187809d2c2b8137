//! `POST /automation/execute`, and its alias `POST /playwright/execute`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::automation::{Automation, Script},
    api::{
        ErrorBody,
        automation::{ExecuteRequest, ExecuteResponse, MAX_CODE},
    },
    http::{ApiError, ApiResult, Json, LargeJson},
};

/// Size limit of a request in bytes: a script of 1 MiB, escaped.
const BODY_LIMIT: usize = 2 << 20;

/// Run a script
///
/// Runs TypeScript or JavaScript, the body of an async function, in a process that is already
/// connected to the browser. `page`, `context`, `browser` and `playwright` are Playwright's
/// objects; `page` is the tab in front.
///
/// A script that throws, exceeds `timeout_sec` (60 seconds by default), exhausts its memory or
/// crashes still gets a response with status 200: `success` is false and `error` has the reason.
/// After the response the script can no longer touch the page.
///
/// With `executor`, calls of the same name share one process: they run one after the other and keep
/// their globals.
#[utoipa::path(
    post,
    path = "/automation/execute",
    operation_id = "execute_script",
    tag = TAG,
    request_body(content = ExecuteRequest, example = json!({"code": "await page.goto('https://example.com');\nreturn await page.title()", "timeout_sec": 30})),
    responses(
        (status = 200, body = ExecuteResponse),
        (status = 400, body = ErrorBody, description = "`code` is empty, or a field is out of bounds"),
        (status = 413, body = ErrorBody, description = "`code` is longer than 1 MiB, or the body is longer than 2 MiB"),
        (status = 429, body = ErrorBody, description = "The limit of concurrent scripts, or of calls that wait for the executor, is reached"),
        (status = 503, body = ErrorBody, description = "The browser is down"),
    )
)]
pub(crate) async fn execute(
    State(automation): State<Automation>,
    LargeJson(request): LargeJson<ExecuteRequest, BODY_LIMIT>,
) -> ApiResult<Json<ExecuteResponse>> {
    if request.code.len() > MAX_CODE {
        return Err(
            ApiError::payload_too_large(format!("code is longer than {MAX_CODE} bytes"))
                .detail("code", format!("has {} bytes", request.code.len())),
        );
    }
    let script = Script {
        code: request.code.into_string(),
        timeout: request.timeout_sec.unwrap_or_default().into(),
    };
    let execution = automation.execute(script, request.executor).await?;
    Ok(Json(ExecuteResponse {
        success: execution.success,
        result: execution.result,
        error: execution.error,
        stdout: execution.stdout,
        stderr: execution.stderr,
    }))
}

/// Run a script (alias)
///
/// The same as `POST /automation/execute`.
#[utoipa::path(
    post,
    path = "/playwright/execute",
    operation_id = "execute_script_alias",
    tag = TAG,
    request_body(content = ExecuteRequest, example = json!({"code": "return await page.title()"})),
    responses(
        (status = 200, body = ExecuteResponse),
        (status = 400, body = ErrorBody, description = "`code` is empty, or a field is out of bounds"),
        (status = 413, body = ErrorBody, description = "`code` is longer than 1 MiB, or the body is longer than 2 MiB"),
        (status = 429, body = ErrorBody, description = "The limit of concurrent scripts, or of calls that wait for the executor, is reached"),
        (status = 503, body = ErrorBody, description = "The browser is down"),
    )
)]
pub(crate) async fn execute_as_playwright(
    automation: State<Automation>,
    request: LargeJson<ExecuteRequest, BODY_LIMIT>,
) -> ApiResult<Json<ExecuteResponse>> {
    execute(automation, request).await
}
