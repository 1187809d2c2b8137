//! The agent: the daemon beside one browser.
//!
//! ```text
//! start: lock the state directory -> bind the listener -> start the services
//! run:   serve until shutdown -> drain the tasks of the services
//!
//! routes (decode, one call, encode)
//!   |
//!   v
//! Sessions: the current Services, and prepared ones
//!   |
//!   v
//! Services: automation  cdp_clients  computer  live  replays  user_data  process  fs  logs ...
//!   |  (each service owns its state and the tasks that change it)
//!   v
//! chromium (the supervisor task owns the X server's and Chromium's processes and publishes
//!           their state; the other services watch it)
//! ```
//!
//! Handlers take the services they use from the [`Agent`], through axum's `FromRef`.

use std::{
    io::{self, Write},
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use axum::Router;
use tokio::net::TcpListener;
use tower::{ServiceExt, service_fn};
use utoipa::openapi::OpenApi;

use crate::{
    http::{ConnectionLimits, Metrics, serve, serve_tls},
    shutdown::Shutdown,
    state_dir::FileLock,
    system::process::{handover::NextProgram, open_files, tree},
};

pub mod automation;
pub mod cdp_clients;
pub mod chromium;
pub mod clipboard;
pub mod computer;
pub mod credentials;
pub mod cursor;
pub mod display;
pub mod fs;
mod handover;
pub mod isolation;
pub mod live;
pub mod logs;
mod machine_problems;
mod optional_sleep;
mod preferences;
pub mod process;
mod registration;
pub mod replays;
mod restart_signal;
pub mod routes;
pub mod screenshots;
mod service_status;
mod services;
pub mod session_dir;
pub mod sessions;
pub mod settings;
pub mod state_dir;
pub mod user_data;

use fs::{moves::MAX_COPY_DESCRIPTORS, upload};
pub use handover::PassedAgent;
use logs::ProgramLog;
use registration::{Registration, RegistrationHandle};
use restart_signal::RestartSignal;
use service_status::ServiceStatus;
use services::ServedAgent;
pub use services::{Agent, Services};
use sessions::Sessions;
use settings::Config;

/// The most connections at once, far above what the clients of one browser open.
const MAX_CONNECTIONS: usize = 1_000;
/// The descriptors that a connection needs: its own, and that of a file or of a connection to
/// Chromium.
const DESCRIPTORS_PER_CONNECTION: usize = 2;
/// The descriptors for Chromium, script workers, watches and logs.
const RESERVED_DESCRIPTORS: usize = 128;
/// The descriptors for each client process: its input and output, and its handle.
const DESCRIPTORS_PER_PROCESS: usize = 4;

/// Why an agent does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Settings(#[from] settings::SettingsErrors),
    #[error("cannot use the state directory {path}: {source}")]
    StateDir { path: String, source: io::Error },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Chromium(#[from] chromium::IdentityError),
    #[error(transparent)]
    Isolation(#[from] isolation::IsolationUnavailable),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs an agent until a signal stops it. `own_log` holds the agent's own log for its readers, and
/// `passed` is what the program before this one has handed over, if this process had one.
pub async fn run(
    settings: &settings::Settings,
    own_log: ProgramLog,
    passed: Option<PassedAgent>,
) -> Result<(), AgentError> {
    let program = NextProgram::current()?;
    let config = settings.check()?;
    let (shutdown, restart) = (Shutdown::on_signals()?, RestartSignal::new()?);
    let started = start_with(config, own_log, passed, shutdown).await?;
    restart.spawn_handler(started.sessions.clone(), program.clone(), &started.shutdown);
    let stopped = started.run().await?;
    match stopped.shutdown.is_handover() {
        true => Ok(handover::continue_with(program, stopped).await?),
        false => Ok(()),
    }
}

/// An agent that listens. It serves once it is run.
pub struct Started {
    config: Config,
    sessions: Sessions,
    shutdown: Shutdown,
    listener: TcpListener,
    /// Whether another program of this process has listened before.
    is_adopted: bool,
    /// Present if the agent registers itself at control.
    registration: Option<RegistrationHandle>,
    _lock: FileLock,
}

/// An agent whose services have ended.
pub struct Stopped {
    sessions: Sessions,
    shutdown: Shutdown,
    /// The socket, if another program continues.
    listener: Option<OwnedFd>,
    // Dropped last.
    _lock: FileLock,
}

/// Locks the state directory, listens, and starts the services. Chromium starts in the background.
pub async fn start(
    config: Config,
    own_log: ProgramLog,
    shutdown: Shutdown,
) -> Result<Started, AgentError> {
    start_with(config, own_log, None, shutdown).await
}

/// Does the same with what the program before has handed over.
async fn start_with(
    mut config: Config,
    own_log: ProgramLog,
    passed: Option<PassedAgent>,
    shutdown: Shutdown,
) -> Result<Started, AgentError> {
    let lock = config.state_dir.lock();
    let lock = lock.map_err(|source| AgentError::StateDir {
        path: config.state_dir.root().display().to_string(),
        source,
    })?;
    if config.copies_script_worker {
        match config.state_dir.copy_script_worker(&config.script_worker) {
            Ok(copy) => config.script_worker = copy,
            // Scripts then fail while an upgrade replaces it, instead of the agent.
            Err(error) => tracing::warn!(%error, "cannot copy the script worker"),
        }
    }
    tree::start_threads()?;
    let is_adopted = passed.is_some();
    let (listener, passed) = match passed {
        Some(PassedAgent { listener, session }) => (listener, session),
        None => (None, None),
    };
    let listener = handover::listen(config.listen, listener).await;
    let listener = listener.map_err(|source| AgentError::Listen {
        address: config.listen,
        source,
    })?;
    config.listen = listener.local_addr()?;
    Metrics::install().spawn_upkeep(&shutdown);
    let sessions = Sessions::start(config.clone(), own_log, passed, &shutdown).await?;
    machine_problems::log_changes(config.state_dir.root().to_owned(), &shutdown);
    let registration = Registration::start(&config, config.listen, sessions.clone(), &shutdown)?;
    Ok(Started {
        config,
        sessions,
        shutdown,
        listener,
        is_adopted,
        registration,
        _lock: lock,
    })
}

impl Started {
    /// Serves until shutdown, then waits until the tasks of all services have ended.
    pub async fn run(self) -> Result<Stopped, AgentError> {
        let Started {
            _lock,
            config,
            sessions,
            shutdown,
            listener,
            is_adopted,
            registration,
        } = self;
        let (tls, registration) = match registration {
            Some(RegistrationHandle { tls, state }) => (Some(tls), Some(state)),
            None => (None, None),
        };
        // The parent process knows the address of a program before.
        if config.json && !is_adopted {
            let scheme = if tls.is_some() { "https" } else { "http" };
            print_base_url(scheme, listener.local_addr()?)?;
        }
        ServiceStatus {
            sessions: sessions.clone(),
            registration,
        }
        .start(&shutdown);
        let kept_listener = listener.as_fd().try_clone_to_owned()?;
        let served = sessions.clone();
        let current = service_fn(move |request| served.current().router.oneshot(request));
        let router = Router::new().fallback_service(current);
        let limits = connection_limits(&config);
        match tls {
            Some(tls) => serve_tls(listener, tls, router, limits, &shutdown).await?,
            None => serve(listener, router, limits, &shutdown).await?,
        }
        // Without a next program, connections are refused from now on.
        let kept_listener = Some(kept_listener).filter(|_| shutdown.is_handover());
        if !shutdown.drain(config.stop_grace).await {
            tracing::warn!(
                timeout = ?config.stop_grace,
                "shutdown did not complete in time, killing the remaining tasks"
            );
        }
        // The handover was given up while the services ended.
        if !shutdown.is_handover()
            && let Some(browser) = sessions.current().agent.chromium.take_stopped()
        {
            browser.close().await;
        }
        Ok(Stopped {
            sessions,
            shutdown,
            listener: kept_listener,
            _lock,
        })
    }
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    ConnectionLimits::for_open_files(
        MAX_CONNECTIONS,
        open_files::limit(),
        RESERVED_DESCRIPTORS
            + MAX_COPY_DESCRIPTORS
            + upload::max_descriptors(open_files::limit())
            + DESCRIPTORS_PER_PROCESS * config.max_processes,
        DESCRIPTORS_PER_CONNECTION,
    )
}

/// Prints the line of JSON by which the parent process learns the address.
fn print_base_url(scheme: &str, address: SocketAddr) -> io::Result<()> {
    let line = serde_json::json!({"base_url": format!("{scheme}://{address}")});
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Returns the OpenAPI document of the agent's routes.
pub fn document() -> OpenApi {
    routes::document()
}
