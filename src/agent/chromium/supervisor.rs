//! The task that owns the display and Chromium and starts again what dies.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::Utc;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time,
};
use url::Url;

use super::{
    BrowserState, Chromium, Devtools, DisplayStatus, Held, Hold, HoldError, NotReady, Request,
    ResizeError, Status,
    backoff::Backoff,
    front::{self, open_in_front},
    launch::{self, LaunchError, Process},
    leftovers,
};
use crate::{
    agent::{
        display::{Display, DisplayError},
        logs::Logs,
        settings::Config,
    },
    api::viewport::Viewport,
    shutdown::Shutdown,
    system::process::freeze::FrozenGroup,
};

/// Requests that may wait for the supervisor.
const QUEUE: usize = 16;
/// A page that is slower to answer goes on loading while the browser is already handed out.
const START_URL_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Display(#[from] DisplayError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

impl StartError {
    fn tail(&self) -> Option<&str> {
        match self {
            Self::Display(DisplayError::Ended { tail, .. })
            | Self::Launch(LaunchError::Ended { tail, .. }) => Some(tail),
            _ => None,
        }
    }
}

/// Why a running Chromium is no longer attended.
enum End {
    Stopped,
    Asked(Arc<str>),
    Died(Arc<str>),
}

struct Supervisor {
    config: Arc<Config>,
    logs: Logs,
    shutdown: Shutdown,
    requests: mpsc::Receiver<Request>,
    state: watch::Sender<BrowserState>,
    status: watch::Sender<Status>,
    /// Which Chromium's page has been given the keyboard.
    focused: watch::Sender<u64>,
    viewport: Viewport,
    start_url: Option<Url>,
    generation: u64,
    backoff: Backoff,
    display: Option<Display>,
    /// Whether displays are started larger than they are, to be resized while they run.
    roomy: bool,
    /// Answered when the next Chromium runs.
    resizing: Option<oneshot::Sender<Result<(), ResizeError>>>,
}

/// Begins to supervise; returns at once.
pub fn start(config: Arc<Config>, logs: Logs, shutdown: &Shutdown) -> Chromium {
    let (requests_sender, requests) = mpsc::channel(QUEUE);
    let (state, state_receiver) = watch::channel(BrowserState::Starting);
    let (status, status_receiver) = watch::channel(Status {
        state: BrowserState::Starting,
        since: Utc::now(),
        restarts: 0,
        display: if config.headless {
            DisplayStatus::Headless
        } else {
            DisplayStatus::Down
        },
        viewport: config.viewport,
    });
    let (focused, focused_receiver) = watch::channel(0);
    let supervisor = Supervisor {
        shutdown: shutdown.clone(),
        requests,
        state,
        status,
        focused,
        viewport: config.viewport,
        start_url: config.start_url.clone(),
        generation: 0,
        backoff: Backoff::default(),
        display: None,
        roomy: true,
        resizing: None,
        config,
        logs,
    };
    shutdown.spawn(supervisor.run());
    Chromium {
        state: state_receiver,
        status: status_receiver,
        focused: focused_receiver,
        requests: requests_sender,
    }
}

impl Supervisor {
    async fn run(mut self) {
        for name in ["chromium.pid", "xvfb.pid"] {
            if let Err(error) = leftovers::kill_recorded(&self.config.state_dir.run().join(name)) {
                tracing::warn!(%error, name, "a record of an earlier agent could not be read");
            }
        }
        let shutdown = self.shutdown.clone();
        loop {
            let started = tokio::select! {
                biased;
                () = shutdown.stopped() => break,
                started = self.start() => started,
            };
            let begun = Instant::now();
            let end = match started {
                Ok(process) => self.attend(process).await,
                Err(error) => {
                    if let Some(tail) = error.tail() {
                        tracing::error!(%error, tail, "a start failed");
                    }
                    self.repair();
                    End::Died(error.to_string().into())
                }
            };
            let (reason, pause) = match end {
                End::Stopped => break,
                End::Asked(reason) => (reason, None),
                End::Died(reason) => {
                    let pause = self.backoff.after_failure(begun.elapsed());
                    tracing::warn!(%reason, pause_ms = pause.as_millis() as u64, "Chromium is restarted");
                    (reason, Some(pause))
                }
            };
            self.tell(BrowserState::Restarting { reason });
            // After one that was asked for there is none, not even the least: whoever wants the profile next would be told that nothing was closed in order.
            let Some(pause) = pause else { continue };
            tokio::select! {
                biased;
                () = shutdown.stopped() => break,
                () = self.pause(pause) => {}
            }
        }
        if let Some(display) = self.display.take() {
            display.end().await;
        }
        self.tell_display();
        self.tell(BrowserState::Stopped);
    }

    async fn start(&mut self) -> Result<Process, StartError> {
        // It may have died while no Chromium was attended.
        if self.display.as_mut().is_some_and(Display::has_ended) {
            self.display = None;
            self.tell_display();
        }
        let mut fresh = false;
        if !self.config.headless && self.display.is_none() {
            let display = Display::start(
                &self.config,
                self.viewport,
                self.roomy,
                self.logs.xvfb.listener(),
            )
            .await?;
            let record = self.config.state_dir.run().join("xvfb.pid");
            leftovers::record(&record, display.pid()).map_err(DisplayError::from)?;
            self.display = Some(display);
            fresh = true;
        }
        let begun = Instant::now();
        self.generation += 1;
        let display = self.display.as_ref();
        // The server gets its mode while Chromium comes up to ask for it. Nobody else is told of the screen before it has its size.
        let set_mode = async {
            if let Some(display) = display
                && fresh
            {
                if self.roomy {
                    display.set_mode(self.viewport).await?;
                }
                self.tell_display();
            }
            Ok(())
        };
        let process = Process::start(
            &self.config,
            self.viewport,
            display,
            self.generation,
            self.logs.chromium.listener(),
        );
        let (mode, process) = tokio::join!(set_mode, process);
        if let Err(error) = mode {
            if matches!(error, DisplayError::Mode(_)) {
                // The next one is started with its final size.
                tracing::warn!(%error, "the X server cannot be resized while it runs");
                self.roomy = false;
            }
            self.display = None;
            return Err(error.into());
        }
        let process = process?;
        tracing::info!(
            pid = process.devtools.pid,
            generation = self.generation,
            version = process.devtools.version,
            after_ms = begun.elapsed().as_millis() as u64,
            "Chromium answers"
        );
        if self.display.is_some() {
            self.focus_page(process.devtools.clone());
        }
        if let Some(url) = &self.start_url {
            // It is no reason to withhold the browser; a page that does not load is seen in the tab.
            let opened = open_in_front(&process.devtools, url, START_URL_PATIENCE).await;
            if let Err(error) = opened {
                tracing::warn!(%error, "the start page could not be opened");
            }
        }
        Ok(process)
    }

    /// Sees to it that the page has the keyboard, which takes Chromium a while after it has answered.
    fn focus_page(&self, devtools: Arc<Devtools>) {
        let focused = self.focused.clone();
        self.shutdown.spawn(async move {
            if let Err(error) = front::focus_page(&devtools).await {
                tracing::debug!(%error, "the page may be without the keyboard's focus");
            }
            focused.send_replace(devtools.generation);
        });
    }

    /// Stays with a running Chromium until it has ended.
    async fn attend(&mut self, mut process: Process) -> End {
        self.tell(BrowserState::Running(process.devtools.clone()));
        if let Some(reply) = self.resizing.take() {
            let _ = reply.send(Ok(()));
        }
        let shutdown = self.shutdown.clone();
        let hung = process.devtools.clone();
        let mut hung = std::pin::pin!(launch::hung(&hung));
        loop {
            let request = tokio::select! {
                biased;
                () = shutdown.stopped() => {
                    process.close().await;
                    return End::Stopped;
                }
                reason = process.ended() => return End::Died(reason.into()),
                reason = &mut hung => return self.kill(process, reason.into()).await,
                reason = ended(&mut self.display) => {
                    self.display = None;
                    self.tell_display();
                    // It cannot live without its screen; its own way of noticing takes longer.
                    return self.kill(process, reason.into()).await;
                }
                request = self.requests.recv() => request,
            };
            match request {
                // All handles are gone, the agent with them.
                None => {
                    process.close().await;
                    return End::Stopped;
                }
                Some(Request::Restart { generation, .. }) if generation < self.generation => {}
                Some(Request::Restart { reason, .. }) => {
                    self.tell_restarting(&reason);
                    process.close().await;
                    return End::Asked(reason);
                }
                Some(Request::StartUrl(url)) => self.start_url = url,
                // Nobody waits for it any more.
                Some(Request::Hold { reply, .. }) if reply.is_closed() => {}
                Some(Request::Hold {
                    how: Hold::Closed,
                    reason,
                    reply,
                }) => {
                    self.tell_restarting(&reason);
                    let in_order = process.close_well().await;
                    self.held(reply, in_order).await;
                    return End::Asked(reason);
                }
                Some(Request::Hold {
                    how: Hold::Frozen,
                    reply,
                    ..
                }) => {
                    let pid = process.devtools.pid;
                    let freezing = tokio::task::spawn_blocking(move || FrozenGroup::freeze(pid));
                    match freezing.await {
                        Ok(Ok(frozen)) => {
                            self.held(reply, true).await;
                            drop(frozen);
                        }
                        Ok(Err(error)) => {
                            let _ = reply.send(Err(error.into()));
                        }
                        Err(panic) => tracing::error!(%panic, "freezing Chromium failed"),
                    }
                }
                Some(Request::Resize { reply, .. }) if reply.is_closed() => {}
                Some(Request::Resize { viewport, reply }) => {
                    if self.fits(viewport) {
                        let _ = reply.send(self.resize(viewport, &process).await);
                        continue;
                    }
                    // A frame buffer cannot grow: the next one is made larger.
                    self.viewport = viewport;
                    self.resizing = Some(reply);
                    let reason: Arc<str> = "the screen is made larger than it had room for".into();
                    self.tell_restarting(&reason);
                    process.close().await;
                    if let Some(display) = self.display.take() {
                        display.end().await;
                    }
                    self.tell_display();
                    return End::Asked(reason);
                }
            }
        }
    }

    /// Hands out the profile, and waits until it is given back.
    async fn held(&self, reply: oneshot::Sender<Result<Held, HoldError>>, in_order: bool) {
        let (release, released) = oneshot::channel();
        let held = Held { in_order, release };
        // Where nobody waits for it any more, it is given back at once.
        let _ = reply.send(Ok(held));
        tokio::select! {
            _ = released => {}
            () = self.shutdown.stopped() => {}
        }
    }

    fn fits(&self, viewport: Viewport) -> bool {
        self.display
            .as_ref()
            .is_none_or(|display| display.has_room_for(viewport))
    }

    async fn resize(&mut self, viewport: Viewport, process: &Process) -> Result<(), ResizeError> {
        let failed = |error: &dyn std::fmt::Display| ResizeError::Failed(error.to_string());
        if let Some(display) = &self.display {
            display
                .set_mode(viewport)
                .await
                .map_err(|error| failed(&error))?;
        }
        self.viewport = viewport;
        self.status.send_modify(|status| status.viewport = viewport);
        process
            .fill_screen(viewport)
            .await
            .map_err(|error| failed(&error))
    }

    /// Waits before the next start; a request to restart ends the wait.
    async fn pause(&mut self, pause: Duration) {
        let over = time::sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                request = self.requests.recv() => match request {
                    None | Some(Request::Restart { .. }) => return,
                    Some(Request::StartUrl(url)) => self.start_url = url,
                    Some(Request::Resize { reply, .. }) => {
                        let _ = reply.send(Err(NotReady::Restarting.into()));
                    }
                    Some(Request::Hold { reply, .. }) if reply.is_closed() => {}
                    Some(Request::Hold { how: Hold::Frozen, reply, .. }) => {
                        let _ = reply.send(Err(NotReady::Restarting.into()));
                    }
                    Some(Request::Hold { how: Hold::Closed, reply, .. }) => {
                        self.held(reply, false).await;
                        return;
                    }
                },
            }
        }
    }

    /// After a start that failed: puts out of the way what may have been the cause.
    fn repair(&mut self) {
        if let Some(reply) = self.resizing.take() {
            let _ = reply.send(Err(NotReady::Restarting.into()));
        }
        for path in leftovers::set_torn_preferences_aside(&self.config.state_dir.user_data()) {
            tracing::warn!(path = %path.display(), "a torn file of the profile was set aside");
        }
    }

    /// It may answer until it has ended, and nobody is to be sent there meanwhile.
    async fn kill(&self, process: Process, reason: Arc<str>) -> End {
        self.tell_restarting(&reason);
        process.kill().await;
        End::Died(reason)
    }

    fn tell_restarting(&self, reason: &Arc<str>) {
        self.tell(BrowserState::Restarting {
            reason: reason.clone(),
        });
    }

    fn tell(&self, state: BrowserState) {
        self.status.send_modify(|status| {
            let was_up = status.state.devtools().is_some();
            status.since = Utc::now();
            status.viewport = self.viewport;
            status.restarts +=
                u64::from(was_up && matches!(state, BrowserState::Restarting { .. }));
            status.state = state.clone();
        });
        metrics::gauge!("berth_chromium_up").set(u8::from(state.devtools().is_some()));
        metrics::counter!("berth_chromium_restarts_total").absolute(self.status.borrow().restarts);
        self.state.send_replace(state);
    }

    fn tell_display(&self) {
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

/// Resolves with the reason when the display ends; never without one.
async fn ended(display: &mut Option<Display>) -> String {
    match display {
        Some(display) => display.ended().await,
        None => std::future::pending().await,
    }
}
