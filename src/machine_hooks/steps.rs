//! The order of what the hooks do.
//!
//! ```text
//! prepare: the agent is ready ──▶ network off ──▶ file systems written
//! resumed: clock ──▶ random numbers ──▶ machine id ──▶ agent: processes, key ──▶ network on
//! ```
//!
//! Before the network is on, everything is replaced that must not be the same on two machines.

use std::{io, path::PathBuf, sync::Arc};

use tokio::{sync::Mutex, task::spawn_blocking};

use super::agent;
use crate::{
    api::suspend::{AgentHook, AgentHookAnswer, Prepared, Resume, Resumed},
    shutdown::Shutdown,
    system::machine::{clock, identity, network, random},
};

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HookError {
    /// No snapshot may be taken of the machine, or it was resumed before.
    #[error("{0}")]
    Refused(String),
    #[error("the browser is not ready yet")]
    NotReady,
    #[error("the machine has no source of random numbers: entropy is required")]
    NoEntropy,
    #[error("cannot {0}: {1}")]
    Failed(&'static str, String),
}

/// The machine and its agent. Clones share them; one hook runs at a time.
#[derive(Clone)]
pub(super) struct Machine {
    agent: Arc<Mutex<PathBuf>>,
    shutdown: Shutdown,
}

impl Machine {
    pub(super) fn new(agent: PathBuf, shutdown: Shutdown) -> Self {
        let agent = Arc::new(Mutex::new(agent));
        Self { agent, shutdown }
    }

    /// Makes the machine ready for a snapshot.
    pub(super) async fn prepare(&self) -> Result<Prepared, HookError> {
        let agent = self.agent.lock().await;
        answer_of(agent::call(&agent, &AgentHook::Prepare).await)?;
        step("disable the network", network::disable().await)?;
        let written = spawn_blocking(nix::unistd::sync).await;
        step("write the file systems", written.map_err(io::Error::other))?;
        Ok(Prepared { prepared: true })
    }

    /// Makes a resumed machine another one than those of the same snapshot, and ends the hooks.
    pub(super) async fn resume(&self, resume: Resume) -> Result<Resumed, HookError> {
        let agent = self.agent.lock().await;
        // Before the first change: may this machine be resumed?
        answer_of(agent::call(&agent, &AgentHook::Prepare).await)?;
        let source = step("read the source of random numbers", random::of_engine())?;
        let entropy = resume
            .entropy
            .as_ref()
            .map(|entropy| entropy.bytes().to_vec());
        let entropy: Vec<u8> = entropy.into_iter().chain(source).flatten().collect();
        if entropy.is_empty() {
            return Err(HookError::NoEntropy);
        }
        step("set the clock", clock::set(resume.time.0))?;
        step("add random numbers", random::reseed(&entropy))?;
        step("write the machine id", identity::renew())?;
        let hook = AgentHook::Resumed {
            join_token: resume.join_token.expose().to_owned(),
            advertise: resume.advertise.map(|address| address.get()),
        };
        let AgentHookAnswer::Resumed { boot_id } = answer_of(agent::call(&agent, &hook).await)?
        else {
            return Err(HookError::Failed("resume", "unknown answer".to_owned()));
        };
        step("enable the network", network::enable().await)?;
        self.shutdown.request();
        Ok(Resumed { boot_id })
    }
}

fn step<T>(name: &'static str, result: io::Result<T>) -> Result<T, HookError> {
    result.map_err(|error| HookError::Failed(name, error.to_string()))
}

fn answer_of(answer: io::Result<AgentHookAnswer>) -> Result<AgentHookAnswer, HookError> {
    match step("call the agent", answer)? {
        AgentHookAnswer::Refused { reason } => Err(HookError::Refused(reason)),
        AgentHookAnswer::NotReady => Err(HookError::NotReady),
        AgentHookAnswer::Failed { reason } => Err(HookError::Failed("resume", reason)),
        answer => Ok(answer),
    }
}
