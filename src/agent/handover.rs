//! The handover of the agent to another program, such as after an upgrade: the browser goes on,
//! with its display, its resumable DevTools connections and the text on its clipboard.
//!
//! ```text
//! requested ─▶ nothing else in use ─▶ program checked ─▶ services stop ─▶ exec ─▶ services start
//!                 ▲                         │ unusable           browser, connections,
//!                 └── waits                 ▼                    namespaces, listener
//!                        the agent ends when no session uses it
//! ```
//!
//! A handover never interrupts what the next program cannot continue: client programs, scripts,
//! recordings, watches, DevTools connections that cannot be resumed, and requests.

use std::{io, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    time::{MissedTickBehavior, interval},
};

use super::{
    Agent, Stopped,
    chromium::{BrowserState, PassedBrowser},
    isolation::Isolation,
    routes::{PassedConnection, StoppedConnection},
    sessions::Sessions,
};
use crate::{
    shutdown::Shutdown,
    system::process::{
        handover::{NextProgram, PassedDescriptor},
        mount_namespace::PassedNamespaces,
    },
};

/// The interval in which an agent that waits for its handover looks for what is in use.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The state that an agent hands over to the next program of its process.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedAgent {
    pub(super) listener: Option<PassedDescriptor>,
    /// `None` if its browser has ended meanwhile.
    pub(super) session: Option<PassedSession>,
}

/// The current session, in so far as it is not in the state directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedSession {
    pub(super) generation: u64,
    pub(super) browser: PassedBrowser,
    pub(super) connections: Vec<PassedConnection>,
    pub(super) clipboard: Option<String>,
    pub(super) namespaces: Option<PassedNamespaces>,
}

/// The browser, and its connections.
type PassedDevtools = (PassedBrowser, Vec<PassedConnection>);

impl PassedSession {
    /// Returns the browser with its connections, the text on the clipboard, and the namespaces.
    pub(super) fn parts(
        self,
    ) -> (
        Option<PassedDevtools>,
        Option<String>,
        Option<PassedNamespaces>,
    ) {
        let browser = (self.browser, self.connections);
        (Some(browser), self.clipboard, self.namespaces)
    }

    /// Takes what is left of the session after the end of its services.
    async fn of(agent: &Agent) -> io::Result<Self> {
        let stopped = agent.resumable_connections.take_stopped();
        let kept = stopped.iter().map(StoppedConnection::client).collect();
        let browser = agent.chromium.take_stopped();
        let browser = browser.ok_or_else(|| io::Error::other("the browser has ended"))?;
        let namespaces = agent.isolation.as_ref().map(Isolation::pass).transpose()?;
        Ok(PassedSession {
            generation: agent.session.generation,
            browser: browser.pass(kept).await?,
            connections: stopped
                .into_iter()
                .filter_map(StoppedConnection::pass)
                .collect(),
            clipboard: agent.clipboard.written_text(),
            namespaces,
        })
    }
}

/// Begins the handover as soon as nothing is in use that cannot be continued. Returns before if the
/// program cannot take over.
pub(super) async fn begin(program: NextProgram, sessions: Sessions, shutdown: Shutdown) {
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = None;
    loop {
        tokio::select! {
            _ = checks.tick() => {}
            () = shutdown.requested() => return,
        }
        if !sessions.may_be_in_use() {
            continue;
        }
        let agent = sessions.current().agent;
        let used = tokio::select! {
            used = in_use_for_long(&agent) => used,
            () = shutdown.requested() => return,
        };
        if let Some(in_use) = used {
            if reported.replace(in_use) != Some(in_use) {
                tracing::info!(in_use, "the agent is replaced when this has ended");
            }
            continue;
        }
        if let Err(error) = program.check().await {
            tracing::warn!("the browser cannot be handed over: {error}");
            return;
        }
        if sessions.begin_handover(|agent| in_use(agent).is_none()) {
            return;
        }
    }
}

/// Names something in use that the next program cannot continue.
fn in_use(agent: &Agent) -> Option<&'static str> {
    let resumable = agent.resumable_connections.count();
    if !matches!(agent.chromium.current(), BrowserState::Running(_)) {
        Some("the start of the browser")
    } else if agent.processes.is_any_known() {
        Some("client processes")
    } else if agent.automation.has_executors() {
        Some("executors of scripts")
    } else if agent.replays.is_recording() {
        Some("recordings")
    } else if agent.watches.count() > 0 {
        Some("watches")
    } else if agent.cdp_clients.count() > resumable {
        Some("DevTools connections that cannot be resumed")
    } else if agent.session.requests.count() > 0 {
        Some("requests")
    } else {
        None
    }
}

/// Does the same, and also names what takes a while to find.
async fn in_use_for_long(agent: &Agent) -> Option<&'static str> {
    if let Some(in_use) = in_use(agent) {
        Some(in_use)
    } else if agent.processes.has_left_any().await {
        Some("daemons of clients")
    } else if !agent.chromium.responds().await {
        Some("a browser that does not respond")
    } else {
        None
    }
}

/// Continues with the next program. Returns if a shutdown was requested meanwhile.
///
/// # Errors
/// Fails if no program can be started.
pub(super) async fn continue_with(program: NextProgram, stopped: Stopped) -> io::Result<()> {
    let session = PassedSession::of(&stopped.sessions.current().agent).await;
    let session = session
        .inspect_err(|error| tracing::error!(%error, "the browser is not handed over"))
        .ok();
    let kept = session.as_ref().map(|session| session.browser.pids());
    let listener = stopped.listener.map(PassedDescriptor::new).transpose();
    let listener = listener
        .inspect_err(|error| tracing::error!(%error, "the socket is not handed over"))
        .ok();
    let state = PassedAgent {
        listener: listener.flatten(),
        session,
    };
    tracing::info!("continuing with the program on disk");
    let shutdown = stopped.shutdown;
    let is_given_up = move || !shutdown.is_handover();
    program
        .exec(state, kept.unwrap_or_default(), is_given_up)
        .await
}

/// Listens on the address, with the socket of the program before if it has that address.
pub(super) async fn listen(
    address: SocketAddr,
    passed: Option<PassedDescriptor>,
) -> io::Result<TcpListener> {
    if let Some(passed) = passed {
        let listener = std::net::TcpListener::from(passed.into_inner());
        let bound = listener.local_addr()?;
        let is_any_port = address.port() == 0 && address.ip() == bound.ip();
        if bound == address || is_any_port {
            listener.set_nonblocking(true)?;
            return TcpListener::from_std(listener);
        }
    }
    TcpListener::bind(address).await
}
