//! The order of what the hooks do.
//!
//! ```text
//! prepare: the agent is ready ──▶ network off ──▶ file systems written
//! resumed: network off ──▶ clock ──▶ random numbers ──▶ machine id ──▶ agent: processes, key
//!          ──▶ network on
//! ```
//!
//! Before the network is on, everything is replaced that must not be the same on two machines.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::spawn_blocking, time::timeout};

use super::agent;
use crate::{
    api::suspend::{AgentHook, AgentHookAnswer, Entropy, Prepared, Resume, Resumed},
    shutdown::Shutdown,
    system::machine::{clock, identity, network, random},
};

/// The longest wait for random bytes of the engine.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(10);

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
    agent: PathBuf,
    /// The id of the run, once the agent has it.
    resumed: Arc<Mutex<Option<Resumed>>>,
    shutdown: Shutdown,
}

impl Machine {
    pub(super) fn new(agent: PathBuf, shutdown: Shutdown) -> Self {
        let resumed = Arc::default();
        Self {
            agent,
            resumed,
            shutdown,
        }
    }

    /// Makes the machine ready for a snapshot.
    pub(super) async fn prepare(&self) -> Result<Prepared, HookError> {
        let _resumed = self.resumed.lock().await;
        answer_of(agent::call(&self.agent, &AgentHook::Prepare).await)?;
        step("disable the network", network::disable().await)?;
        let written = spawn_blocking(nix::unistd::sync).await;
        step("write the file systems", written.map_err(io::Error::other))?;
        Ok(Prepared { prepared: true })
    }

    /// Makes a resumed machine another one than those of the same snapshot, and ends the hooks.
    /// Completes even if the caller leaves. If only the last step failed, a further call repeats
    /// it.
    pub(super) async fn resume(&self, resume: Resume) -> Result<Resumed, HookError> {
        let machine = self.clone();
        let resuming = self.shutdown.spawn(async move {
            let mut resumed = machine.resumed.lock().await;
            let current = match resumed.take() {
                Some(current) => current,
                None => machine.renew(resume).await?,
            };
            *resumed = Some(current.clone());
            step("enable the network", network::enable().await)?;
            machine.shutdown.request();
            Ok(current)
        });
        let stopped = |_| HookError::Failed("resume", "the hooks are stopping".to_owned());
        resuming.await.map_err(stopped)?
    }

    /// Replaces everything that must not be the same on two machines.
    async fn renew(&self, resume: Resume) -> Result<Resumed, HookError> {
        // Before the first change: may this machine be resumed?
        answer_of(agent::call(&self.agent, &AgentHook::Prepare).await)?;
        let entropy = entropy(resume.entropy.as_ref()).await?;
        // It is on if the snapshot was taken without the other hook.
        step("disable the network", network::disable().await)?;
        step("set the clock", clock::set(resume.time.0))?;
        step("add random numbers", random::reseed(&entropy))?;
        step("write the machine id", identity::renew())?;
        let hook = AgentHook::Resumed {
            join_token: resume.join_token.expose().to_owned(),
            advertise: resume.advertise.map(|address| address.get()),
        };
        match answer_of(agent::call(&self.agent, &hook).await)? {
            AgentHookAnswer::Resumed { boot_id } => Ok(Resumed { boot_id }),
            _ => Err(HookError::Failed("resume", "unknown answer".to_owned())),
        }
    }
}

/// Returns the random bytes of the request, and those of the engine's source.
async fn entropy(requested: Option<&Entropy>) -> Result<Vec<u8>, HookError> {
    // A source without bytes blocks.
    let source = timeout(SOURCE_TIMEOUT, spawn_blocking(random::of_engine)).await;
    let source = match source {
        Ok(Ok(read)) => step("read the source of random numbers", read)?,
        Ok(Err(_)) | Err(_) => None,
    };
    let requested = requested.map(|entropy| entropy.bytes().to_vec());
    let entropy: Vec<u8> = requested.into_iter().chain(source).flatten().collect();
    match entropy.is_empty() {
        true => Err(HookError::NoEntropy),
        false => Ok(entropy),
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
