//! The services of a session, and the router to them.

use std::{
    io,
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, extract::FromRef, middleware::from_fn_with_state};
use nix::unistd::Uid;

use super::{
    AgentError,
    automation::{self, Automation},
    cdp_clients::CdpClients,
    chromium::{self, AdoptedBrowser, Chromium, PassedBrowser},
    clipboard::Clipboard,
    computer::Computer,
    credentials::{CredentialFiller, login::LoginPages},
    cursor::CursorShown,
    fs::{
        access::FileAccess, archives::Archives, generated_reads::GeneratedReads, moves::Moves,
        temp_files::TempFileJournal, upload::Uploads, watches::Watches,
    },
    handover::PassedSession,
    isolation::{self, Isolation},
    live::LiveViews,
    logs::{Logs, ProgramLog},
    process::{self, Processes},
    replays::{self, Replays},
    routes::{self, PassedConnection, ResumableConnections},
    screenshots::Screenshots,
    sessions::{SessionScope, Sessions, Taints},
    settings::{ChildUser, Config},
    user_data::UserData,
};
use crate::{
    http::{Metrics, StaticToken, require_static_token},
    shutdown::Shutdown,
    system::{
        files::watcher::SharedWatcher,
        process::{dedicated_uid, open_files, session::Credentials},
    },
};

/// The longest wait for the answer of a browser that the program before has passed.
const ADOPTION_TIMEOUT: Duration = Duration::from_secs(25);

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
pub(super) struct ServedAgent {
    pub(super) agent: Agent,
    pub(super) router: Router,
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
    /// `None` if client programs run as the agent's user.
    pub isolation: Option<Isolation>,
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

impl Services {
    /// Starts the services. `passed` is what the program before has of the session.
    pub(super) async fn start(
        config: Config,
        own_log: ProgramLog,
        sessions: &Sessions,
        session: SessionScope,
        passed: Option<PassedSession>,
    ) -> Result<Self, AgentError> {
        let shutdown = &session.shutdown;
        let config = Arc::new(config);
        let (passed, text, namespaces) = passed.map_or((None, None, None), PassedSession::parts);
        let identity = chromium::Identity::resolve(&config, passed.is_some()).await?;
        let (isolation, identity) = Isolation::start(&config, identity, namespaces).await?;
        let (taints, file_access) = isolation::file_access(&config, isolation.as_ref(), sessions)?;
        let temp_files = TempFileJournal::recover(&config.session_dir, &file_access)?;
        let watcher = SharedWatcher::new(file_access.root().clone());
        let logs = Logs::new(own_log, watcher.clone());
        let script_user = automation::find_user(&config.script_user, identity.uid())?;
        let own_users = own_users(&config, &identity, isolation.as_ref(), script_user.as_ref());
        let options = process_options(&config, isolation.clone());
        let processes = Processes::new(options, taints.clone(), shutdown).await?;
        let browser = Browser::start(&config, identity, &logs, passed, shutdown).await;
        let chromium = browser.chromium;
        let options = automation::Options::new(&config, file_access.root().clone(), script_user);
        let automation = Automation::start(options, chromium.clone(), shutdown)?;
        let authority = config.session_dir.display_authority();
        let clipboard = Clipboard::start(chromium.clone(), &authority, text, shutdown);
        let (computer, cursor) = start_computer(&chromium, shutdown)?;
        let viewed = (chromium.clone(), computer.clone());
        let live = LiveViews::new(viewed.0, viewed.1, clipboard.clone(), cursor.clone());
        Ok(Self {
            archives: Archives::new(file_access.root().clone(), config.unpack, shutdown),
            automation,
            cdp_clients: browser.clients,
            resumable_connections: browser.resumable,
            credential_filler: CredentialFiller::new(chromium.clone()),
            login_pages: LoginPages::new(chromium.clone()),
            generated_reads: GeneratedReads::default(),
            isolation,
            moves: Moves::new(temp_files.clone(), shutdown),
            uploads: uploads(&config, &temp_files),
            file_access,
            temp_files,
            live,
            logs,
            own_users,
            processes,
            replays: start_replays(&config, sessions, &chromium, &cursor, shutdown)?,
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

/// The browser, and the DevTools clients of its users.
struct Browser {
    chromium: Chromium,
    clients: CdpClients,
    resumable: ResumableConnections,
}

impl Browser {
    /// Starts Chromium in the background, or continues with the `passed` one.
    async fn start(
        config: &Arc<Config>,
        identity: chromium::Identity,
        logs: &Logs,
        passed: Option<(PassedBrowser, Vec<PassedConnection>)>,
        shutdown: &Shutdown,
    ) -> Self {
        let adopted = passed.map(|(browser, connections)| {
            let adopted = AdoptedBrowser::new(config, browser, logs);
            adopted.map(|(browser, channels)| (browser, (channels, connections)))
        });
        let (adopted, connections) = match adopted {
            Some(Ok((browser, connections))) => (Some(browser), Some(connections)),
            Some(Err(error)) => {
                tracing::error!(%error, "the running browser cannot be continued");
                (None, None)
            }
            None => (None, None),
        };
        let generation = adopted.as_ref().map(AdoptedBrowser::generation);
        let (config, logs) = (config.clone(), logs.clone());
        let (limit, hold) = (config.max_cdp_clients, config.cdp_hold);
        let resumable = ResumableConnections::new(config.cdp_resume, shutdown);
        let chromium = chromium::start(config, identity, logs, adopted, shutdown);
        let clients = CdpClients::new(chromium.clone(), limit, hold);
        if let Some((channels, connections)) = connections
            && let Ok(devtools) = chromium.ready(ADOPTION_TIMEOUT).await
            && Some(devtools.generation) == generation
        {
            // Before the first request: it may be for one of them.
            resumable
                .adopt(connections, channels, &clients, devtools.generation)
                .await;
        }
        Browser {
            chromium,
            clients,
            resumable,
        }
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

fn start_replays(
    config: &Config,
    sessions: &Sessions,
    chromium: &Chromium,
    cursor: &CursorShown,
    shutdown: &Shutdown,
) -> io::Result<Replays> {
    let options = replays::ReplayOptions {
        directory: config.session_dir.replays(),
        encoder: config.ffmpeg.clone(),
        pulse_server: config.pulse_server.clone(),
        max_duration: config.replay_duration,
        max_bytes: config.replay_bytes,
        total_bytes: config.replays_bytes,
    };
    let ended = sessions.replays().clone();
    Replays::start(options, ended, chromium.clone(), cursor.clone(), shutdown)
}

impl ServedAgent {
    pub(super) fn new(services: Services) -> Self {
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
