//! The supervisor: the task that owns the display and Chromium, and starts them again.
//!
//! ```text
//! Starting --DevTools answers--> Running --crash, hang, display gone--> Restarting --delay--+
//!    ^                              |  \--restart, resize, profile lease--> Restarting ----+ |
//!    |                              |                                                      | |
//!    |                              +--shutdown--> Stopped                                 | |
//!    +-------------------------------------------------------------------------------------+-+
//! ```
//!
//! | file | job |
//! |---|---|
//! | `mod` | the loop of starts and runs; publishes the state |
//! | `start` | one start of the display and of Chromium |
//! | `attend` | one run of Chromium: watches it, and handles requests |
//! | `restart_delay` | the back-off between starts |

mod attend;
mod restart_delay;
mod start;

use std::{
    future,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::Utc;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time,
};
use url::Url;

use self::{attend::RunEnd, restart_delay::RestartDelay};
use super::{
    AdoptedBrowser, BrowserState, Chromium, DisplayStatus, Identity, LeaseError, LeaseMode,
    NotReady, ProfileLease, Request, ResizeError, Status, StoppedBrowser, changes::Changes,
    handover::PassedStatus, kill_left_processes, launch::Process, leftovers,
};
use crate::{
    agent::{display::Display, logs::Logs, settings::Config},
    api::viewport::Viewport,
    shutdown::Shutdown,
};

/// The most requests queued for the supervisor.
const REQUEST_QUEUE: usize = 16;

struct Supervisor {
    config: Arc<Config>,
    identity: Arc<Identity>,
    logs: Logs,
    shutdown: Shutdown,
    requests: mpsc::Receiver<Request>,
    state: watch::Sender<BrowserState>,
    status: watch::Sender<Status>,
    /// The generation of the last Chromium whose page got the keyboard focus.
    focused: watch::Sender<u64>,
    viewport: Viewport,
    start_url: Option<Url>,
    changes: Changes,
    generation: u64,
    restart_delay: RestartDelay,
    display: Option<Display>,
    /// Whether displays start with a larger frame buffer, so that they can be resized at run time.
    reserves_frame_buffer: bool,
    /// The reply to a resize that restarts Chromium, sent when the next one runs.
    resize_reply: Option<oneshot::Sender<Result<(), ResizeError>>>,
    /// The browser of the program before, until it is attended.
    adopted: Option<AdoptedBrowser>,
    /// Receives the browser that the next program takes over.
    stopped: Arc<Mutex<Option<StoppedBrowser>>>,
}

/// Starts the supervisor, and returns the handle at once. It continues with an `adopted` browser,
/// if there is one.
pub(in crate::agent) fn start(
    config: Arc<Config>,
    identity: Identity,
    logs: Logs,
    adopted: Option<AdoptedBrowser>,
    shutdown: &Shutdown,
) -> Chromium {
    let identity = Arc::new(identity);
    let changes = Changes::read(&config.session_dir);
    let viewport = changes.viewport.unwrap_or(config.viewport);
    let stopped = Arc::default();
    let (requests_sender, requests) = mpsc::channel(REQUEST_QUEUE);
    let (state, state_receiver) = watch::channel(BrowserState::Starting);
    let (status, status_receiver) = watch::channel(Status {
        state: BrowserState::Starting,
        since: Utc::now(),
        restarts: 0,
        has_run: false,
        display: if config.headless {
            DisplayStatus::Headless
        } else {
            DisplayStatus::Down
        },
        viewport,
        identity: identity.clone(),
    });
    let (focused, focused_receiver) = watch::channel(0);
    let supervisor = Supervisor {
        shutdown: shutdown.clone(),
        requests,
        state,
        status,
        focused,
        viewport,
        start_url: changes
            .start_url
            .clone()
            .or_else(|| config.start_url.clone()),
        changes,
        generation: 0,
        restart_delay: RestartDelay::new(),
        display: None,
        reserves_frame_buffer: true,
        resize_reply: None,
        adopted,
        stopped: Arc::clone(&stopped),
        config,
        identity,
        logs,
    };
    shutdown.spawn(supervisor.run());
    Chromium {
        state: state_receiver,
        status: status_receiver,
        focused: focused_receiver,
        requests: requests_sender,
        stopped,
    }
}

impl Supervisor {
    async fn run(mut self) {
        if self.adopted.is_none() {
            // Those of an earlier agent.
            kill_left_processes(self.config.session_dir.root());
        }
        if let Some(process) = self.run_until_shutdown().await {
            let stopped = StoppedBrowser {
                process,
                display: self.display.take(),
                status: PassedStatus {
                    viewport: self.viewport,
                    restarts: self.status.borrow().restarts,
                    reserves_frame_buffer: self.reserves_frame_buffer,
                },
            };
            *self.stopped.lock() = Some(stopped);
        }
        if let Some(display) = self.display.take() {
            display.terminate().await;
        }
        self.publish_display();
        self.publish(BrowserState::Stopped);
    }

    /// Returns Chromium if it still runs, for the next program of the agent.
    async fn run_until_shutdown(&mut self) -> Option<Process> {
        let shutdown = self.shutdown.clone();
        loop {
            let started = tokio::select! {
                biased;
                () = shutdown.requested() => return None,
                started = self.start_or_adopt() => started,
            };
            let started_at = Instant::now();
            let end = match started {
                Ok(process) => self.attend(process).await,
                Err(error) => {
                    if let Some(tail) = error.output_tail() {
                        tracing::error!(%error, tail, "start failed");
                    }
                    self.recover_from_failed_start();
                    RunEnd::Failed(error.to_string().into())
                }
            };
            let (reason, delay) = match end {
                RunEnd::Shutdown => return None,
                RunEnd::Handover(process) => return Some(*process),
                RunEnd::Requested(reason) => (reason, None),
                RunEnd::Failed(reason) => {
                    let delay = self.restart_delay.after_failure(started_at.elapsed());
                    tracing::warn!(
                        delay_ms = delay.as_millis() as u64,
                        "restarting Chromium: {reason}"
                    );
                    (reason, Some(delay))
                }
            };
            self.publish_restarting(&reason, delay.is_some());
            // A requested restart has no delay, not even zero: a lease that is granted during the
            // delay would report that Chromium has not closed cleanly.
            let Some(delay) = delay else { continue };
            self.stay_closed(Some(delay), false).await;
        }
    }

    /// Handles requests while Chromium is closed: for some time, or until one has it started.
    async fn stay_closed(&mut self, time: Option<Duration>, closed_cleanly: bool) {
        let shutdown = self.shutdown.clone();
        let ended = async move {
            match time {
                Some(time) => time::sleep(time).await,
                None => future::pending().await,
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                () = &mut ended => return,
                request = self.requests.recv() => match request {
                    None | Some(Request::Restart { .. }) => return,
                    Some(Request::StartUrl(url)) => self.set_start_url(url),
                    Some(Request::Resize { reply, .. }) => {
                        let _ = reply.send(Err(NotReady::Restarting.into()));
                    }
                    Some(Request::Lease { reply, .. }) if reply.is_closed() => {}
                    Some(Request::Lease { mode: LeaseMode::Frozen, reply, .. }) => {
                        let _ = reply.send(Err(NotReady::Restarting.into()));
                    }
                    Some(Request::Lease { mode, reply, .. }) => {
                        self.grant_lease(reply, closed_cleanly).await;
                        if mode == LeaseMode::Closed {
                            return;
                        }
                    }
                },
            }
        }
    }

    /// Grants a lease of the profile, and waits until it ends.
    async fn grant_lease(
        &self,
        reply: oneshot::Sender<Result<ProfileLease, LeaseError>>,
        closed_cleanly: bool,
    ) {
        let (release, released) = oneshot::channel();
        // If the caller has gone, this drops the lease, which ends it at once.
        let _ = reply.send(Ok(ProfileLease {
            closed_cleanly,
            release,
        }));
        tokio::select! {
            _ = released => {}
            () = self.shutdown.requested() => {}
        }
    }

    fn set_start_url(&mut self, url: Url) {
        self.changes.start_url = Some(url.clone());
        self.changes.store(&self.config.session_dir);
        self.start_url = Some(url);
    }

    fn set_viewport(&mut self, viewport: Viewport) {
        self.changes.viewport = Some(viewport);
        self.changes.store(&self.config.session_dir);
        self.viewport = viewport;
    }

    /// Removes possible causes of a failed start.
    fn recover_from_failed_start(&mut self) {
        if let Some(reply) = self.resize_reply.take() {
            let _ = reply.send(Err(NotReady::Restarting.into()));
        }
        let user_data = self.config.session_dir.user_data();
        for path in leftovers::set_torn_preferences_aside(&user_data) {
            tracing::warn!(path = %path.display(), "moved a torn file of the profile aside");
        }
    }

    /// Publishes that Chromium will be started again. It is counted if one that was up has ended
    /// unexpectedly.
    fn publish_restarting(&self, reason: &Arc<str>, is_unexpected: bool) {
        self.status.send_modify(|status| {
            let was_up = status.state.devtools().is_some();
            status.restarts += u64::from(was_up && is_unexpected);
        });
        self.publish(BrowserState::Restarting {
            reason: reason.clone(),
        });
    }

    fn publish(&self, state: BrowserState) {
        self.status.send_modify(|status| {
            status.since = Utc::now();
            status.viewport = self.viewport;
            status.has_run |= state.devtools().is_some();
            status.state = state.clone();
        });
        metrics::gauge!("berth_chromium_up").set(u8::from(state.devtools().is_some()));
        metrics::counter!("berth_chromium_restarts_total").absolute(self.status.borrow().restarts);
        self.state.send_replace(state);
    }

    fn publish_display(&self) {
        let display = match &self.display {
            _ if self.config.headless => DisplayStatus::Headless,
            None => DisplayStatus::Down,
            Some(display) => DisplayStatus::Up {
                name: display.name().into(),
                pid: display.pid(),
                access: display.access().clone(),
            },
        };
        self.status.send_modify(|status| status.display = display);
    }
}
