//! A run of Chromium: watches the process and the display, and handles requests.

use std::{ops::ControlFlow, pin::pin, sync::Arc};

use tokio::sync::oneshot;

use super::Supervisor;
use crate::{
    agent::{
        chromium::{
            BrowserState, LeaseError, LeaseMode, ProfileLease, Request, ResizeError, health,
            launch::Process,
        },
        display::Display,
    },
    api::viewport::Viewport,
    system::process::freeze::FrozenGroup,
};

/// Why a run of Chromium has ended.
pub(super) enum RunEnd {
    Shutdown,
    /// Chromium still runs, for the next program of the agent.
    Handover(Box<Process>),
    /// A request has ended it.
    Requested(Arc<str>),
    Failed(Arc<str>),
}

/// The event that ends the wait of a running Chromium's supervisor.
enum Event {
    Shutdown,
    ProcessEnded(String),
    ProcessHangs(String),
    DisplayEnded(String),
    Request(Request),
}

/// Whether the same Chromium continues to run after a request.
type AfterRequest = ControlFlow<RunEnd, Process>;

impl Supervisor {
    /// Attends a running Chromium until it has ended.
    pub(super) async fn attend(&mut self, mut process: Process) -> RunEnd {
        self.publish(BrowserState::Running(process.devtools.clone()));
        if let Some(reply) = self.resize_reply.take() {
            let _ = reply.send(Ok(()));
        }
        let devtools = process.devtools.clone();
        let mut hang = pin!(health::wait_for_hang(&devtools));
        let mut disconnected = pin!(health::wait_for_disconnection(&devtools));
        loop {
            let event = tokio::select! {
                biased;
                () = self.shutdown.requested() => Event::Shutdown,
                reason = process.ended() => Event::ProcessEnded(reason),
                reason = &mut hang => Event::ProcessHangs(reason),
                reason = &mut disconnected => Event::ProcessHangs(reason),
                reason = ended(&mut self.display) => Event::DisplayEnded(reason),
                // Without requesters, the agent has ended.
                request = self.requests.recv() => request.map_or(Event::Shutdown, Event::Request),
            };
            match event {
                Event::Shutdown if self.shutdown.is_handover() => {
                    return RunEnd::Handover(Box::new(process));
                }
                Event::Shutdown => {
                    match self.shutdown.is_discarded() {
                        true => process.kill().await,
                        false => process.close().await,
                    }
                    return RunEnd::Shutdown;
                }
                Event::ProcessEnded(reason) => return RunEnd::Failed(reason.into()),
                Event::ProcessHangs(reason) => return self.kill(process, reason).await,
                Event::DisplayEnded(reason) => {
                    self.display = None;
                    self.publish_display();
                    // Chromium cannot live without its display, but takes longer to notice.
                    return self.kill(process, reason).await;
                }
                Event::Request(request) => match self.handle_request(request, process).await {
                    ControlFlow::Continue(running) => process = running,
                    ControlFlow::Break(end) => return end,
                },
            }
        }
    }

    async fn handle_request(&mut self, request: Request, process: Process) -> AfterRequest {
        match request {
            Request::Restart { generation, .. } if generation < self.generation => {}
            Request::Restart { reason, .. } => {
                self.publish_restarting(&reason, false);
                process.close().await;
                return ControlFlow::Break(RunEnd::Requested(reason));
            }
            Request::StartUrl(url) => self.set_start_url(url),
            // The requester has gone.
            Request::Lease { reply, .. } if reply.is_closed() => {}
            Request::Lease {
                mode: mode @ (LeaseMode::Closed | LeaseMode::KeptClosed),
                reason,
                reply,
            } => {
                self.publish_restarting(&reason, false);
                let closed_cleanly = process.close_patiently().await;
                self.grant_lease(reply, closed_cleanly).await;
                if mode == LeaseMode::KeptClosed {
                    self.stay_closed(None, closed_cleanly).await;
                }
                return ControlFlow::Break(RunEnd::Requested(reason));
            }
            Request::Lease {
                mode: LeaseMode::Frozen,
                reply,
                ..
            } => self.grant_frozen_lease(reply, process.devtools.pid).await,
            Request::Resize { reply, .. } if reply.is_closed() => {}
            Request::Resize { viewport, reply } => {
                return self.handle_resize(viewport, reply, process).await;
            }
        }
        ControlFlow::Continue(process)
    }

    /// Freezes Chromium while the profile is leased.
    async fn grant_frozen_lease(
        &self,
        reply: oneshot::Sender<Result<ProfileLease, LeaseError>>,
        pid: u32,
    ) {
        match tokio::task::spawn_blocking(move || FrozenGroup::freeze(pid)).await {
            Ok(Ok(frozen)) => {
                self.grant_lease(reply, true).await;
                drop(frozen);
            }
            Ok(Err(error)) => {
                let _ = reply.send(Err(error.into()));
            }
            Err(panic) => tracing::error!(%panic, "freezing Chromium failed"),
        }
    }

    /// Resizes the display. A frame buffer cannot grow, so a larger screen restarts everything.
    async fn handle_resize(
        &mut self,
        viewport: Viewport,
        reply: oneshot::Sender<Result<(), ResizeError>>,
        process: Process,
    ) -> AfterRequest {
        let display = self.display.as_ref();
        if display.is_none_or(|display| display.has_room_for(viewport)) {
            let _ = reply.send(self.resize_in_place(viewport, &process).await);
            return ControlFlow::Continue(process);
        }
        self.set_viewport(viewport);
        self.resize_reply = Some(reply);
        let reason: Arc<str> = "the screen grows beyond its frame buffer".into();
        self.publish_restarting(&reason, false);
        process.close().await;
        if let Some(display) = self.display.take() {
            display.terminate().await;
        }
        self.publish_display();
        ControlFlow::Break(RunEnd::Requested(reason))
    }

    async fn resize_in_place(
        &mut self,
        viewport: Viewport,
        process: &Process,
    ) -> Result<(), ResizeError> {
        if let Some(display) = &self.display {
            let set = display.set_mode(viewport).await;
            set.map_err(|error| ResizeError::Failed(error.to_string()))?;
        }
        self.set_viewport(viewport);
        self.status.send_modify(|status| status.viewport = viewport);
        let filled = process.fill_screen(viewport).await;
        filled.map_err(|error| ResizeError::Failed(error.to_string()))
    }

    /// Kills Chromium. The state changes first, because Chromium may answer until it has ended, and
    /// no client should be sent to it meanwhile.
    async fn kill(&self, process: Process, reason: String) -> RunEnd {
        let reason = reason.into();
        self.publish_restarting(&reason, true);
        process.kill().await;
        RunEnd::Failed(reason)
    }
}

/// Waits until the display ends, and returns the reason. Never returns without a display.
async fn ended(display: &mut Option<Display>) -> String {
    match display {
        Some(display) => display.ended().await,
        None => std::future::pending().await,
    }
}
