//! The task that makes registered hosts what their rows say.
//!
//! Nothing that must happen to a host is known to one process alone: whatever a process was about
//! to do when it was killed, the next pass of another one does.
//!
//! ```text
//! row                                    pass
//! leased, to a browser that has ended ──▶ release
//! not leased any more ──────────────────▶ the browser ends
//! recycling ────────────────────────────▶ end the session at the agent, fetch its recordings
//!   clean and ready ────────────────────▶ ready, in the next generation
//!   not clean, or given up ─────────────▶ retiring
//! retiring ─────────────────────────────▶ end the session at the agent
//! ```
//!
//! Each process passes over all rows, but ends sessions only at the hosts that it has changed last.
//! The one that leads does so, too, at the hosts of processes that have died. Two that do so do no
//! harm, because the end of a session names its generation and may be repeated.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use http::StatusCode;
use tokio::time::sleep;

use super::{
    ApplyError, Hosts, Inner,
    registered::SettleGuard,
    state::{Event, State},
};
use crate::{
    api::ids::{BrowserId, HostId},
    control::{
        fleet::{AgentError, Host, HostError, ReplayClient},
        processes::Leadership,
        store::{ControlProcessId, Fleet, HostRow, StoreError},
    },
};

/// Between two passes, unless a change is known earlier.
const PASS_INTERVAL: Duration = Duration::from_secs(2);
/// The delay of a pass after a change, in which others join it.
const HINT_DELAY: Duration = Duration::from_millis(20);
/// The most hosts at which sessions are ended at once. A pass continues after the last host that
/// had its turn, so that hosts that do not respond hold up no others for long.
const MAX_SETTLING: usize = 64;
/// The time for which a host is recycled. Then it is retired.
const RECYCLE_TIMEOUT: TimeDelta = TimeDelta::minutes(5);
/// The time that the process of a browser has to release its host.
const RELEASE_GRACE_PERIOD: TimeDelta = TimeDelta::seconds(60);
/// The wait for the address of an agent.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of a session at its agent.
enum SessionEnd {
    /// Nothing of it is left. The agent continues with this generation.
    Clean(u64),
    /// A part of it is left, or that is not known. Has the reason.
    Unclean(String),
}

/// Why the end of a session is to be repeated.
#[derive(Debug, thiserror::Error)]
enum EndError {
    #[error("the agent does not end the session: {0}")]
    Agent(#[from] AgentError),
    /// Not the fault of the host, which keeps them until they can be stored.
    #[error("its recordings are not fetched: {0}")]
    Recordings(String),
}

impl Hosts {
    /// Runs until shutdown.
    pub async fn reconcile(self, leadership: Leadership) {
        let Inner {
            registered,
            shutdown,
            ..
        } = &*self.inner;
        let mut last = None;
        loop {
            if let Err(error) = self.pass(leadership.leads(), &mut last).await {
                tracing::error!(%error, "cannot reconcile registered hosts");
            }
            tokio::select! {
                () = registered.changed().notified() => sleep(HINT_DELAY).await,
                () = sleep(PASS_INTERVAL) => {}
                () = shutdown.requested() => return,
            }
        }
    }

    /// Makes all hosts what their rows say. `last` is the one that last had its turn to have its
    /// session ended.
    async fn pass(&self, leads: bool, last: &mut Option<HostId>) -> Result<(), StoreError> {
        let Inner { store, handles, .. } = &*self.inner;
        // Before the rows, which are at least as new then.
        let sessions = handles.sessions();
        let rows = store.hosts_of(Fleet::Registered).await?;
        self.end_lost_sessions(sessions, &rows);
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            handles.update(row);
        }
        if leads {
            let before = Utc::now() - RELEASE_GRACE_PERIOD;
            self.release_abandoned(before).await?;
        }
        let mut live = None;
        let mut ending: Vec<&HostRow> = rows.iter().filter(|row| is_ending(row)).collect();
        // They are sorted by id.
        let next = ending.partition_point(|row| last.as_ref().is_some_and(|last| row.id <= *last));
        ending.rotate_left(next);
        for row in ending {
            let has_started = if row.process == store.process() {
                self.begin_settling(row)
            } else if leads {
                // Empty if the locks of this process are lost, as perhaps those of the others.
                let live = match &mut live {
                    Some(live) => live,
                    None => live.insert(store.live_processes().await?),
                };
                self.adopt(row, live).await?
            } else {
                false
            };
            if has_started {
                *last = Some(row.id.clone());
            }
        }
        Ok(())
    }

    /// Ends the session of a host whose process has died. Returns whether that has started.
    async fn adopt(
        &self,
        row: &HostRow,
        live: &HashSet<ControlProcessId>,
    ) -> Result<bool, StoreError> {
        let is_dead = row.process.is_none_or(|process| !live.contains(&process));
        if !is_dead || !self.inner.store.adopt_host(row).await? {
            return Ok(false);
        }
        tracing::info!(host = %row.id, "continues what a process that died did at a host");
        Ok(self.begin_settling(row))
    }

    /// Ends the sessions of this process that their hosts have lost, and forgets the hosts that it
    /// does not use any more.
    fn end_lost_sessions(&self, sessions: Vec<(HostId, Option<BrowserId>)>, rows: &[HostRow]) {
        let handles = &self.inner.handles;
        let rows: HashMap<&HostId, &HostRow> = rows.iter().map(|row| (&row.id, row)).collect();
        for (id, session) in sessions {
            let row = rows.get(&id);
            match session {
                Some(session) => {
                    let has_lost =
                        row.is_none_or(|row| row.life.session.as_ref() != Some(&session));
                    if has_lost && handles.end_lost(&id, &session) {
                        tracing::debug!(host = %id, %session, "a host has another session now");
                    }
                }
                None if row.is_none_or(|row| !is_ending(row)) => handles.close_unused(&id),
                None => {}
            }
        }
    }

    /// Releases the registered hosts of all browsers that have ended.
    pub async fn release_ended(&self) -> Result<(), StoreError> {
        self.release_abandoned(Utc::now() + TimeDelta::seconds(1))
            .await
    }

    /// Releases the hosts of browsers that ended before `before`, or have no record: their process
    /// was killed, or could not record it.
    async fn release_abandoned(&self, before: DateTime<Utc>) -> Result<(), StoreError> {
        let store = &self.inner.store;
        for (id, session) in store.abandoned_hosts(before).await? {
            self.release_abandoned_host(&id, session).await?;
        }
        Ok(())
    }

    /// Releases the registered host of a browser that a dead process was creating or ending.
    pub async fn release_of(&self, session: &BrowserId) -> Result<(), StoreError> {
        match self.inner.store.find_host_of(session).await? {
            Some(id) => self.release_abandoned_host(&id, session.clone()).await,
            None => Ok(()),
        }
    }

    async fn release_abandoned_host(
        &self,
        id: &HostId,
        session: BrowserId,
    ) -> Result<(), StoreError> {
        match self.apply(id, Event::Release(session)).await {
            Ok(_) => {
                tracing::info!(host = %id, "released the host of a browser that has ended");
                self.inner.registered.changed().notify_one();
                Ok(())
            }
            Err(ApplyError::Store(error)) => Err(error),
            // Its process has done so.
            Err(ApplyError::Impossible(_) | ApplyError::Unknown) => Ok(()),
        }
    }

    /// Ends the session of a recycling or retiring host in the background. Returns false if that is
    /// in progress, or has to wait for others.
    fn begin_settling(&self, row: &HostRow) -> bool {
        let handles = &self.inner.handles;
        if handles.settling() >= MAX_SETTLING {
            return false;
        }
        let Some(guard) = handles.settle(&row.id) else {
            return false;
        };
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            this.settle(guard).await;
        });
        true
    }

    /// Ends what a recycling or retiring host has of its last session. Returns when that has ended
    /// at the agent; the host becomes ready in the background.
    pub(super) async fn settle(&self, guard: SettleGuard) {
        if let Err(error) = self.try_settle(guard).await {
            tracing::error!(%error, "cannot settle a registered host");
        }
    }

    async fn try_settle(&self, guard: SettleGuard) -> Result<(), StoreError> {
        let Inner { store, handles, .. } = &*self.inner;
        // It may have changed before this task had the guard.
        let row = store.find_host(guard.host()).await?;
        let Some(row) = row.filter(is_ending) else {
            return Ok(());
        };
        let Some(host) = handles.open_ended(&row) else {
            return Ok(());
        };
        let end = tokio::select! {
            end = self.end_at_agent(&host, row.life.generation) => end,
            // The next process continues.
            () = self.inner.shutdown.requested() => return Ok(()),
        };
        let reason = match (row.life.state, end) {
            (State::Retiring, Ok(_)) => {
                store.set_host_settled(&row).await?;
                return Ok(());
            }
            (_, Ok(SessionEnd::Clean(generation))) => {
                let ended = row.life.generation;
                let waiting = self
                    .clone()
                    .finish_recycling(host, ended, generation, guard);
                self.inner.shutdown.spawn(waiting);
                return Ok(());
            }
            (_, Ok(SessionEnd::Unclean(reason))) => reason,
            (state, Err(error)) => {
                let is_over = matches!(error, EndError::Agent(_))
                    && Utc::now() - row.changed_at > RECYCLE_TIMEOUT;
                tracing::info!(host = %row.id, %error, "cannot end a session at its host yet");
                if state == State::Retiring || !is_over {
                    return Ok(());
                }
                error.to_string()
            }
        };
        tracing::warn!(host = %row.id, reason, "retiring a host that is not clean");
        let generation = row.life.generation;
        self.apply_after_session(&row.id, Event::NotRecycled { generation })
            .await;
        Ok(())
    }

    /// Ends a session at its agent, and fetches the recordings that it has left. Fails if that is
    /// to be repeated.
    async fn end_at_agent(&self, host: &Host, generation: u64) -> Result<SessionEnd, EndError> {
        // The agent has not reported its generation yet: nothing has used it.
        if generation == 0 {
            return Ok(SessionEnd::Unclean("the host has not started".to_owned()));
        }
        let (end, may_have_replays) = match host.end_session(generation).await {
            Ok(receipt) if receipt.clean => {
                let end = SessionEnd::Clean(receipt.next_generation);
                (end, !receipt.replays.is_empty())
            }
            Ok(receipt) => {
                let reason = format!(
                    "remaining: {:?}, tainted by: {:?}",
                    receipt.remaining, receipt.tainted_by
                );
                (SessionEnd::Unclean(reason), !receipt.replays.is_empty())
            }
            // It has ended before, and its receipt is lost.
            Err(AgentError::Rejected { status, error }) if status == StatusCode::GONE => {
                (SessionEnd::Unclean(error.message), true)
            }
            Err(error) => return Err(error.into()),
        };
        if may_have_replays {
            let collected = self.collect_replays(host, generation).await;
            collected.map_err(EndError::Recordings)?;
        }
        Ok(end)
    }

    /// Fetches the recordings of a session that has ended. Fails if some are still at the agent.
    async fn collect_replays(&self, host: &Host, generation: u64) -> Result<(), String> {
        let Inner { store, replays, .. } = &*self.inner;
        let browser = store.browser_on(host.id(), generation).await;
        // No client has known a browser that was not published.
        let Some((project, browser)) = browser.map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let endpoint = host.endpoint(None, ADDRESS_TIMEOUT).await;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let client = ReplayClient::of_ended(host.client().clone(), endpoint, generation);
        let collected = replays.collect_ended(&project, &browser, &client).await;
        match collected.map_err(|error| error.to_string())? {
            true => Ok(()),
            false => Err("a recording is not finished yet".to_owned()),
        }
    }

    async fn finish_recycling(
        self,
        host: Arc<Host>,
        ended: u64,
        generation: u64,
        guard: SettleGuard,
    ) {
        let ready = tokio::select! {
            ready = host.wait_ready(generation, self.start_timeout()) => ready,
            () = self.inner.shutdown.requested() => return,
        };
        let event = match ready {
            Ok(()) => Event::Recycled { generation },
            Err(HostError::Gone) => return,
            Err(error) => {
                tracing::warn!(host = %host.id(), %error, "recycled host is not ready");
                Event::NotRecycled { generation: ended }
            }
        };
        self.apply_after_session(host.id(), event).await;
        self.inner.handles.close_unused(host.id());
        drop(guard);
    }

    /// Applies an event to a host whose session has ended. The next pass repeats what fails.
    async fn apply_after_session(&self, id: &HostId, event: Event) {
        match self.apply(id, event).await {
            Ok((life, _)) => {
                tracing::info!(host = %id, state = ?life.state, "the session of a host has ended");
                self.inner.changed.notify_waiters();
                self.inner.registered.changed().notify_one();
            }
            Err(error) => tracing::warn!(host = %id, %error, "cannot change a host"),
        }
    }
}

/// Returns whether the last session of a host is not settled yet.
fn is_ending(row: &HostRow) -> bool {
    match row.life.state {
        State::Recycling => true,
        State::Retiring => !row.is_settled,
        _ => false,
    }
}
