//! The task that runs the commands which the rows of launches require.
//!
//! ```text
//! row                                      pass
//! requested ─────────────────────────────▶ launching, then run the launch command
//!   for too long ────────────────────────▶ deleted
//! launching, past the command's deadline ▶ failed: its process was killed
//! launched, and no host joins in time ───▶ destroying
//!   its host is ready for too long ──────▶ drain the host
//!   its host is retired, lost or silent ─▶ end the host
//!   its host is gone ────────────────────▶ destroying
//! destroying ────────────────────────────▶ run the destroy command; deleted if it succeeds
//! ```
//!
//! The process that leads runs it. Two may do so for a moment: a launch command is run by the
//! process whose compare-and-set has started the launch. A destroy command may run twice, also at
//! once.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use metrics::{counter, gauge};
use secrecy::SecretString;
use tokio::time::{Instant, sleep};

use super::{
    super::join_tokens::FORMAT,
    ApplyError, EngineId, HostLaunches, Inner, LaunchConfig,
    command::CommandError,
    state::{Event, LaunchLife, State},
    to_delta,
};
use crate::{
    api::ids::{HostId, LaunchId},
    backoff::Backoff,
    control::{
        hosts::state::{Event as HostEvent, State as HostState},
        processes::Leadership,
        store::{Fleet, HostLaunchRow, HostRow, LaunchToken, StoreError},
    },
};

/// Between two passes, unless a change is known earlier.
const PASS_INTERVAL: Duration = Duration::from_secs(2);
/// The most launch commands, and the most destroy commands, that this process runs at once.
const MAX_COMMANDS: usize = 8;
/// The first and the longest delay after a failed command.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The time for which a launch waits for its command, after which its browser has given up.
const REQUEST_TIMEOUT: TimeDelta = TimeDelta::seconds(60);
/// The time beyond the deadline of a launch command in which its process records its end.
const RECORD_GRACE_PERIOD: TimeDelta = TimeDelta::seconds(10);
/// The time in which a retiring host must end its session, and have its recordings fetched.
const RETIRE_TIMEOUT: TimeDelta = TimeDelta::hours(1);

/// The commands that this process runs, and when it repeats those that have failed.
#[derive(Default)]
pub(super) struct Work {
    launching: HashSet<LaunchId>,
    destroying: HashSet<LaunchId>,
    /// After a failed launch command.
    launch_retry: Option<Retry>,
    /// After a failed destroy command of a launch.
    destroy_retries: HashMap<LaunchId, Retry>,
}

struct Retry {
    backoff: Backoff,
    at: Instant,
}

impl Retry {
    /// Returns the time of the next attempt after a failure.
    fn after(earlier: Option<Retry>) -> Retry {
        let mut backoff = match earlier {
            Some(earlier) => earlier.backoff,
            None => Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1),
        };
        let at = Instant::now() + backoff.next_delay();
        Retry { backoff, at }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.at
    }
}

impl Work {
    fn may_launch(&self) -> bool {
        self.launching.len() < MAX_COMMANDS && self.launch_retry.as_ref().is_none_or(Retry::is_due)
    }

    fn may_destroy(&self, id: &LaunchId) -> bool {
        self.destroying.len() < MAX_COMMANDS
            && !self.destroying.contains(id)
            && self.destroy_retries.get(id).is_none_or(Retry::is_due)
    }

    fn end_launch(&mut self, id: &LaunchId, is_success: bool) {
        self.launching.remove(id);
        match is_success {
            true => self.launch_retry = None,
            // Several that failed at once are one failure.
            false if self.launch_retry.as_ref().is_none_or(Retry::is_due) => {
                self.launch_retry = Some(Retry::after(self.launch_retry.take()));
            }
            false => {}
        }
    }

    fn end_destroy(&mut self, id: &LaunchId, is_success: bool) {
        self.destroying.remove(id);
        let earlier = self.destroy_retries.remove(id);
        if !is_success {
            let retry = Retry::after(earlier);
            self.destroy_retries.insert(id.clone(), retry);
        }
    }
}

impl HostLaunches {
    /// Runs until shutdown, which kills the commands.
    pub async fn reconcile(self, leadership: Leadership) {
        let Inner {
            changed, shutdown, ..
        } = &*self.inner;
        loop {
            if let Err(error) = self.pass(leadership.leads()).await {
                tracing::error!(%error, "cannot reconcile launched hosts");
            }
            tokio::select! {
                () = changed.notified() => {}
                () = sleep(PASS_INTERVAL) => {}
                () = shutdown.requested() => return,
            }
        }
    }

    /// Updates the metric, and does what the rows require if this process leads.
    async fn pass(&self, leads: bool) -> Result<(), StoreError> {
        let store = &self.inner.store;
        // Before the hosts: one that joins meanwhile would seem to be gone.
        let launches = store.list_host_launches().await?;
        for state in State::ALL.into_iter().filter(|state| *state != State::Gone) {
            let found = launches.iter().filter(|row| row.life.state == state);
            gauge!("berth_host_launches", "state" => state.as_str()).set(found.count() as f64);
        }
        if launches.is_empty() || !leads {
            return Ok(());
        }
        let hosts = store.hosts_of(Fleet::Registered).await?;
        let hosts: HashMap<&HostId, &HostRow> = hosts.iter().map(|row| (&row.id, row)).collect();
        for launch in &launches {
            let host = launch.life.host.as_ref();
            let host = host.and_then(|id| hosts.get(id)).copied();
            match self.advance(launch, host, Utc::now()).await {
                Ok(()) => {}
                Err(ApplyError::Store(error)) => return Err(error),
                // Another process, or a host that joins, was faster.
                Err(error @ (ApplyError::Unknown | ApplyError::Impossible(_))) => {
                    tracing::debug!(launch = %launch.id, %error);
                }
            }
        }
        Ok(())
    }

    async fn advance(
        &self,
        row: &HostLaunchRow,
        host: Option<&HostRow>,
        now: DateTime<Utc>,
    ) -> Result<(), ApplyError> {
        let config = &self.inner.commands.config;
        let age = now - row.changed_at;
        let event = match row.life.state {
            State::Requested if now - row.created_at > REQUEST_TIMEOUT => Event::Withdrawn,
            State::Requested => return Ok(self.begin_launch(row).await?),
            State::Launching => {
                let is_own = self.inner.work.lock().launching.contains(&row.id);
                let deadline = to_delta(config.command_timeout) + RECORD_GRACE_PERIOD;
                if is_own || age <= deadline {
                    return Ok(());
                }
                tracing::warn!(launch = %row.id, "a launch command was interrupted");
                Event::Failed
            }
            State::Launched => match (&row.life.host, host) {
                (Some(_), None) => Event::HostEnded,
                (Some(_), Some(host)) if self.end_host(host, now).await? => Event::HostEnded,
                (None, _) if age > to_delta(config.join_timeout) => {
                    tracing::warn!(launch = %row.id, "no host has joined in time");
                    Event::JoinTimedOut
                }
                _ => return Ok(()),
            },
            State::Destroying => {
                self.begin_destroy(row);
                return Ok(());
            }
            State::Gone => return Ok(()),
        };
        self.apply(&row.id, event).await?;
        Ok(())
    }

    /// Drains a launched host that is idle, and ends one that is of no use any more. Returns
    /// whether it has ended.
    async fn end_host(&self, host: &HostRow, now: DateTime<Utc>) -> Result<bool, StoreError> {
        let Inner {
            store,
            registered,
            commands,
            ..
        } = &*self.inner;
        let Some(event) = next_event(host, &commands.config, now) else {
            return Ok(false);
        };
        let Ok((after, _)) = host.life.apply(event) else {
            return Ok(false);
        };
        // A host that has got a session, or returned, meanwhile stays.
        if !store.change_host(&host.id, &host.life, &after, now).await? {
            return Ok(false);
        }
        tracing::info!(
            host = %host.id, from = ?host.life.state, to = ?after.state, "launched host changed"
        );
        registered.changed().notify_one();
        Ok(after.state == HostState::Gone)
    }

    /// Starts the launch command, unless too many run, one has just failed, or another process
    /// starts it.
    async fn begin_launch(&self, row: &HostLaunchRow) -> Result<(), StoreError> {
        let Inner {
            store,
            work,
            commands,
            shutdown,
            ..
        } = &*self.inner;
        let Ok(after) = row.life.apply(Event::Started) else {
            return Ok(());
        };
        if !work.lock().may_launch() {
            return Ok(());
        }
        let now = Utc::now();
        let generated = FORMAT.generate();
        let lifetime = commands.config.command_timeout + commands.config.join_timeout;
        let token = LaunchToken {
            public_part: generated.public_part,
            digest: generated.digest,
            expires_at: now + to_delta(lifetime),
        };
        // Another pass of this process must not take it for an interrupted one.
        work.lock().launching.insert(row.id.clone());
        let started = store.start_host_launch(row, &after, &token, now).await;
        if !matches!(started, Ok(true)) {
            work.lock().launching.remove(&row.id);
            return started.map(|_| ());
        }
        counter!("berth_host_launches_total", "event" => "started").increment(1);
        tracing::info!(launch = %row.id, "launching a host");
        let task = self.clone().launch(row.clone(), generated.token);
        shutdown.spawn(task);
        Ok(())
    }

    async fn launch(self, row: HostLaunchRow, token: SecretString) {
        let launched = self.inner.commands.launch(&row, &token).await;
        if let Err(error) = &launched {
            tracing::warn!(launch = %row.id, %error, "cannot launch a host");
            counter!("berth_host_launches_total", "event" => "failed").increment(1);
        }
        let is_success = launched.is_ok();
        self.record_launch(&row, launched.ok()).await;
        self.inner.work.lock().end_launch(&row.id, is_success);
        self.inner.changed.notify_one();
    }

    /// Records the end of a launch command. Repeats that until it succeeds or control ends; the
    /// next process then gives up the launch after its deadline.
    async fn record_launch(&self, row: &HostLaunchRow, engine_id: Option<EngineId>) {
        let event = match &engine_id {
            Some(id) => Event::Created(id.clone()),
            None => Event::Failed,
        };
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        loop {
            let recorded = match self.apply(&row.id, event.clone()).await {
                // Another process has destroyed the launch. The machine may be newer than that.
                Err(ApplyError::Unknown) => self.restore(row, engine_id.clone()).await,
                Err(ApplyError::Store(error)) => Err(error),
                Ok(_) | Err(ApplyError::Impossible(_)) => Ok(()),
            };
            let Err(error) = recorded else {
                return;
            };
            let engine_id = engine_id.as_ref().map(EngineId::as_str);
            tracing::error!(launch = %row.id, engine_id, %error, "cannot record a launch");
            if !self.inner.shutdown.sleep(delays.next_delay()).await {
                return;
            }
        }
    }

    async fn restore(
        &self,
        row: &HostLaunchRow,
        engine_id: Option<EngineId>,
    ) -> Result<(), StoreError> {
        let restored = HostLaunchRow {
            slot: None,
            life: LaunchLife::destroying(engine_id),
            token: None,
            changed_at: Utc::now(),
            ..row.clone()
        };
        self.inner.store.insert_host_launch(&restored).await
    }

    /// Starts the destroy command in the background, unless it runs, too many do, or it has just
    /// failed.
    fn begin_destroy(&self, row: &HostLaunchRow) {
        let Inner { work, shutdown, .. } = &*self.inner;
        let mut work = work.lock();
        if work.may_destroy(&row.id) {
            work.destroying.insert(row.id.clone());
            shutdown.spawn(self.clone().destroy(row.id.clone()));
        }
    }

    async fn destroy(self, id: LaunchId) {
        // Read again: the pass may have read the row before an earlier command had succeeded.
        let is_success = match self.inner.store.find_host_launch(&id).await {
            Ok(Some(row)) if row.life.state == State::Destroying => self.try_destroy(&row).await,
            Ok(_) => true,
            Err(error) => {
                tracing::error!(launch = %id, %error, "cannot find a host to destroy");
                false
            }
        };
        self.inner.work.lock().end_destroy(&id, is_success);
        self.inner.changed.notify_one();
    }

    /// Runs the destroy command. Returns false if it is to be repeated.
    async fn try_destroy(&self, row: &HostLaunchRow) -> bool {
        match self.inner.commands.destroy(row).await {
            Ok(()) => self.record_destroyed(row).await,
            // The next process repeats it.
            Err(CommandError::Shutdown) => false,
            Err(error) => {
                let engine_id = row.life.engine_id.as_ref().map(EngineId::as_str);
                tracing::error!(launch = %row.id, engine_id, %error, "cannot destroy a host");
                counter!("berth_host_launches_total", "event" => "destroy_failed").increment(1);
                false
            }
        }
    }

    /// Deletes the row of a launch. Returns false if that is to be repeated, with the command.
    async fn record_destroyed(&self, row: &HostLaunchRow) -> bool {
        let Ok(after) = row.life.apply(Event::Destroyed) else {
            return false;
        };
        // Unlike `apply`: the command has to run again if the engine id became known meanwhile.
        let deleted = self.inner.store.change_host_launch(row, &after, Utc::now());
        match deleted.await {
            Ok(true) => {
                counter!("berth_host_launches_total", "event" => "destroyed").increment(1);
                tracing::info!(launch = %row.id, "launched host destroyed");
                true
            }
            // Another process has deleted it, or the next pass repeats it.
            Ok(false) => true,
            Err(error) => {
                tracing::error!(launch = %row.id, %error, "cannot record a destroyed host");
                false
            }
        }
    }
}

/// Returns what ends a launched host, or brings it nearer to its end.
fn next_event(host: &HostRow, config: &LaunchConfig, now: DateTime<Utc>) -> Option<HostEvent> {
    let age = now - host.changed_at;
    match host.life.state {
        HostState::Ready if age > to_delta(config.idle_timeout) => Some(HostEvent::Drain),
        // Control does not reach it, or its browser does not start.
        HostState::Starting if age > to_delta(config.join_timeout) => Some(HostEvent::Stopped),
        HostState::Lost => Some(HostEvent::Stopped),
        HostState::Retiring if host.is_settled || age > RETIRE_TIMEOUT => Some(HostEvent::Stopped),
        _ => None,
    }
}
