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
    ops::Deref,
    sync::Arc,
    time::Instant,
};

use axum::{Router, extract::FromRef, middleware::from_fn_with_state};
use nix::unistd::Uid;
use tokio::net::TcpListener;
use tower::{ServiceExt, service_fn};
use utoipa::openapi::OpenApi;

use crate::{
    http::{ConnectionLimits, Metrics, StaticToken, require_static_token, serve, serve_tls},
    shutdown::Shutdown,
    state_dir::FileLock,
    system::{
        files::watcher::SharedWatcher,
        process::{
            dedicated_uid, open_files,
            session::{self, Credentials},
            tree,
        },
    },
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
pub mod isolation;
pub mod live;
pub mod logs;
mod machine_problems;
mod preferences;
pub mod process;
mod registration;
pub mod replays;
mod restart_signal;
pub mod routes;
pub mod screenshots;
mod service_status;
pub mod session_dir;
pub mod sessions;
pub mod settings;
pub mod state_dir;
pub mod user_data;

use automation::Automation;
use cdp_clients::CdpClients;
use chromium::Chromium;
use clipboard::Clipboard;
use computer::Computer;
use credentials::{CredentialFiller, login::LoginPages};
use cursor::CursorShown;
use fs::{
    access::FileAccess,
    archives::Archives,
    generated_reads::GeneratedReads,
    moves::{MAX_COPY_DESCRIPTORS, Moves},
    temp_files::TempFileJournal,
    upload::{self, Uploads},
    watches::Watches,
};
use isolation::Isolation;
use live::LiveViews;
use logs::{Logs, ProgramLog};
use process::Processes;
use registration::{Registration, RegistrationHandle};
use replays::Replays;
use restart_signal::RestartSignal;
use routes::ResumableConnections;
use screenshots::Screenshots;
use service_status::ServiceStatus;
use sessions::{SessionScope, Sessions, Taints};
use settings::{ChildUser, Config};
use user_data::UserData;

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

/// Runs an agent until a signal stops it. `own_log` holds the agent's own log for its readers.
pub async fn run(settings: &settings::Settings, own_log: ProgramLog) -> Result<(), AgentError> {
    let config = settings.check()?;
    let (shutdown, restart) = (Shutdown::on_signals()?, RestartSignal::new()?);
    let started = start(config, own_log, shutdown).await?;
    restart.spawn_handler(started.sessions.clone(), &started.shutdown);
    started.run().await
}

/// The state of the routes: a cheap handle on the services.
#[derive(Clone)]
pub struct Agent {
    services: Arc<Services>,
}

impl Deref for Agent {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

/// The services of a session, and the router to them.
#[derive(Clone)]
struct ServedAgent {
    agent: Agent,
    router: Router,
}

/// The services of a session.
pub struct Services {
    pub archives: Archives,
    pub automation: Automation,
    pub cdp_clients: CdpClients,
    pub chromium: Chromium,
    pub clipboard: Clipboard,
    pub computer: Computer,
    pub config: Arc<Config>,
    pub credential_filler: CredentialFiller,
    pub file_access: FileAccess,
    pub generated_reads: GeneratedReads,
    pub temp_files: TempFileJournal,
    pub live: LiveViews,
    pub login_pages: LoginPages,
    pub logs: Logs,
    pub moves: Moves,
    /// The users that only this session has.
    pub own_users: Vec<Uid>,
    pub processes: Processes,
    pub replays: Replays,
    pub resumable_connections: ResumableConnections,
    pub screenshots: Screenshots,
    pub session: SessionScope,
    pub sessions: Sessions,
    pub shutdown: Shutdown,
    pub started_at: Instant,
    pub taints: Taints,
    pub uploads: Uploads,
    pub user_data: UserData,
    pub watches: Watches,
}

/// Lets a handler take `State<$service>` instead of the complete [`Agent`].
macro_rules! impl_from_ref {
    ($($field:ident: $service:ty,)+) => {
        $(impl FromRef<Agent> for $service {
            fn from_ref(agent: &Agent) -> Self {
                agent.services.$field.clone()
            }
        })+
    };
}

impl_from_ref! {
    archives: Archives,
    automation: Automation,
    cdp_clients: CdpClients,
    chromium: Chromium,
    clipboard: Clipboard,
    computer: Computer,
    config: Arc<Config>,
    credential_filler: CredentialFiller,
    file_access: FileAccess,
    generated_reads: GeneratedReads,
    temp_files: TempFileJournal,
    live: LiveViews,
    login_pages: LoginPages,
    logs: Logs,
    moves: Moves,
    processes: Processes,
    replays: Replays,
    screenshots: Screenshots,
    sessions: Sessions,
    shutdown: Shutdown,
    uploads: Uploads,
    user_data: UserData,
    watches: Watches,
}

/// An agent that listens. It serves once it is run.
pub struct Started {
    config: Config,
    sessions: Sessions,
    shutdown: Shutdown,
    listener: TcpListener,
    /// Present if the agent registers itself at control.
    registration: Option<RegistrationHandle>,
    _lock: FileLock,
}

/// Locks the state directory, listens, and starts the services. Chromium starts in the background.
pub async fn start(
    mut config: Config,
    own_log: ProgramLog,
    shutdown: Shutdown,
) -> Result<Started, AgentError> {
    let lock = config.state_dir.lock();
    let lock = lock.map_err(|source| AgentError::StateDir {
        path: config.state_dir.root().display().to_string(),
        source,
    })?;
    tree::start_threads()?;
    session::start_fork_server().await;
    let listener = TcpListener::bind(config.listen).await;
    let listener = listener.map_err(|source| AgentError::Listen {
        address: config.listen,
        source,
    })?;
    config.listen = listener.local_addr()?;
    Metrics::install().spawn_upkeep(&shutdown);
    let sessions = Sessions::start(config.clone(), own_log, &shutdown).await?;
    machine_problems::log_changes(config.state_dir.root().to_owned(), &shutdown);
    let registration = Registration::start(&config, config.listen, sessions.clone(), &shutdown)?;
    Ok(Started {
        config,
        sessions,
        shutdown,
        listener,
        registration,
        _lock: lock,
    })
}

impl Started {
    /// Serves until shutdown, then waits until the tasks of all services have ended.
    pub async fn run(self) -> Result<(), AgentError> {
        // The lock is bound first, so that it is released last.
        let Started {
            _lock,
            config,
            sessions,
            shutdown,
            listener,
            registration,
        } = self;
        let (tls, registration) = match registration {
            Some(RegistrationHandle { tls, state }) => (Some(tls), Some(state)),
            None => (None, None),
        };
        if config.json {
            let scheme = if tls.is_some() { "https" } else { "http" };
            print_base_url(scheme, listener.local_addr()?)?;
        }
        ServiceStatus {
            sessions: sessions.clone(),
            registration,
        }
        .start(&shutdown);
        let current = service_fn(move |request| sessions.current().router.oneshot(request));
        let router = Router::new().fallback_service(current);
        let limits = connection_limits(&config);
        match tls {
            Some(tls) => serve_tls(listener, tls, router, limits, &shutdown).await?,
            None => serve(listener, router, limits, &shutdown).await?,
        }
        if !shutdown.drain(config.stop_grace).await {
            tracing::warn!(
                timeout = ?config.stop_grace,
                "shutdown did not complete in time, killing the remaining tasks"
            );
        }
        Ok(())
    }
}

impl Services {
    async fn start(
        config: Config,
        own_log: ProgramLog,
        sessions: &Sessions,
        session: SessionScope,
    ) -> Result<Self, AgentError> {
        let shutdown = &session.shutdown;
        let config = Arc::new(config);
        let identity = chromium::Identity::resolve(&config).await?;
        let (isolation, identity) = Isolation::start(&config, identity).await?;
        let (taints, file_access) = isolation::file_access(&config, isolation.as_ref(), sessions)?;
        let temp_files = TempFileJournal::recover(&config.session_dir, &file_access)?;
        let watcher = SharedWatcher::new(file_access.root().clone());
        let logs = Logs::new(own_log, watcher.clone());
        let script_user = automation::find_user(&config.script_user, identity.uid())?;
        let own_users = own_users(&config, &identity, isolation.as_ref(), script_user.as_ref());
        let options = process_options(&config, isolation);
        let processes = Processes::new(options, taints.clone(), shutdown).await?;
        let chromium = chromium::start(config.clone(), identity, logs.clone(), shutdown);
        let options = automation::Options::new(&config, script_user);
        let automation = Automation::start(options, chromium.clone(), shutdown)?;
        let authority = config.session_dir.display_authority();
        let clipboard = Clipboard::start(chromium.clone(), &authority, shutdown);
        let (computer, cursor) = start_computer(&chromium, shutdown)?;
        let viewed = (chromium.clone(), computer.clone());
        let live = LiveViews::new(viewed.0, viewed.1, clipboard.clone(), cursor.clone());
        Ok(Self {
            archives: Archives::new(file_access.root().clone(), config.unpack, shutdown),
            automation,
            cdp_clients: CdpClients::new(chromium.clone(), config.max_cdp_clients, config.cdp_hold),
            resumable_connections: ResumableConnections::new(config.cdp_resume, shutdown),
            credential_filler: CredentialFiller::new(chromium.clone()),
            login_pages: LoginPages::new(chromium.clone()),
            generated_reads: GeneratedReads::default(),
            moves: Moves::new(temp_files.clone(), shutdown),
            uploads: uploads(&config, &temp_files),
            file_access,
            temp_files,
            live,
            logs,
            own_users,
            processes,
            replays: Replays::start(
                replay_options(&config),
                sessions.replays().clone(),
                chromium.clone(),
                cursor.clone(),
                shutdown,
            )?,
            screenshots: Screenshots::new(chromium.clone(), cursor),
            sessions: sessions.clone(),
            shutdown: shutdown.clone(),
            started_at: Instant::now(),
            taints,
            user_data: user_data(&config, &chromium, shutdown),
            watches: Watches::new(config.watch_idle, watcher, shutdown),
            session,
            chromium,
            clipboard,
            computer,
            config,
        })
    }
}

/// Returns the users that were chosen for this session alone.
fn own_users(
    config: &Config,
    chromium: &chromium::Identity,
    isolation: Option<&Isolation>,
    script_user: Option<&Credentials>,
) -> Vec<Uid> {
    let is_chosen = config.script_user == ChildUser::Dedicated && dedicated_uid::are_mapped();
    let script_uid = script_user.filter(|_| is_chosen).map(|user| user.uid);
    chromium
        .dedicated_uid()
        .into_iter()
        .chain(isolation.and_then(Isolation::dedicated_uid))
        .chain(script_uid)
        .collect()
}

/// Starts the service of input, and returns it with whether the cursor is shown.
fn start_computer(
    chromium: &Chromium,
    shutdown: &Shutdown,
) -> Result<(Computer, CursorShown), AgentError> {
    let cursor = CursorShown::default();
    let cursor_setter = cursor.clone();
    let on_cursor = move |hidden: bool| cursor_setter.set(!hidden);
    let computer = Computer::start(chromium.clone(), on_cursor, shutdown)?;
    Ok((computer, cursor))
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

fn uploads(config: &Config, temp_files: &TempFileJournal) -> Uploads {
    let work = config.session_dir.work();
    Uploads::new(temp_files.clone(), &work, open_files::limit())
}

fn user_data(config: &Config, chromium: &Chromium, shutdown: &Shutdown) -> UserData {
    let session_dir = config.session_dir.clone();
    UserData::new(chromium.clone(), session_dir, config.unpack, shutdown)
}

fn process_options(config: &Config, isolation: Option<Isolation>) -> process::Options {
    process::Options {
        max: config.max_processes,
        log_bytes: config.process_output_mb << 20,
        exec_output_bytes: config.exec_output_mb << 20,
        exec_total_bytes: config.exec_total_mb << 20,
        state_dir: config.session_dir.root().to_owned(),
        isolation,
    }
}

fn replay_options(config: &Config) -> replays::ReplayOptions {
    replays::ReplayOptions {
        directory: config.session_dir.replays(),
        encoder: config.ffmpeg.clone(),
        pulse_server: config.pulse_server.clone(),
        max_duration: config.replay_duration,
        max_bytes: config.replay_bytes,
        total_bytes: config.replays_bytes,
    }
}

/// Prints the line of JSON by which the parent process learns the address.
fn print_base_url(scheme: &str, address: SocketAddr) -> io::Result<()> {
    let line = serde_json::json!({"base_url": format!("{scheme}://{address}")});
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

impl ServedAgent {
    fn new(services: Services) -> Self {
        let agent = Agent {
            services: Arc::new(services),
        };
        let token = match &agent.config.control {
            Some(_) => StaticToken::replaced_by_tls(),
            None => StaticToken::new(agent.config.token.as_ref()).with_pages(&routes::PAGES),
        };
        let router = routes::app(&agent).router(Metrics::install(), |guarded| {
            guarded.route_layer(from_fn_with_state(token, require_static_token))
        });
        Self { agent, router }
    }
}

/// Returns the OpenAPI document of the agent's routes.
pub fn document() -> OpenApi {
    routes::document()
}
