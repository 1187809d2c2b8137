//! Chromium: started, watched, and restarted when it dies.
//!
//! ```text
//! services, routes --Chromium (handle)--Request--> supervisor task --> Display (X server process)
//!        ^                                               |      \--> Process (Chromium)
//!        +--------- BrowserState, Status (watch) --------+
//! ```
//!
//! The supervisor task owns the processes, the viewport and the start URL. All others hold the
//! handle [`Chromium`]: they watch the published state and send requests.
//!
//! | file | job |
//! |---|---|
//! | `supervisor` | the state machine of starts, runs and restarts |
//! | `identity` | the user that Chromium runs as, and its sandbox |
//! | `launch` | one Chromium process: its command line, readiness, and orderly end |
//! | `health` | whether it still answers |
//! | `cookies` | the cookies in its memory, written to its profile |
//! | `handover` | a running browser that the next program of the agent takes over |
//! | `changes` | what clients have changed, stored for the next agent |
//! | `tabs` | the order of the tabs by use |
//! | `front` | the tab in front |
//! | `leftovers` | traces of a crash: orphaned processes, profile locks, torn files |
//! | `renewal` | new processes for the pages of a browser that was not used |
//! | `temporary` | Chromium's directory of temporary files |

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::{
    api::viewport::Viewport,
    system::{
        cdp::{
            connection::{BrowserVersion, Cdp, CdpError},
            multiplexer::Multiplexer,
        },
        process::freeze::FreezeError,
        profile::database::CookieId,
        x11::server::DisplayAccess,
    },
};

mod changes;
mod cookies;
pub mod front;
mod handover;
mod health;
mod identity;
mod launch;
mod leftovers;
mod renewal;
mod stored_tabs;
mod supervisor;
mod tabs;
mod temporary;

use self::tabs::TabOrder;
pub(super) use self::{
    handover::{AdoptedBrowser, PassedBrowser, StoppedBrowser},
    identity::{Identity, missing_capabilities, needed_paths},
    supervisor::start,
};
pub use self::{identity::IdentityError, renewal::RenewalError};

/// The records of the processes of a session.
const PROCESS_RECORDS: [&str; 2] = ["chromium.pid", "xvfb.pid"];
/// The longest wait of input and screenshots for a Chromium that is restarting.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a page to get the keyboard focus. A page that hangs delays typing by no
/// more than this.
const FOCUS_TIMEOUT: Duration = Duration::from_secs(5);

/// A running Chromium, as its DevTools clients see it.
#[derive(Debug)]
pub struct Devtools {
    /// The connection to Chromium, for any number of clients.
    pub multiplexer: Multiplexer,
    /// The id in the path of the browser's WebSocket, `/devtools/browser/<id>`.
    pub browser_id: Uuid,
    /// The number of this Chromium among those that the agent has started, from 1.
    pub generation: u64,
    pub pid: u32,
    pub version: BrowserVersion,
    /// The agent's own connection.
    cdp: Cdp,
    tab_order: TabOrder,
}

/// The state of the browser, as clients see it.
#[derive(Clone, Debug)]
pub enum BrowserState {
    /// No Chromium has answered since the agent started.
    Starting,
    Running(Arc<Devtools>),
    /// Chromium has ended or is being closed, and will be started again.
    Restarting {
        reason: Arc<str>,
    },
    /// The agent is shutting down.
    Stopped,
}

impl BrowserState {
    pub fn devtools(&self) -> Option<&Arc<Devtools>> {
        match self {
            Self::Running(devtools) => Some(devtools),
            _ => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running(_) => "running",
            Self::Restarting { .. } => "restarting",
            Self::Stopped => "stopped",
        }
    }
}

/// The state of Chromium and its display, for status reports.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: BrowserState,
    pub since: DateTime<Utc>,
    /// The number of restarts after Chromium ended unexpectedly.
    pub restarts: u64,
    /// Whether a Chromium has been up.
    pub(super) has_run: bool,
    pub display: DisplayStatus,
    pub viewport: Viewport,
    pub(super) identity: Arc<Identity>,
}

/// The state of the display.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DisplayStatus {
    Headless,
    Down,
    Up {
        name: Arc<str>,
        pid: u32,
        access: DisplayAccess,
    },
}

/// Kills the Chromium and the X server of the session in `directory`, whose agent was killed.
pub(super) fn kill_left_processes(directory: &Path) {
    for name in PROCESS_RECORDS {
        if let Err(error) = leftovers::kill_recorded(&directory.join("run").join(name)) {
            tracing::warn!(%error, name, "cannot read a process record of an earlier agent");
        }
    }
}

/// Why no running Chromium is available.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("Chromium did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("Chromium is restarting")]
    Restarting,
    #[error("the agent is shutting down")]
    Stopped,
}

/// Why no screen is available.
#[derive(Debug, thiserror::Error)]
pub enum NoScreen {
    #[error("this browser runs without a display")]
    Headless,
    #[error("the display is starting")]
    Down,
}

/// Why the screen was not resized.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("cannot resize the display: {0}")]
    Failed(String),
}

/// A request to the supervisor.
enum Request {
    Restart {
        /// The generation that the requester knows. A later Chromium is not restarted.
        generation: u64,
        reason: Arc<str>,
    },
    Resize {
        viewport: Viewport,
        reply: oneshot::Sender<Result<(), ResizeError>>,
    },
    /// Sets the page that every later Chromium opens first.
    StartUrl(url::Url),
    /// Leases the profile.
    Lease {
        mode: LeaseMode,
        reason: Arc<str>,
        reply: oneshot::Sender<Result<ProfileLease, LeaseError>>,
    },
}

/// The way in which Chromium is kept from its profile during a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseMode {
    /// Chromium is closed, and started again afterwards. Clients are held as on any restart.
    Closed,
    /// Chromium is closed, and started again only when that is requested, or after another lease.
    KeptClosed,
    /// All processes of Chromium are stopped, and continue afterwards.
    Frozen,
}

/// A lease of the profile: Chromium does not access it until this is dropped.
#[derive(Debug)]
pub struct ProfileLease {
    /// Whether the profile is complete: Chromium has neither crashed nor been killed.
    pub closed_cleanly: bool,
    release: oneshot::Sender<()>,
}

impl ProfileLease {
    /// Whether the lease is still valid. A shutdown revokes it.
    pub fn is_valid(&self) -> bool {
        !self.release.is_closed()
    }
}

/// Why the profile was not leased.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("cannot freeze Chromium: {0}")]
    Freeze(#[from] FreezeError),
}

/// The handle of the supervisor, which owns the processes.
#[derive(Clone)]
pub struct Chromium {
    state: watch::Receiver<BrowserState>,
    status: watch::Receiver<Status>,
    focused: watch::Receiver<u64>,
    requests: mpsc::Sender<Request>,
    /// The browser that still runs after the supervisor has ended for another program.
    stopped: Arc<Mutex<Option<StoppedBrowser>>>,
}

impl Chromium {
    /// Returns whether a running Chromium answers.
    pub(super) async fn responds(&self) -> bool {
        match self.current().devtools() {
            Some(devtools) => devtools.cdp.version().await.is_ok(),
            None => false,
        }
    }

    /// Returns the browser that still runs, after the end of the supervisor for another program.
    pub(super) fn take_stopped(&self) -> Option<StoppedBrowser> {
        self.stopped.lock().take()
    }

    pub fn watch(&self) -> watch::Receiver<BrowserState> {
        self.state.clone()
    }

    pub fn current(&self) -> BrowserState {
        self.state.borrow().clone()
    }

    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Returns the access to Chromium's screen. A restart of the display replaces the screen.
    pub fn screen(&self) -> Result<DisplayAccess, NoScreen> {
        match &self.status.borrow().display {
            DisplayStatus::Headless => Err(NoScreen::Headless),
            DisplayStatus::Down => Err(NoScreen::Down),
            DisplayStatus::Up { access, .. } => Ok(access.clone()),
        }
    }

    /// Returns the access to Chromium's screen, or `None` if the configuration has no display.
    pub fn optional_screen(&self) -> Result<Option<DisplayAccess>, NoScreen> {
        match self.screen() {
            Ok(access) => Ok(Some(access)),
            Err(NoScreen::Headless) => Ok(None),
            Err(NoScreen::Down) => Err(NoScreen::Down),
        }
    }

    /// Waits until the page of a new Chromium has the keyboard focus, or for `FOCUS_TIMEOUT`.
    pub async fn wait_until_focused(&self) {
        let Some(devtools) = self.current().devtools().cloned() else {
            return;
        };
        let mut focused = self.focused.clone();
        let reached = focused.wait_for(|generation| *generation >= devtools.generation);
        let _ = tokio::time::timeout(FOCUS_TIMEOUT, reached).await;
    }

    /// Waits for the next Chromium if an earlier one has gone. Returns at once otherwise.
    pub async fn wait_for_restart(&self) -> Result<(), NotReady> {
        let has_run = self.status.borrow().has_run;
        if has_run && matches!(self.current(), BrowserState::Restarting { .. }) {
            self.ready(RESTART_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Waits until Chromium answers.
    pub async fn ready(&self, timeout: Duration) -> Result<Arc<Devtools>, NotReady> {
        self.ready_after(0, timeout).await
    }

    /// Closes Chromium and waits until the next one answers. A delayed start happens at once.
    pub async fn restart(
        &self,
        reason: &str,
        timeout: Duration,
    ) -> Result<Arc<Devtools>, NotReady> {
        let generation = self
            .current()
            .devtools()
            .map_or(0, |devtools| devtools.generation);
        let request = Request::Restart {
            generation,
            reason: reason.into(),
        };
        self.send(request, timeout).await?;
        self.ready_after(generation, timeout).await
    }

    /// Changes the size of the screen, and of Chromium's windows.
    pub async fn resize(&self, viewport: Viewport, timeout: Duration) -> Result<(), ResizeError> {
        self.ready(timeout).await?;
        let (reply, resized) = oneshot::channel();
        self.send(Request::Resize { viewport, reply }, timeout)
            .await?;
        match tokio::time::timeout(timeout, resized).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(NotReady::Stopped.into()),
            Err(_) => Err(NotReady::Timeout(timeout).into()),
        }
    }

    /// Opens `url` in the tab in front, and after every later start of Chromium. A page that does
    /// not load is no error: the tab shows it.
    pub async fn open_start_url(&self, url: url::Url, timeout: Duration) -> Result<(), NotReady> {
        let devtools = self.ready(timeout).await?;
        let request = Request::StartUrl(url.clone());
        self.send(request, timeout).await?;
        match front::open_in_front(&devtools, &url).await {
            // The navigation continues after the timeout.
            Ok(()) | Err(CdpError::Timeout { .. }) | Err(CdpError::Failed { .. }) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "cannot open the start page");
                Err(NotReady::Restarting)
            }
        }
    }

    /// Leases the profile. Waits for a Chromium that is starting.
    pub async fn lease_profile(
        &self,
        mode: LeaseMode,
        reason: &str,
        timeout: Duration,
    ) -> Result<ProfileLease, LeaseError> {
        let (reply, lease) = oneshot::channel();
        let request = Request::Lease {
            mode,
            reason: reason.into(),
            reply,
        };
        self.send(request, timeout).await?;
        match tokio::time::timeout(timeout, lease).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(_)) => Err(NotReady::Stopped.into()),
            Err(_) => Err(NotReady::Timeout(timeout).into()),
        }
    }

    /// Queues a request. The queue may be full while the profile is leased.
    async fn send(&self, request: Request, timeout: Duration) -> Result<(), NotReady> {
        match tokio::time::timeout(timeout, self.requests.send(request)).await {
            Ok(sent) => sent.map_err(|_| NotReady::Stopped),
            Err(_) => Err(NotReady::Timeout(timeout)),
        }
    }

    /// Makes Chromium write the cookies in its memory to the profile. Returns whether the write was
    /// observed.
    pub async fn flush_cookies(&self, user_data: &Path) -> Result<bool, NotReady> {
        let devtools = self.ready(launch::CDP_CALL_TIMEOUT).await?;
        match cookies::flush_cookies(&devtools, user_data).await {
            Ok(written) => Ok(written),
            Err(error) => {
                tracing::warn!(%error, "cannot flush the cookies");
                Ok(false)
            }
        }
    }

    /// Returns the cookies. `None` if Chromium does not return them.
    pub async fn cookie_ids(&self) -> Result<Option<BTreeSet<CookieId>>, NotReady> {
        let devtools = self.ready(launch::CDP_CALL_TIMEOUT).await?;
        let keys = devtools.cdp.cookie_ids().await;
        Ok(keys
            .inspect_err(|error| tracing::warn!(%error, "cannot list the cookies"))
            .ok())
    }

    /// Waits until a Chromium later than `generation` answers.
    pub async fn ready_after(
        &self,
        generation: u64,
        timeout: Duration,
    ) -> Result<Arc<Devtools>, NotReady> {
        tokio::time::timeout(timeout, self.accepting_after(generation))
            .await
            .map_err(|_| NotReady::Timeout(timeout))?
    }

    async fn accepting_after(&self, mut generation: u64) -> Result<Arc<Devtools>, NotReady> {
        let mut state = self.watch();
        loop {
            let devtools = state
                .wait_for(|state| match state {
                    BrowserState::Running(devtools) => devtools.generation > generation,
                    state => matches!(state, BrowserState::Stopped),
                })
                .await
                .ok()
                .and_then(|state| state.devtools().cloned())
                .ok_or(NotReady::Stopped)?;
            // A killed process closes its pipe well before its parent can notice its end.
            if !devtools.multiplexer.has_ended() {
                return Ok(devtools);
            }
            generation = devtools.generation;
        }
    }
}
