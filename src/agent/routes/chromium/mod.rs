//! `GET /chromium`.

use std::time::Duration;

use axum::extract::State;

use crate::{
    agent::chromium::{BrowserState, Chromium, Status},
    api::agent::{ChromiumStatus, timestamp},
    http::Json,
};

pub(crate) mod restart;
pub(crate) mod start_url;

pub(crate) const TAG: &str = crate::api::groups::CHROMIUM;

/// The time that a change to Chromium may take, including a restart.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Get the state of Chromium
///
/// Responds immediately, whether or not Chromium is running.
#[utoipa::path(get, path = "/chromium",
    operation_id = "get_chromium_status", tag = TAG, responses((status = 200, body = ChromiumStatus)))]
pub(crate) async fn status(State(chromium): State<Chromium>) -> Json<ChromiumStatus> {
    Json(describe(&chromium.status()))
}

/// Converts a status to its wire type.
pub(crate) fn describe(status: &Status) -> ChromiumStatus {
    let devtools = status.state.devtools();
    ChromiumStatus {
        state: status.state.name().to_owned(),
        since: timestamp(status.since),
        restarts: status.restarts,
        generation: devtools.map(|devtools| devtools.generation),
        pid: devtools.map(|devtools| devtools.pid),
        uid: status.identity.uid().as_raw(),
        sandbox: status.identity.sandbox().name().to_owned(),
        sandbox_reason: status.identity.sandbox().reason().map(str::to_owned),
        version: devtools.map(|devtools| devtools.version.product.clone()),
        reason: match &status.state {
            BrowserState::Restarting { reason } => Some(reason.to_string()),
            _ => None,
        },
    }
}
