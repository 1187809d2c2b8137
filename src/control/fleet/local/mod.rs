//! A fleet of agents that run as child processes of this one.
//!
//! - [`agent_process`]: starts an agent and reads the address at which it listens.
//! - [`supervisor`]: owns the process of one agent, restarts it and cleans up after it.
//! - [`host_directory`]: removes the directory of a host, and retries until that succeeds.
//! - [`session_record`]: which session a host runs.
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
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;

mod agent_log;
mod agent_process;
mod cleanup;
mod host_directory;
mod session_record;
mod supervisor;

pub use agent_log::TARGET as AGENT_LOG_TARGET;
use agent_process::AgentCommand;
use cleanup::KnownPrograms;
use host_directory::HostDirectory;
pub use session_record::SessionRecord;
use supervisor::Supervisor;

use super::{
    agent_client::{AgentAccess, AgentClient},
    host::Host,
};
use crate::{
    api::{
        ids::{BrowserId, HostId},
        viewport::Viewport,
    },
    control::{
        secret_token::random_hex,
        settings::{FleetConfig, StopDeadlines},
        state_dir::StateDir,
        store::HostMode,
    },
    shutdown::Shutdown,
    state_dir::mode_around_chromium,
};

/// The options with which a host starts its browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchOptions {
    pub mode: HostMode,
    /// The viewport with which each session of the host begins.
    pub viewport: Viewport,
}

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
    /// Holds one directory for each host, named by its id.
    directory: PathBuf,
    /// Held one directory for each browser in earlier versions.
    earlier_directory: PathBuf,
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
                directory: state_dir.hosts(),
                earlier_directory: state_dir.earlier_hosts(),
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

    /// Returns the deadlines of the phases of a shutdown.
    pub fn stop_deadlines(&self) -> StopDeadlines {
        self.inner.config.stop_deadlines
    }

    /// Starts the agent of a host for a session and returns when it listens. Its browser is still
    /// starting.
    pub async fn start(
        &self,
        id: &HostId,
        session: &BrowserId,
        launch: LaunchOptions,
        permit: HostPermit,
    ) -> Result<(Host, SessionRecord), HostStartError> {
        let inner = &*self.inner;
        let directory = inner.host_directory(inner.directory.join(id.as_str()));
        let record = directory.session.clone();
        let token = SecretString::from(random_hex::<32>());
        let command = AgentCommand {
            host: id.clone(),
            session: record.clone(),
            launch,
            program: inner.config.agent_program.clone(),
            options: inner.config.agent_options.clone(),
            token_file: directory.path.join("token"),
            state_dir: directory.path.join(cleanup::AGENT_STATE_DIRECTORY),
        };
        let (path, token_file) = (directory.path.clone(), command.token_file.clone());
        let prepared = prepare(path, token_file, token.clone()).await;
        let started = match prepared.and_then(|()| record.set(session)) {
            Ok(()) => command.start().await,
            Err(source) => Err(HostStartError::Directory {
                path: directory.path.display().to_string(),
                source,
            }),
        };
        let (child, address) = match started {
            Ok(started) => started,
            Err(error) => {
                directory.remove(CancellationToken::new()).await;
                return Err(error);
            }
        };
        let access = AgentAccess::Token(token);
        let (host, controller) = Host::new(id.clone(), address, access, inner.client.clone());
        let stop_deadline = inner.config.stop_deadlines.agents;
        let supervisor = Supervisor::new(command, directory, controller, stop_deadline, permit);
        inner.shutdown.spawn(supervisor.run(child));
        Ok((host, record))
    }

    /// Kills the processes of an earlier run, saves its recordings and removes its other data.
    /// Must run before the first host is started.
    ///
    /// Returns the sessions whose data could not be removed yet, each with the token that is
    /// cancelled when it is.
    pub async fn clean_up(&self) -> io::Result<Vec<(BrowserId, CancellationToken)>> {
        let mut remaining = self.clean_up_in(&self.inner.directory).await?;
        remaining.extend(self.clean_up_in(&self.inner.earlier_directory).await?);
        Ok(remaining)
    }

    async fn clean_up_in(
        &self,
        directory: &Path,
    ) -> io::Result<Vec<(BrowserId, CancellationToken)>> {
        let inner = &*self.inner;
        if !tokio::fs::try_exists(directory).await? {
            return Ok(Vec::new());
        }
        let mut hosts = Vec::new();
        let mut entries = tokio::fs::read_dir(directory).await?;
        while let Some(entry) = entries.next_entry().await? {
            cleanup::kill_client_processes(&entry.path()).await;
            hosts.push(entry.path());
        }
        let killed = cleanup::kill_processes_using(directory, &inner.programs).await;
        let mut remaining = Vec::new();
        for path in hosts {
            let (host, removed) = (inner.host_directory(path), CancellationToken::new());
            let session = host.session.get();
            match &killed {
                Ok(()) => host.remove_unused(removed.clone()).await,
                // Finds out which of the hosts have processes that survived.
                Err(_) => host.remove(removed.clone()).await,
            }
            if !removed.is_cancelled() {
                remaining.extend(session.map(|session| (session, removed)));
            }
        }
        Ok(remaining)
    }
}

impl Inner {
    fn host_directory(&self, path: PathBuf) -> HostDirectory {
        HostDirectory {
            session: SessionRecord::read(&path),
            path,
            orphaned_recordings: self.orphaned_recordings.clone(),
            programs: self.programs.clone(),
            shutdown: self.shutdown.clone(),
        }
    }
}

/// Creates a directory that only its owner can list, and writes the agent's token into it.
async fn prepare(directory: PathBuf, token_file: PathBuf, token: SecretString) -> io::Result<()> {
    let prepare = move || {
        let mut builder = DirBuilder::new();
        let mode = mode_around_chromium();
        builder.mode(mode).recursive(true).create(&directory)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(token_file)?;
        file.write_all(token.expose_secret().as_bytes())
    };
    spawn_blocking(prepare).await.map_err(io::Error::other)?
}
