//! The routes of the hooks.

use std::time::Duration;

use axum::{Router, extract::State};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::steps::{HookError, Machine};
use crate::{
    api::{
        ErrorBody, groups,
        suspend::{Prepared, Resume, Resumed},
    },
    http::{ApiError, ApiInfo, ApiResult, App, Json, Metrics},
};

const API_INFO: ApiInfo = ApiInfo {
    title: "Berth machine hooks",
    description: "The requests of the engine of a machine before it takes a snapshot, and to each \
        machine that it resumes.",
    bearer: "None: the socket is for root of the machine, and the port for its engine.",
    guard_errors: &[],
    session_routes: None,
};
/// The delay before the engine asks again whether the browser is ready.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Returns the router of the hooks.
pub(super) fn router(machine: Machine) -> Router {
    let routes = OpenApiRouter::new()
        .routes(routes!(prepare))
        .routes(routes!(resumed));
    let app = App {
        info: API_INFO,
        open: routes.with_state(machine),
        guarded: OpenApiRouter::new(),
        is_behind_control: false,
    };
    app.router(Metrics::install(), |guarded| guarded)
}

/// Prepare for a snapshot
///
/// Responds when the browser is ready and the network is off. The engine then takes a snapshot of
/// the machine with its memory.
#[utoipa::path(post, path = "/suspend/prepare", operation_id = "prepare_suspend", tag = groups::SERVER,
    responses(
        (status = 200, body = Prepared),
        (status = 409, body = ErrorBody, description = "The machine was resumed before"),
        (status = 503, body = ErrorBody, description = "The browser is not ready yet"),
    ))]
async fn prepare(State(machine): State<Machine>) -> ApiResult<Json<Prepared>> {
    Ok(Json(machine.prepare().await?))
}

/// Resume from a snapshot
///
/// Makes the machine another one than those of the same snapshot: sets the clock, adds random
/// numbers, replaces the machine id, the key of the host and all processes of pages and scripts.
/// Then the network is on again, and the agent registers at control.
#[utoipa::path(post, path = "/suspend/resumed", operation_id = "resumed", tag = groups::SERVER,
    request_body(content = Resume),
    responses(
        (status = 200, body = Resumed),
        (status = 409, body = ErrorBody, description = "The machine was resumed before"),
        (status = 503, body = ErrorBody, description = "The browser is not ready yet"),
    ))]
async fn resumed(
    State(machine): State<Machine>,
    Json(resume): Json<Resume>,
) -> ApiResult<Json<Resumed>> {
    Ok(Json(machine.resume(resume).await?))
}

impl From<HookError> for ApiError {
    fn from(error: HookError) -> Self {
        match error {
            HookError::Refused(_) => ApiError::conflict(error.to_string()).permanent(),
            HookError::NotReady => ApiError::unavailable(error.to_string(), RETRY_DELAY),
            HookError::NoEntropy => ApiError::bad_field("entropy", error.to_string()),
            HookError::Failed(..) => ApiError::internal(error),
        }
    }
}
