//! Chromium, kept running: one task owns it and its display, everyone else watches.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    api::viewport::Viewport,
    system::{cdp::connection::CdpError, process::freeze::FreezeError, x11::server::DisplayAccess},
};

mod backoff;
pub mod front;
mod launch;
mod leftovers;
mod supervisor;
mod temporary;

pub use leftovers::OF_THE_PROCESS;
pub use supervisor::start;

/// For Chromium to come back, where it is being started, before mouse, keyboard or a screenshot are given up.
const BACK_LIMIT: Duration = Duration::from_secs(10);
/// For a page to get the keyboard: what is typed a little early is not held up by one that hangs.
const FOCUS_LIMIT: Duration = Duration::from_secs(5);

/// Where a running Chromium answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Devtools {
    /// `127.0.0.1:port`.
    pub addr: SocketAddr,
    /// `/devtools/browser/<uuid>`.
    pub browser_path: String,
    /// Counts the starts of Chromium under this agent, from 1.
    pub generation: u64,
    pub pid: u32,
    /// `Chrome/156.0.8078.79`.
    pub version: String,
}

impl Devtools {
    pub fn browser_url(&self) -> String {
        format!("ws://{}{}", self.addr, self.browser_path)
    }
}

#[derive(Clone, Debug)]
pub enum BrowserState {
    /// It has not answered yet since the agent began.
    Starting,
    Running(Arc<Devtools>),
    /// It ended, or is being ended, and will be started again.
    Restarting {
        reason: Arc<str>,
    },
    /// It ended with the agent and does not come back.
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

/// What is known of Chromium beyond the state.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: BrowserState,
    pub since: DateTime<Utc>,
    pub restarts: u64,
    pub display: DisplayStatus,
    pub viewport: Viewport,
}

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

#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("Chromium did not answer within {} s", .0.as_secs())]
    Deadline(Duration),
    #[error("Chromium is being restarted")]
    Restarting,
    #[error("the agent is being stopped")]
    Stopped,
}

/// Why there is no screen to work on.
#[derive(Debug, thiserror::Error)]
pub enum NoScreen {
    #[error("this browser runs without a display")]
    Headless,
    #[error("the display is being started")]
    Down,
}

#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("the display could not be resized: {0}")]
    Failed(String),
}

enum Request {
    Restart {
        /// The last one the asker knew of: a later one is not ended.
        generation: u64,
        reason: Arc<str>,
    },
    Resize {
        viewport: Viewport,
        reply: oneshot::Sender<Result<(), ResizeError>>,
    },
    /// What every Chromium from now on opens first.
    StartUrl(Option<url::Url>),
    Hold {
        how: Hold,
        reason: Arc<str>,
        reply: oneshot::Sender<Result<Held, HoldError>>,
    },
}

/// How Chromium is kept from its profile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hold {
    /// It is closed, and started again afterwards. Its clients are held meanwhile as on any restart.
    Closed,
    /// It is stopped where it is, with all its processes, and goes on afterwards.
    Frozen,
}

/// Chromium does not touch its profile as long as this is there.
#[derive(Debug)]
pub struct Held {
    /// Whether it has written all it had to: it was not killed, and had not crashed.
    pub in_order: bool,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Whether it still holds: at a stop Chromium is not kept waiting.
    pub fn holds(&self) -> bool {
        !self.release.is_closed()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("Chromium could not be frozen: {0}")]
    Freeze(#[from] FreezeError),
}

/// The handle; the supervisor owns the processes.
#[derive(Clone)]
pub struct Chromium {
    state: watch::Receiver<BrowserState>,
    status: watch::Receiver<Status>,
    focused: watch::Receiver<u64>,
    requests: mpsc::Sender<Request>,
}

impl Chromium {
    pub fn watch(&self) -> watch::Receiver<BrowserState> {
        self.state.clone()
    }

    pub fn current(&self) -> BrowserState {
        self.state.borrow().clone()
    }

    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The screen Chromium is on, as its clients reach it. After a restart of the display it is another one.
    pub fn screen(&self) -> Result<DisplayAccess, NoScreen> {
        match &self.status.borrow().display {
            DisplayStatus::Headless => Err(NoScreen::Headless),
            DisplayStatus::Down => Err(NoScreen::Down),
            DisplayStatus::Up { access, .. } => Ok(access.clone()),
        }
    }

    /// The same; nothing where Chromium runs without one.
    pub fn screen_if_any(&self) -> Result<Option<DisplayAccess>, NoScreen> {
        match self.screen() {
            Ok(access) => Ok(Some(access)),
            Err(NoScreen::Headless) => Ok(None),
            Err(NoScreen::Down) => Err(NoScreen::Down),
        }
    }

    /// Resolves once the page of a Chromium that has just been started has the keyboard, or has not got it in time.
    pub async fn focused(&self) {
        let Some(devtools) = self.current().devtools().cloned() else {
            return;
        };
        let mut focused = self.focused.clone();
        let by_now = focused.wait_for(|generation| *generation >= devtools.generation);
        let _ = tokio::time::timeout(FOCUS_LIMIT, by_now).await;
    }

    /// Resolves at once, but where Chromium was there and has gone: then once the next one answers.
    pub async fn back(&self) -> Result<(), NotReady> {
        let was_there = self.status.borrow().restarts > 0;
        if was_there && matches!(self.current(), BrowserState::Restarting { .. }) {
            self.ready(BACK_LIMIT).await?;
        }
        Ok(())
    }

    /// Resolves once Chromium answers.
    pub async fn ready(&self, deadline: Duration) -> Result<Arc<Devtools>, NotReady> {
        self.ready_after(0, deadline).await
    }

    /// Ends Chromium in order and resolves once the next one answers. One that is waiting to be started is started at once.
    pub async fn restart(
        &self,
        reason: &str,
        deadline: Duration,
    ) -> Result<Arc<Devtools>, NotReady> {
        let generation = self
            .current()
            .devtools()
            .map_or(0, |devtools| devtools.generation);
        let request = Request::Restart {
            generation,
            reason: reason.into(),
        };
        self.send(request, deadline).await?;
        self.ready_after(generation, deadline).await
    }

    /// Changes the screen's size while it runs; Chromium's windows follow.
    pub async fn resize(&self, viewport: Viewport, deadline: Duration) -> Result<(), ResizeError> {
        self.ready(deadline).await?;
        let (reply, resized) = oneshot::channel();
        self.send(Request::Resize { viewport, reply }, deadline)
            .await?;
        match tokio::time::timeout(deadline, resized).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(NotReady::Stopped.into()),
            Err(_) => Err(NotReady::Deadline(deadline).into()),
        }
    }

    /// Opens `url` in the tab in front and after every later start of Chromium. A page that does not load is seen in the tab and is no error.
    pub async fn open_start_url(&self, url: url::Url, deadline: Duration) -> Result<(), NotReady> {
        let devtools = self.ready(deadline).await?;
        let request = Request::StartUrl(Some(url.clone()));
        self.send(request, deadline).await?;
        match front::open_in_front(&devtools, &url, launch::CALL_DEADLINE).await {
            // The navigation goes on while its page keeps us waiting.
            Ok(()) | Err(CdpError::Deadline { .. }) | Err(CdpError::Refused { .. }) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "the start page could not be opened");
                Err(NotReady::Restarting)
            }
        }
    }

    /// Keeps Chromium from its profile until what this returns is dropped. One that is being started is waited for.
    pub async fn hold(
        &self,
        how: Hold,
        reason: &str,
        deadline: Duration,
    ) -> Result<Held, HoldError> {
        let (reply, held) = oneshot::channel();
        let request = Request::Hold {
            how,
            reason: reason.into(),
            reply,
        };
        self.send(request, deadline).await?;
        match tokio::time::timeout(deadline, held).await {
            Ok(Ok(held)) => held,
            Ok(Err(_)) => Err(NotReady::Stopped.into()),
            Err(_) => Err(NotReady::Deadline(deadline).into()),
        }
    }

    /// The queue is full while the profile is held for long.
    async fn send(&self, request: Request, deadline: Duration) -> Result<(), NotReady> {
        match tokio::time::timeout(deadline, self.requests.send(request)).await {
            Ok(sent) => sent.map_err(|_| NotReady::Stopped),
            Err(_) => Err(NotReady::Deadline(deadline)),
        }
    }

    /// Has Chromium write the cookies it holds in memory to its profile, and waits until it has; `false` where that could not be seen.
    pub async fn flush_cookies(&self, user_data: &Path) -> Result<bool, NotReady> {
        let devtools = self.ready(launch::CALL_DEADLINE).await?;
        match launch::flush_cookies(&devtools, user_data).await {
            Ok(written) => Ok(written),
            Err(error) => {
                tracing::warn!(%error, "the cookies could not be written");
                Ok(false)
            }
        }
    }

    /// Resolves once a Chromium later than `generation` answers.
    pub async fn ready_after(
        &self,
        generation: u64,
        deadline: Duration,
    ) -> Result<Arc<Devtools>, NotReady> {
        tokio::time::timeout(deadline, self.answering_after(generation))
            .await
            .map_err(|_| NotReady::Deadline(deadline))?
    }

    async fn answering_after(&self, mut generation: u64) -> Result<Arc<Devtools>, NotReady> {
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
            // A process that is killed closes its sockets well before its parent can know of its end.
            match TcpStream::connect(devtools.addr).await {
                Ok(_) => return Ok(devtools),
                Err(_) => generation = devtools.generation,
            }
        }
    }
}
