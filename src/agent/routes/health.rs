//! `GET /health`

use axum::extract::State;

use super::chromium::describe;
use crate::{
    agent::{Agent, chromium::DisplayStatus},
    api::agent::{self, Health},
    http::Json,
};

/// What is up
#[utoipa::path(get, path = "/health", tag = crate::api::groups::SERVER, responses((status = 200, body = Health)))]
pub async fn health(State(agent): State<Agent>) -> Json<Health> {
    let status = agent.chromium.status();
    let (state, name, pid) = match &status.display {
        DisplayStatus::Headless => ("headless", None, None),
        DisplayStatus::Down => ("down", None, None),
        DisplayStatus::Up { name, pid, .. } => ("up", Some(name.to_string()), Some(*pid)),
    };
    Json(Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: agent.started_at.elapsed().as_secs(),
        chromium: describe(&status),
        display: agent::DisplayStatus {
            state: state.to_owned(),
            name,
            pid,
            viewport: status.viewport,
        },
    })
}
