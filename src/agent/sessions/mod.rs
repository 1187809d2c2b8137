//! Sessions: one tenancy of the agent after another.
//!
//! A session has services, processes, directories and, if the agent is root, users of its own. When
//! it ends, all of them are killed and removed, and the agent goes on with a session that nothing
//! has used before. With `--spare` that one is prepared ahead of time: its Chromium runs already,
//! on a display of its own.
//!
//! ```text
//! request ──▶ Sessions::current ──▶ router of that session ──▶ handler ──▶ services
//!
//! end:  spare is current ──▶ old services discarded ──▶ inspected ──▶ receipt ──▶ next spare
//! ```
//!
//! | file | job |
//! |---|---|
//! | `machine_taint` | the record that a session has changed the machine |
//! | `receipt` | what is left of a session |
//! | `replays` | the recordings of ended sessions |
//! | `requests` | the requests that are in progress |
//! | `restart` | the agent is started again, or hands over the current session |
//! | `taints` | what a session did that outlives it |

mod machine_taint;
mod receipt;
mod replays;
mod requests;
mod restart;
mod taints;

use std::{
    iter,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, oneshot, watch},
    task::{JoinHandle, spawn_blocking, yield_now},
};

pub use self::{
    machine_taint::MachineTaint,
    requests::{RequestGuard, Requests},
    taints::Taints,
};
use super::{
    Agent, AgentError, ServedAgent, Services,
    chromium::{self, BrowserState, RenewalError},
    handover::PassedSession,
    isolation,
    logs::ProgramLog,
    replays::{EndedReplays, ReplayError, StoredReplays},
    settings::Config,
};
use crate::{
    api::session::{SessionReceipt, SessionStatus, SpareState},
    shutdown::Shutdown,
    system::{files::remove::remove_or_warn, process::agent_run},
};

/// The generation of the first session of a state directory.
pub const FIRST_GENERATION: u64 = 1;
/// The longest wait for the services of a session that has ended.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a session was not ended.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error("the current session is {0}")]
    NotCurrent(u64),
    #[error("the agent is shutting down")]
    ShuttingDown,
    #[error("the next session does not start: {0}")]
    Next(#[from] AgentError),
}

/// Why a recording of an ended session is not found or deleted.
#[derive(Debug, thiserror::Error)]
pub enum EndedReplayError {
    #[error("no session with the generation {0} has ended")]
    NotEnded(u64),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// The sessions of an agent. Clones share them.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    own_log: ProgramLog,
    shutdown: Shutdown,
    /// `None` only before the first session has started.
    current: watch::Sender<Option<ServedAgent>>,
    /// The prepared session. Locked while a session ends, and while the next one is prepared.
    spare: Mutex<Option<ServedAgent>>,
    /// The receipt of the session before the current one, for a caller that did not get it.
    last_receipt: watch::Sender<Option<SessionReceipt>>,
    /// The recordings of the sessions before the current one.
    replays: EndedReplays,
    machine_taint: MachineTaint,
    /// Whether no further session begins until the agent has started again.
    restarting: watch::Sender<bool>,
    /// The session that control has leased to a client, as far as the agent knows.
    leased: AtomicU64,
    /// Whether an earlier agent has used the state directory.
    is_continued: bool,
}

/// The number of a session, and its end.
#[derive(Clone)]
pub struct SessionScope {
    pub generation: u64,
    pub shutdown: Shutdown,
    pub requests: Requests,
}

impl Sessions {
    /// Starts the session that an earlier agent had, or the first one, and removes what is left of
    /// others. `passed` is the running browser of that session.
    pub(super) async fn start(
        config: Config,
        own_log: ProgramLog,
        passed: Option<PassedSession>,
        shutdown: &Shutdown,
    ) -> Result<Self, AgentError> {
        let state_dir = config.state_dir.clone();
        let recorded = state_dir.recorded_generation()?;
        let generation = recorded.unwrap_or(FIRST_GENERATION);
        let machine_taint = MachineTaint::open(&state_dir.machine_taint())?;
        for (other, path) in state_dir.other_sessions(generation)? {
            if other.is_none_or(|other| other < generation) {
                machine_taint.set("a session has ended without a receipt");
            }
            remove_left_session(&path).await;
        }
        let is_continued = match recorded {
            Some(_) => true,
            None => state_dir.take_over_earlier_layout(generation)?,
        };
        state_dir.record_generation(generation)?;
        let ended = state_dir.ended_replays(generation)?;
        let replays = EndedReplays::load(ended, config.ffmpeg.as_ref(), shutdown)?;
        let sessions = Self {
            inner: Arc::new(Inner {
                config,
                own_log,
                shutdown: shutdown.clone(),
                current: watch::Sender::new(None),
                spare: Mutex::new(None),
                last_receipt: watch::Sender::new(None),
                replays,
                machine_taint,
                restarting: watch::Sender::new(false),
                leased: AtomicU64::new(0),
                is_continued,
            }),
        };
        let passed = passed.filter(|passed| passed.generation == generation);
        let session = sessions.start_session(generation, passed).await?;
        sessions.inner.current.send_replace(Some(session));
        let preparing = sessions.clone();
        shutdown.spawn(async move { preparing.prepare_spare().await });
        Ok(sessions)
    }

    /// Returns the status of the current session.
    pub fn status(&self) -> SessionStatus {
        let current = self.current().agent;
        SessionStatus {
            generation: current.session.generation,
            spare: match self.inner.spare.try_lock() {
                Ok(spare) => spare.as_ref().map_or(SpareState::Off, readiness),
                // It is being prepared.
                Err(_) => SpareState::Starting,
            },
            tainted_by: current.taints.list(),
            restarting: self.is_restarting(),
        }
    }

    /// Returns a receiver that changes when a session has ended.
    pub(super) fn watch_ends(&self) -> watch::Receiver<Option<SessionReceipt>> {
        self.inner.last_receipt.subscribe()
    }

    /// Returns whether the browser of the current session responds.
    pub fn is_ready(&self) -> bool {
        let status = self.current().agent.chromium.status();
        matches!(status.state, BrowserState::Running(_))
    }

    /// Gives the current session and the prepared one, which no client has used, new processes for
    /// pages and scripts.
    pub(super) async fn renew(&self) -> Result<(), RenewalError> {
        let spare = self.inner.spare.lock().await;
        let current = self.current();
        for session in iter::once(&current).chain(spare.as_ref()) {
            session.agent.automation.renew().await;
            session.agent.chromium.renew_pages().await?;
        }
        Ok(())
    }

    /// Returns whether the prepared session, if there is to be one, is ready.
    pub(super) fn is_spare_ready(&self) -> bool {
        match self.status().spare {
            SpareState::Off => !self.inner.config.spare,
            SpareState::Starting => false,
            SpareState::Ready => true,
        }
    }

    /// Returns the record that a session has changed the machine.
    pub fn machine_taint(&self) -> &MachineTaint {
        &self.inner.machine_taint
    }

    /// Returns whether the first session of this agent is that of an earlier agent, which may have
    /// served it to clients.
    pub(super) fn are_continued(&self) -> bool {
        self.inner.is_continued
    }

    /// Ends the session with this generation, and continues with the next one. Returns the receipt
    /// again if that session was the last one to end. Completes even if the caller leaves.
    ///
    /// # Errors
    /// Fails if another session is current. If the next session does not start, the agent ends.
    pub async fn end(&self, generation: u64) -> Result<SessionReceipt, EndError> {
        let (refused, _) = oneshot::channel();
        let ending = self.spawn_end(generation, refused);
        ending.await.map_err(|_| EndError::ShuttingDown)?
    }

    /// Does the same as [`Self::end`], but returns as soon as no request reaches the session any
    /// more. A later call of [`Self::end`] waits for the receipt.
    pub async fn begin_end(&self, generation: u64) -> Result<(), EndError> {
        let (refused, is_refused) = oneshot::channel();
        let ending = self.spawn_end(generation, refused);
        match is_refused.await {
            Ok(()) => Ok(()),
            // It has ended before, or does not end.
            Err(_) => ending.await.map_err(|_| EndError::ShuttingDown)?.map(drop),
        }
    }

    /// Ends a session in the background. Sends to `refused` when no request reaches it any more.
    fn spawn_end(
        &self,
        generation: u64,
        refused: oneshot::Sender<()>,
    ) -> JoinHandle<Result<SessionReceipt, EndError>> {
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            let mut spare = this.inner.spare.lock().await;
            this.end_current(generation, &mut spare, refused).await
        })
    }

    async fn end_current(
        &self,
        generation: u64,
        spare: &mut Option<ServedAgent>,
        refused: oneshot::Sender<()>,
    ) -> Result<SessionReceipt, EndError> {
        let ended = self.current().agent;
        let current = ended.session.generation;
        if current != generation {
            let last = self.inner.last_receipt.borrow().clone();
            let repeated = last.filter(|receipt| receipt.generation == generation);
            return repeated.ok_or(EndError::NotCurrent(current));
        }
        if self.inner.shutdown.is_requested() {
            return Err(EndError::ShuttingDown);
        }
        let started_at = Instant::now();
        // Control decides by itself which session is the last one.
        let is_last = self.is_restarting() && self.inner.config.control.is_none();
        let next_generation = generation + 1;
        // Nothing has changed if this fails.
        let recorded = self
            .inner
            .config
            .state_dir
            .record_generation(next_generation);
        recorded.map_err(AgentError::Io)?;
        let replays = ended.replays.stored();
        self.inner.replays.add(generation, replays.clone());
        let terminated = receipt::running(&ended);
        match is_last {
            true => refuse_requests(&ended, refused),
            false => self.replace(&ended, spare.take(), refused).await?,
        }
        let has_ended = ended.session.shutdown.drain(END_TIMEOUT).await;
        let found = receipt::inspect(&ended, has_ended).await;
        if !found.remaining.is_empty() {
            self.taint_machine("something of a session was left after its end")
                .await;
        }
        let receipt = SessionReceipt {
            generation,
            next_generation,
            clean: found.remaining.is_empty() && found.tainted_by.is_empty(),
            duration_ms: started_at.elapsed().as_millis() as u64,
            terminated,
            replays: replays.list(),
            remaining: found.remaining,
            tainted_by: found.tainted_by,
        };
        self.settle_replays(generation, replays.clone()).await;
        self.inner.own_log.hide_past();
        tracing::info!(
            generation,
            clean = receipt.clean,
            duration_ms = receipt.duration_ms,
            "a session has ended"
        );
        self.inner.last_receipt.send_replace(Some(receipt.clone()));
        self.continue_or_end(is_last);
        Ok(receipt)
    }

    /// Has the next spare prepared after the end of a session, or ends the agent after the last.
    fn continue_or_end(&self, is_last: bool) {
        if is_last {
            return self.end_for_restart();
        }
        let preparing = self.clone();
        self.inner
            .shutdown
            .spawn(async move { preparing.prepare_spare().await });
    }

    /// Has all requests to a session refused, and makes the prepared session or a new one the
    /// current one.
    async fn replace(
        &self,
        ended: &Agent,
        spare: Option<ServedAgent>,
        refused: oneshot::Sender<()>,
    ) -> Result<(), EndError> {
        if let Some(spare) = &spare {
            self.inner.current.send_replace(Some(spare.clone()));
        }
        refuse_requests(ended, refused);
        // Usually the response goes out before the rest is done here. Nothing depends on that.
        yield_now().await;
        if spare.is_none() {
            // Until it has started, requests are refused as those of the session that ends.
            let next = self.start_next(ended.session.generation + 1).await?;
            self.inner.current.send_replace(Some(next));
        }
        // The next session sees neither these lines nor those about the end.
        self.inner.own_log.hide_past();
        Ok(())
    }

    async fn taint_machine(&self, reason: &'static str) {
        let machine_taint = self.inner.machine_taint.clone();
        // Fails only when the agent ends.
        let _ = spawn_blocking(move || machine_taint.set(reason)).await;
    }

    /// Keeps the recordings of a session that has ended, or removes their directory if there are
    /// none.
    async fn settle_replays(&self, generation: u64, stored: StoredReplays) {
        let replays = self.inner.replays.clone();
        let settled = spawn_blocking(move || replays.settle(generation, stored)).await;
        if let Err(error) = settled {
            tracing::error!(%error, "the recordings of an ended session are not settled");
        }
    }

    /// Starts the session that follows one that is about to end. Without it, the agent ends: its
    /// host has to be replaced.
    async fn start_next(&self, generation: u64) -> Result<ServedAgent, AgentError> {
        let started = self.start_session(generation, None).await;
        started.inspect_err(|error| {
            tracing::error!(%error, "the next session does not start");
            self.inner.shutdown.request();
        })
    }

    /// Prepares the next session, if the setting demands one. A failure is only logged: the session
    /// then starts when it is needed.
    pub(super) async fn prepare_spare(&self) {
        if !self.inner.config.spare || self.is_restarting() || self.inner.shutdown.is_requested() {
            return;
        }
        let mut spare = self.inner.spare.lock().await;
        if spare.is_some() {
            return;
        }
        match self
            .start_session(self.current().agent.session.generation + 1, None)
            .await
        {
            Ok(session) => *spare = Some(session),
            Err(error) => tracing::warn!(%error, "cannot prepare a session"),
        }
    }

    /// Starts the services of a session. Its Chromium starts in the background, unless the program
    /// before has passed it.
    async fn start_session(
        &self,
        generation: u64,
        passed: Option<PassedSession>,
    ) -> Result<ServedAgent, AgentError> {
        let config = self.inner.config.for_session(generation);
        let prepared = config.session_dir.prepare();
        prepared.map_err(|source| AgentError::StateDir {
            path: config.session_dir.root().display().to_string(),
            source,
        })?;
        let shutdown = self.inner.shutdown.part();
        let scope = SessionScope {
            generation,
            shutdown: shutdown.clone(),
            requests: Requests::default(),
        };
        let own_log = self.inner.own_log.clone();
        let services = Services::start(config, own_log, self, scope, passed);
        let services = services.await.inspect_err(|_| shutdown.discard())?;
        Ok(ServedAgent::new(services))
    }

    /// Returns the services of the current session, and the router to them.
    #[expect(
        clippy::expect_used,
        reason = "nothing has the value before its first session has started"
    )]
    pub(super) fn current(&self) -> ServedAgent {
        let current = self.inner.current.borrow().clone();
        current.expect("the first session has started")
    }

    /// Returns a receiver that changes when another session becomes the current one.
    pub(super) fn watch(&self) -> watch::Receiver<Option<ServedAgent>> {
        self.inner.current.subscribe()
    }
}

/// Has all requests to a session refused, and sends to `refused` then.
fn refuse_requests(session: &Agent, refused: oneshot::Sender<()>) {
    session.session.shutdown.discard();
    // The caller may have left.
    let _ = refused.send(());
}

fn readiness(spare: &ServedAgent) -> SpareState {
    match spare.agent.chromium.status().state {
        BrowserState::Running(_) => SpareState::Ready,
        _ => SpareState::Starting,
    }
}

/// Kills and removes what an agent that was killed has left of a session that was not current.
async fn remove_left_session(directory: &Path) {
    agent_run::kill_recorded(directory).await;
    chromium::kill_left_processes(directory);
    isolation::kill_left_processes(directory);
    remove_or_warn(directory);
}
