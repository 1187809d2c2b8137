//! A fleet of agents that run as child processes of this one.
//!
//! - [`agent_process`]: starts an agent and reads the address at which it listens.
//! - [`supervisor`]: owns the process of one agent, restarts it and cleans up after it.
//! - [`cleanup`]: kills processes that an agent left behind, and saves its recordings.
//! - [`agent_log`]: copies an agent's log into control's.
//!
//! ```text
//! start ──▶ prepare directory ──▶ spawn agent ──▶ Supervisor task
//!                                                   │ agent exits: clean up, back off, restart
//!                                                   │ stop, or too many restarts in a row:
//!                                                   └──▶ clean up, remove directory, Gone
//! ```

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};

mod agent_log;
mod agent_process;
mod cleanup;
mod supervisor;

pub use agent_log::TARGET as AGENT_LOG_TARGET;
use agent_process::AgentCommand;
use cleanup::KnownPrograms;
use supervisor::{HostDirectory, Supervisor};

use super::{
    agent_client::AgentClient,
    host::{Host, LaunchOptions},
};
use crate::{
    api::ids::BrowserId,
    control::{keys::random_hex, settings::FleetConfig, state_dir::StateDir},
    shutdown::Shutdown,
};

/// Permission to run one host. It counts towards the browser limit until it is dropped.
pub struct HostPermit {
    _permit: OwnedSemaphorePermit,
}

/// Why an agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HostStartError {
    #[error("cannot prepare directory {path}: {source}")]
    Directory { path: String, source: io::Error },
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: io::Error },
    #[error("the agent exited before it listened: {status}\n{tail}")]
    Exited { status: String, tail: String },
    #[error("the agent did not report its address: {0}")]
    NoAddress(String),
}

/// The fleet of this machine. Clones share it.
#[derive(Clone)]
pub struct LocalFleet {
    inner: Arc<Inner>,
}

struct Inner {
    config: FleetConfig,
    programs: KnownPrograms,
    /// Holds one directory for each host, named by the id of its browser.
    directory: PathBuf,
    /// Receives recordings that agents left behind.
    orphaned_recordings: PathBuf,
    permits: Arc<Semaphore>,
    client: AgentClient,
    shutdown: Shutdown,
}

impl LocalFleet {
    pub fn new(config: FleetConfig, state_dir: &StateDir, shutdown: Shutdown) -> LocalFleet {
        let programs = config.programs.iter().map(PathBuf::as_path);
        LocalFleet {
            inner: Arc::new(Inner {
                programs: KnownPrograms::new(programs),
                permits: Arc::new(Semaphore::new(config.max_browsers as usize)),
                config,
                directory: state_dir.browsers(),
                orphaned_recordings: state_dir.orphaned_recordings(),
                client: AgentClient::default(),
                shutdown,
            }),
        }
    }

    /// Reserves capacity for one host. Returns `None` at the browser limit.
    pub fn try_reserve(&self) -> Option<HostPermit> {
        let permit = self.inner.permits.clone().try_acquire_owned();
        permit.ok().map(|permit| HostPermit { _permit: permit })
    }

    /// Returns the browser limit.
    pub fn capacity(&self) -> u32 {
        self.inner.config.max_browsers
    }

    /// Returns how long a new browser may take to become ready.
    pub fn start_timeout(&self) -> Duration {
        self.inner.config.start_timeout
    }

    /// Starts the agent of browser `id` and returns when it listens. Its browser is still starting.
    pub async fn start(
        &self,
        id: &BrowserId,
        options: LaunchOptions,
        permit: HostPermit,
    ) -> Result<Host, HostStartError> {
        let inner = &*self.inner;
        let directory = HostDirectory {
            path: inner.directory.join(id.as_str()),
            orphaned_recordings: inner.orphaned_recordings.clone(),
            programs: inner.programs.clone(),
        };
        let token = SecretString::from(random_hex::<32>());
        let command = AgentCommand {
            browser: id.clone(),
            program: inner.config.agent_program.clone(),
            options: inner.config.agent_options.clone(),
            token_file: directory.path.join("token"),
            state_dir: directory.path.join(cleanup::AGENT_STATE_DIRECTORY),
        };
        let (path, token_file) = (directory.path.clone(), command.token_file.clone());
        let started = match prepare(path, token_file, token.clone()).await {
            Ok(()) => command.start(&options).await,
            Err(source) => Err(HostStartError::Directory {
                path: directory.path.display().to_string(),
                source,
            }),
        };
        let (child, address) = match started {
            Ok(started) => started,
            Err(error) => {
                directory.remove().await;
                return Err(error);
            }
        };
        let (host, controller) = Host::new(address, token, options, inner.client.clone());
        let supervisor = Supervisor::new(id.clone(), command, directory, controller, permit);
        inner.shutdown.spawn(supervisor.run(child));
        Ok(host)
    }

    /// Kills the processes of an earlier run, saves its recordings and removes its other data.
    /// Must run before the first host is started.
    pub async fn clean_up(&self) -> io::Result<()> {
        let directory = &self.inner.directory;
        if !tokio::fs::try_exists(directory).await? {
            return Ok(());
        }
        let mut hosts = Vec::new();
        let mut entries = tokio::fs::read_dir(directory).await?;
        while let Some(host) = entries.next_entry().await? {
            cleanup::kill_client_processes(&host.path()).await;
            hosts.push(host.path());
        }
        cleanup::kill_processes_using(directory, &self.inner.programs).await?;
        for host in hosts {
            cleanup::move_recordings(&host, &self.inner.orphaned_recordings).await?;
        }
        cleanup::remove_directory(directory).await
    }
}

/// Creates a private directory and writes the agent's token into it.
async fn prepare(directory: PathBuf, token_file: PathBuf, token: SecretString) -> io::Result<()> {
    let prepare = move || {
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true).create(&directory)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(token_file)?;
        file.write_all(token.expose_secret().as_bytes())
    };
    spawn_blocking(prepare).await.map_err(io::Error::other)?
}
