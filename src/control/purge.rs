//! Deletes what has passed its retention period.
//!
//! Retention periods are measured by the wall clock, which may be wrong, and a deletion cannot be
//! undone. So each pass compares the advance of the wall clock since the last one with that of a
//! clock that cannot be set. If they differ, purges are suspended for [`SUSPENSION`], in which the
//! wall clock can be corrected.

use std::{fmt::Display, io, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    processes::Leadership,
    replays::Replays,
    store::{PurgeClock, Store, StoreError},
    webhooks::MAX_RETAINED,
};
use crate::{shutdown::Shutdown, system::process::boot::BootTime};

const PURGE_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The running time of the machine for which purges are suspended after the wall clock was set.
pub const SUSPENSION: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// The largest difference between the two clocks that is not a change of the wall clock.
const MAX_DRIFT: TimeDelta = TimeDelta::minutes(5);
/// The longest time for which the machine may have been off, which no clock measures. After a
/// longer one the wall clock counts as set.
const MAX_OFF_TIME: TimeDelta = TimeDelta::days(7);

/// The time after the end of a time step in which a site may accept its code, many times over.
const TOTP_STEP_RETENTION: TimeDelta = TimeDelta::days(1);

/// The retention period of a delivery to a webhook that has ended.
const WEBHOOK_DELIVERY_RETENTION: TimeDelta = TimeDelta::days(30);

/// The time by both clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockReading {
    pub wall: DateTime<Utc>,
    pub boot: BootTime,
}

/// The retention periods.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The retention period of the rows of ended browsers, deleted keys, deleted profiles, join
    /// tokens that have expired or are used up, and registered hosts that are gone or lost.
    pub records: Duration,
    /// The retention period of finished replays.
    pub replays: Duration,
    /// The retention period of the audit log.
    pub audit_log: Duration,
}

/// Deletes expired records, replays and entries of the audit log.
pub struct Purge {
    store: Store,
    replays: Replays,
    retention: Retention,
}

impl ClockReading {
    fn now() -> io::Result<ClockReading> {
        Ok(ClockReading {
            wall: Utc::now(),
            boot: BootTime::now()?,
        })
    }
}

impl Purge {
    pub fn new(store: Store, replays: Replays, retention: Retention) -> Purge {
        Purge {
            store,
            replays,
            retention,
        }
    }

    /// Deletes what has expired, now and hourly until shutdown, whenever this process leads.
    pub async fn run(self, leadership: Leadership, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(PURGE_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.requested() => return,
            }
            match ClockReading::now() {
                // An interrupted upload is known to its own process only.
                Ok(_) if !leadership.leads() => self.replays.abort_interrupted_uploads().await,
                Ok(now) => self.pass(now).await,
                Err(error) => tracing::error!(%error, "cannot purge: cannot read the clocks"),
            }
        }
    }

    /// Deletes what has expired at `now`, unless purges are suspended. In any case removes what
    /// interrupted uploads left, settles the replays of hosts that are gone, and deletes deliveries
    /// to webhooks of which there are too many.
    pub async fn pass(&self, now: ClockReading) {
        self.replays.abort_interrupted_uploads().await;
        if let Err(error) = self.replays.take_over_from_gone_hosts().await {
            tracing::error!(%error, "cannot find the replays of hosts that are gone");
        }
        let trimmed = self.store.trim_webhook_deliveries(MAX_RETAINED).await;
        report("deliveries to webhooks beyond their limit", trimmed);
        let clock = match self.store.purge_clock().await {
            Ok(last) => advance(last.as_ref(), now),
            Err(error) => {
                tracing::error!(%error, "cannot purge: cannot read the time of the last purge");
                return;
            }
        };
        // On a full disk this fails. Then the purge makes room, and the next pass compares its time
        // with that of an earlier one.
        if let Err(error) = self.store.set_purge_clock(&clock).await {
            tracing::error!(%error, "cannot record the time of the purge");
        }
        if !clock.suspended.is_zero() {
            let hours = clock.suspended.as_secs().div_ceil(60 * 60);
            tracing::warn!(hours, wall = %clock.wall, "purge suspended: the wall clock was set");
            return;
        }
        let before = clock.wall - self.retention.records;
        report("ended browsers", self.store.purge_browsers(before).await);
        report("deleted API keys", self.store.purge_api_keys(before).await);
        report("deleted profiles", self.store.purge_profiles(before).await);
        let purged = self.store.purge_join_tokens(before).await;
        report("expired and used-up join tokens", purged);
        let purged = self
            .store
            .purge_totp_steps(clock.wall - TOTP_STEP_RETENTION);
        report("used one-time codes", purged.await);
        let purged = self
            .store
            .purge_webhook_deliveries(clock.wall - WEBHOOK_DELIVERY_RETENTION);
        report("deliveries to webhooks", purged.await);
        report("ended logins", self.store.purge_auth_flows(before).await);
        let purged = self.store.purge_auth_timeline(before).await;
        report("entries of timelines", purged);
        let purged = self.store.purge_registered_hosts(before).await;
        report("gone and lost hosts", purged);
        report("ended processes", self.purge_processes(before).await);
        let before = clock.wall - self.retention.replays;
        report("replays", self.replays.delete_older_than(before).await);
        let before = clock.wall - self.retention.audit_log;
        let purged = self.store.purge_audit_records(before).await;
        report("records of the audit log", purged);
    }

    async fn purge_processes(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let live = self.store.live_processes().await?;
        self.store.purge_processes(before, &live).await
    }
}

fn report(subject: &'static str, deleted: Result<u64, impl Display>) {
    match deleted {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "purged {subject}"),
        Err(error) => tracing::error!(%error, "cannot purge {subject}"),
    }
}

/// Returns the clock at `now`, which is suspended if the wall clock was set since `last`.
fn advance(last: Option<&PurgeClock>, now: ClockReading) -> PurgeClock {
    let suspended = last.map_or(SUSPENSION, |last| {
        let elapsed = now.boot.since(&last.boot);
        match was_set(now.wall - last.wall, elapsed) {
            true => SUSPENSION,
            false => last.suspended.saturating_sub(elapsed.unwrap_or_default()),
        }
    });
    PurgeClock {
        wall: now.wall,
        boot: now.boot,
        suspended,
    }
}

/// Returns whether the wall clock was set, if it advanced by `wall` in the time `elapsed`. That is
/// `None` if the machine was off for some of it.
fn was_set(wall: TimeDelta, elapsed: Option<Duration>) -> bool {
    match elapsed.map(TimeDelta::from_std) {
        Some(Ok(elapsed)) => (wall - elapsed).abs() > MAX_DRIFT,
        Some(Err(_)) => true,
        None => !(-MAX_DRIFT..=MAX_OFF_TIME).contains(&wall),
    }
}
