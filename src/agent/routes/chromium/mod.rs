//! `GET /chromium`

use std::time::Duration;

use axum::extract::State;

use crate::{
    agent::{
        Agent,
        chromium::{BrowserState, Status},
    },
    api::agent::{ChromiumStatus, timestamp},
    http::Json,
};

pub mod restart;
pub mod start_url;

pub const TAG: &str = crate::api::groups::CHROMIUM;

/// For a change to Chromium that may take a restart of it.
pub const CHANGE_DEADLINE: Duration = Duration::from_secs(60);

/// Chromium's state
#[utoipa::path(get, path = "/chromium", tag = TAG, responses((status = 200, body = ChromiumStatus)))]
pub async fn status(State(agent): State<Agent>) -> Json<ChromiumStatus> {
    Json(describe(&agent.chromium.status()))
}

pub fn describe(status: &Status) -> ChromiumStatus {
    let devtools = status.state.devtools();
    ChromiumStatus {
        state: status.state.name().to_owned(),
        since: timestamp(status.since),
        restarts: status.restarts,
        generation: devtools.map(|devtools| devtools.generation),
        pid: devtools.map(|devtools| devtools.pid),
        version: devtools.map(|devtools| devtools.version.clone()),
        reason: match &status.state {
            BrowserState::Restarting { reason } => Some(reason.to_string()),
            _ => None,
        },
    }
}
