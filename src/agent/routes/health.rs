//! `GET /health`.

use std::{path::PathBuf, time::Instant};

use axum::extract::{FromRef, State};

use super::chromium::describe;
use crate::{
    agent::{
        Agent,
        chromium::{Chromium, DisplayStatus},
        machine_problems,
    },
    api::{
        agent::{self, Health, MemoryStatus},
        groups,
    },
    http::Json,
    system::process::memory::MachineMemory,
};

/// The services that the health of the agent is read from.
#[derive(Clone)]
pub(crate) struct AgentStatus {
    chromium: Chromium,
    state_dir: PathBuf,
    started_at: Instant,
}

impl FromRef<Agent> for AgentStatus {
    fn from_ref(agent: &Agent) -> Self {
        AgentStatus {
            chromium: agent.chromium.clone(),
            state_dir: agent.config.state_dir.root().to_owned(),
            started_at: agent.started_at,
        }
    }
}

/// Get the health of the agent
///
/// Returns the state of the agent, of Chromium and of the display. The agent responds even before
/// its browser is up.
#[utoipa::path(get, path = "/health", operation_id = "get_health", tag = groups::SERVER, responses((status = 200, body = Health)))]
pub(crate) async fn health(State(status): State<AgentStatus>) -> Json<Health> {
    let AgentStatus {
        chromium,
        state_dir,
        started_at,
    } = status;
    let status = chromium.status();
    let memory = MachineMemory::read().ok();
    let (state, name, pid) = match &status.display {
        DisplayStatus::Headless => ("headless", None, None),
        DisplayStatus::Down => ("down", None, None),
        DisplayStatus::Up { name, pid, .. } => ("up", Some(name.to_string()), Some(*pid)),
    };
    Json(Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: started_at.elapsed().as_secs(),
        uptime_ms: u64::try_from(started_at.elapsed().as_millis()).ok(),
        chromium: describe(&status),
        display: agent::DisplayStatus {
            state: state.to_owned(),
            name,
            pid,
            viewport: status.viewport,
        },
        memory: memory.map(|memory| MemoryStatus {
            total_bytes: memory.total,
            available_bytes: memory.available,
        }),
        problems: machine_problems::find(&state_dir, memory)
            .iter()
            .map(ToString::to_string)
            .collect(),
    })
}
