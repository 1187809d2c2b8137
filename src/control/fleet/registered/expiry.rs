//! Declares hosts lost that have missed their heartbeats.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use metrics::gauge;
use tokio::time::Instant;

use super::RegisteredHosts;
use crate::{
    control::{
        hosts::state::{Event, State},
        store::{RegisteredHostRow, Store, StoreError},
    },
    shutdown::Shutdown,
};

/// The number of heartbeats that a lost host has missed.
const MISSED_HEARTBEATS: u32 = 3;
/// The longest time between two passes.
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// The most hosts of one pass that are declared lost. The next pass continues.
const BATCH: u64 = 1000;

/// The task that declares hosts lost. Several control processes may run it at once: the row of a
/// host decides.
pub struct HostExpiry {
    store: Store,
    hosts: RegisteredHosts,
    /// The time without a heartbeat after which a host is lost.
    timeout: Duration,
    interval: Duration,
    /// The time since which hosts could report without interruption.
    reachable_since: Instant,
    last_pass: Instant,
}

impl HostExpiry {
    pub fn new(hosts: &RegisteredHosts) -> HostExpiry {
        let heartbeat = hosts.heartbeat_interval();
        HostExpiry {
            store: hosts.store.clone(),
            hosts: hosts.clone(),
            timeout: heartbeat * MISSED_HEARTBEATS,
            interval: heartbeat.min(MAX_INTERVAL),
            reachable_since: Instant::now(),
            last_pass: Instant::now(),
        }
    }

    /// Runs until shutdown.
    pub async fn run(mut self, shutdown: Shutdown) {
        while shutdown.sleep(self.interval).await {
            if let Err(error) = self.pass(Instant::now()).await {
                tracing::error!(%error, "cannot look for lost hosts");
                // Heartbeats cannot be stored either.
                self.reachable_since = Instant::now();
            }
        }
    }

    /// Declares silent hosts lost, unless they could not report: while this process did not run, or
    /// the database was not available.
    async fn pass(&mut self, now: Instant) -> Result<(), StoreError> {
        if now.duration_since(self.last_pass) > self.interval + self.timeout / 2 {
            self.reachable_since = now;
        }
        self.last_pass = now;
        if now.duration_since(self.reachable_since) >= self.timeout {
            let before = Utc::now() - TimeDelta::from_std(self.timeout).unwrap_or_default();
            for host in self.store.silent_hosts(before, BATCH).await? {
                self.expire(&host, before).await?;
            }
        }
        for (state, count) in self.store.count_hosts().await? {
            gauge!("berth_hosts", "state" => state).set(count as f64);
        }
        self.hosts.demand.publish();
        Ok(())
    }

    /// Declares a host lost that has not reported since `before`. One that is being retired is
    /// gone.
    async fn expire(
        &self,
        host: &RegisteredHostRow,
        before: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let event = match host.life.state {
            State::Retiring => Event::Stopped,
            _ => Event::Missed,
        };
        let Ok((next, _)) = host.life.apply(event) else {
            return Ok(());
        };
        let changed = self
            .store
            .change_silent_host(host, &next, before, Utc::now());
        if changed.await? {
            self.hosts.changed.notify_one();
            tracing::warn!(
                host = %host.id, from = ?host.life.state, to = ?next.state,
                last_heartbeat = %host.heartbeat_at, "host has missed its heartbeats"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use secrecy::ExposeSecret;

    use super::*;
    use crate::{
        control::{
            fleet::registered::{JoinTokens, Registrant},
            keys::ApiKeys,
            store::test_database::TestDatabase,
        },
        system::identity::{Authority, HostKey},
    };

    const HEARTBEAT: Duration = Duration::from_secs(1);

    /// Registers a host and returns the service.
    async fn hosts(store: &Store) -> RegisteredHosts {
        let keys = ApiKeys::new(store.clone(), Shutdown::new());
        let (_, key) = keys.create("k", None, None).await.unwrap();
        let caller = keys.authenticate(key.expose_secret()).await.unwrap();
        let tokens = JoinTokens::new(store.clone(), keys);
        let (token, _) = tokens
            .create(&caller, 1, None, BTreeMap::new())
            .await
            .unwrap();
        let authority = Authority::from_pem(&Authority::generate().unwrap()).unwrap();
        let hosts = RegisteredHosts::new(store.clone(), tokens, authority, HEARTBEAT);
        let hosts = hosts.unwrap();
        let request = serde_json::json!({
            "address": "10.0.0.7:10001",
            "boot_id": "first",
            "certificate_request": HostKey::generate().unwrap().certificate_request().unwrap(),
            "capabilities": {
                "display": true,
                "max_viewport": {"width": 1, "height": 1},
                "engine": "chromium",
                "memory_bytes": 1,
            },
            "version": "1",
        });
        let request = deserr::deserialize::<_, _, deserr::errors::JsonError>(request).unwrap();
        let registered = hosts.register(Registrant::JoinToken(token), request).await;
        registered.unwrap();
        hosts
    }

    /// Returns the only host, as if it had registered a minute ago.
    async fn silent_host(store: &Store) -> RegisteredHostRow {
        let row = store.list_registered_hosts(0, 1).await.unwrap().remove(0);
        let earlier = Utc::now() - TimeDelta::minutes(1);
        store.set_heartbeat(&row.id, earlier).await.unwrap();
        store.find_registered_host(&row.id).await.unwrap().unwrap()
    }

    async fn state(store: &Store, row: &RegisteredHostRow) -> Option<State> {
        let found = store.find_registered_host(&row.id).await.unwrap();
        found.map(|row| row.life.state)
    }

    #[tokio::test]
    async fn host_is_lost_only_after_it_could_have_reported() {
        let database = TestDatabase::create();
        let store = database.open().await;
        let hosts = hosts(&store).await;
        let row = silent_host(&store).await;
        let mut expiry = HostExpiry::new(&hosts);
        let start = expiry.reachable_since;
        // Control has just started, then it was suspended.
        for seconds in [0, 1, 2, 60, 61, 62] {
            let now = start + Duration::from_secs(seconds);
            expiry.pass(now).await.unwrap();
            assert_eq!(
                state(&store, &row).await,
                Some(State::Starting),
                "{seconds}"
            );
        }
        expiry.pass(start + Duration::from_secs(63)).await.unwrap();
        assert_eq!(state(&store, &row).await, Some(State::Lost));
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn host_that_reports_or_is_lost_stays_and_a_retiring_one_is_gone() {
        let database = TestDatabase::create();
        let store = database.open().await;
        let hosts = hosts(&store).await;
        let mut expiry = HostExpiry::new(&hosts);
        let later = Instant::now() + 10 * HEARTBEAT;
        expiry.reachable_since = later - 5 * HEARTBEAT;
        expiry.last_pass = later;
        let row = store.list_registered_hosts(0, 1).await.unwrap().remove(0);
        expiry.pass(later).await.unwrap();
        assert_eq!(state(&store, &row).await, Some(State::Starting));
        silent_host(&store).await;
        for _ in 0..2 {
            expiry.pass(later).await.unwrap();
            assert_eq!(state(&store, &row).await, Some(State::Lost));
        }
        // A lost host that is drained has nothing left to do.
        hosts.drain(&row.id).await.unwrap();
        assert_eq!(state(&store, &row).await, Some(State::Retiring));
        expiry.pass(later).await.unwrap();
        assert_eq!(state(&store, &row).await, None);
        store.close().await.unwrap();
    }
}
