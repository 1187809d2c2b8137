//! The hosts of this machine: starts them, recycles some for further sessions, and stops them.
//!
//! Local hosts end with this process.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::Utc;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    AfterSession, ApplyError, HostLeaseError, Hosts, Inner, RESPONSE_TIMEOUT,
    state::{Action, Event, HostLife, State},
};
use crate::{
    api::{
        ids::{BrowserId, HostId, PoolId},
        viewport::Viewport,
    },
    backoff::Backoff,
    control::{
        fleet::{Host, HostError, HostPermit, LaunchOptions, Lease, LocalFleet, SessionRecord},
        store::{Fleet, HostRow, StoreError},
    },
};

/// The number of the first session of an agent with a new state directory.
const FIRST_GENERATION: u64 = 1;
/// The first and the longest delay before another attempt to delete the row of a host.
const DELETE_RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The hosts of this process.
pub(super) struct LocalHosts {
    pub(super) fleet: LocalFleet,
    /// Has a permit for each host that may wait for its next session.
    idle_permits: Arc<Semaphore>,
    running: Mutex<HashMap<HostId, Entry>>,
}

/// A host of this process.
#[derive(Clone)]
pub(super) struct LocalHost {
    pub(super) host: Arc<Host>,
    pub(super) session: SessionRecord,
    /// The viewport with which each session begins.
    pub(super) viewport: Viewport,
}

struct Entry {
    running: LocalHost,
    /// Held from the end of a session to the beginning of the next.
    idle_permit: Option<OwnedSemaphorePermit>,
}

impl LocalHosts {
    /// Returns no hosts. Up to `idle_hosts` of later ones may wait for their next session.
    pub(super) fn new(fleet: LocalFleet, idle_hosts: u32) -> LocalHosts {
        LocalHosts {
            fleet,
            idle_permits: Arc::new(Semaphore::new(idle_hosts as usize)),
            running: Mutex::default(),
        }
    }

    /// Adds a host that starts for a session.
    pub(super) fn add(&self, running: LocalHost) {
        let id = running.host.id().clone();
        let entry = Entry {
            running,
            idle_permit: None,
        };
        self.running.lock().insert(id, entry);
    }

    /// Removes a host that is gone.
    pub(super) fn remove(&self, id: &HostId) {
        self.running.lock().remove(id);
    }

    pub(super) fn get(&self, id: &HostId) -> Option<Arc<Host>> {
        let running = self.running.lock();
        running.get(id).map(|entry| entry.running.host.clone())
    }

    fn find(&self, id: &HostId) -> Option<LocalHost> {
        let running = self.running.lock();
        running.get(id).map(|entry| entry.running.clone())
    }

    /// Counts a host as idle from now on. Returns false if there are enough.
    pub(super) fn reserve_idle(&self, id: &HostId) -> bool {
        let permit = self.idle_permits.clone().try_acquire_owned();
        let mut running = self.running.lock();
        match (permit, running.get_mut(id)) {
            (Ok(permit), Some(entry)) => {
                entry.idle_permit = Some(permit);
                true
            }
            _ => false,
        }
    }

    /// Does not count a host as idle any more, without a session.
    pub(super) fn release_idle(&self, id: &HostId) {
        if let Some(entry) = self.running.lock().get_mut(id) {
            entry.idle_permit = None;
        }
    }

    /// Returns a host that is not idle any more.
    pub(super) fn take_idle(&self, id: &HostId) -> Option<LocalHost> {
        let mut running = self.running.lock();
        let entry = running.get_mut(id)?;
        entry.idle_permit = None;
        Some(entry.running.clone())
    }

    /// Stops all hosts.
    pub(super) async fn stop_all(&self) {
        join_all(self.hosts().iter().map(|host| host.stop())).await;
    }

    /// Returns all hosts.
    pub(super) fn hosts(&self) -> Vec<Arc<Host>> {
        let running = self.running.lock();
        let hosts = running.values().map(|entry| entry.running.host.clone());
        hosts.collect()
    }
}

impl Hosts {
    /// Ends the local hosts of an earlier run. Must run before the first lease.
    ///
    /// Returns the sessions whose data could not be removed yet, each with the token that is
    /// cancelled when it is.
    pub async fn recover(&self) -> Result<Vec<(BrowserId, CancellationToken)>, StoreError> {
        self.inner.store.delete_hosts_of(Fleet::Local).await?;
        match self.inner.local.fleet.clean_up().await {
            Ok(remaining) => Ok(remaining),
            Err(error) => {
                tracing::error!(%error, "cannot clean up the hosts of an earlier run");
                Ok(Vec::new())
            }
        }
    }

    /// Stops all local hosts.
    pub async fn stop_all(&self) {
        self.inner.local.stop_all().await;
    }

    /// Ends a session at a local host. Returns whether the host is recycled; otherwise it is
    /// stopped.
    pub(super) async fn release_local(
        &self,
        host: &Arc<Host>,
        session: &BrowserId,
        after: AfterSession,
    ) -> bool {
        let stays = match after {
            _ if self.inner.shutdown.is_requested() => false,
            AfterSession::Retire => false,
            AfterSession::Recycle => self.inner.local.reserve_idle(host.id()),
            // The size of its pool is the bound.
            AfterSession::Return => true,
        };
        if !stays {
            self.step(host.clone(), Event::Drain).await;
        }
        let release = Event::Release(session.clone());
        self.step(host.clone(), release).await == Some(State::Recycling)
    }

    /// Begins a session at a local host. Returns `None`, and stops the host, if it does not
    /// respond.
    pub(super) async fn begin_local(
        &self,
        row: &HostRow,
        session: &BrowserId,
    ) -> Result<Option<Lease>, StoreError> {
        let Some(LocalHost {
            host,
            session: record,
            viewport,
        }) = self.inner.local.take_idle(&row.id)
        else {
            // It has ended, and its row is about to be deleted.
            self.inner.store.delete_host(&row.id).await?;
            return Ok(None);
        };
        let generation = row.life.generation;
        let responds = host.wait_ready(generation, RESPONSE_TIMEOUT).await;
        let lease = Lease::new(host, generation, false, viewport);
        let error = match (responds, record.set(session)) {
            (Ok(()), Ok(())) => return Ok(Some(lease)),
            (Err(error), _) => error.to_string(),
            (_, Err(error)) => error.to_string(),
        };
        tracing::warn!(host = %row.id, error, "stopping a host that is not usable");
        self.release(&lease, session, AfterSession::Retire).await;
        Ok(None)
    }

    /// Names the session of a local host anew. Returns the host, or `None` if it is not running. It
    /// is stopped if the name cannot be recorded.
    pub(super) fn rename_session(&self, id: &HostId, session: &BrowserId) -> Option<Arc<Host>> {
        let LocalHost {
            host,
            session: record,
            ..
        } = self.inner.local.find(id)?;
        let Err(error) = record.set(session) else {
            return Some(host);
        };
        tracing::error!(host = %id, %error, "stopping a host whose session is not recorded");
        self.inner.shutdown.spawn(async move { host.stop().await });
        None
    }

    /// Starts a host for a session.
    pub(super) async fn start(
        &self,
        session: &BrowserId,
        launch: LaunchOptions,
        pool: Option<&PoolId>,
        permit: HostPermit,
    ) -> Result<Lease, HostLeaseError> {
        let Inner { store, local, .. } = &*self.inner;
        let id = HostId::generate();
        let life = HostLife::starting(Some(session.clone()));
        let added = store.add_host(&id, Fleet::Local, launch.mode, &life, pool, Utc::now());
        added.await?;
        let viewport = launch.viewport;
        let (host, record) = match local.fleet.start(&id, session, launch, permit).await {
            Ok(started) => started,
            Err(error) => {
                self.inner.shutdown.spawn(self.clone().delete_row(id));
                return Err(error.into());
            }
        };
        let host = Arc::new(host);
        local.add(LocalHost {
            host: host.clone(),
            session: record,
            viewport,
        });
        let watching = self.clone().forget_when_gone(host.clone());
        self.inner.shutdown.spawn(watching);
        Ok(Lease::new(host, FIRST_GENERATION, true, viewport))
    }

    /// Stops a host that waits for a session of another mode, or waits for one that will soon be
    /// ready. Returns false if all hosts run sessions or are reserved for pools.
    pub(super) async fn make_room(&self) -> Result<bool, StoreError> {
        let changed = self.inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let rows = self.inner.store.hosts_of(Fleet::Local).await?;
        // The row of a host that has ended may not be deleted yet.
        let running = |state| {
            let is_free = move |row: &&HostRow| row.life.state == state && row.pool.is_none();
            let mut rows = rows.iter().filter(is_free);
            rows.find_map(|row| self.inner.local.get(&row.id))
        };
        if let Some(host) = running(State::Ready) {
            self.step(host, Event::Drain).await;
            return Ok(true);
        }
        if running(State::Recycling).is_none() {
            return Ok(false);
        }
        Ok(timeout(self.start_timeout(), changed).await.is_ok())
    }

    /// Applies an event to a local host and runs the actions that follow. Returns its state, or
    /// `None` if the event was not applied. If that is because of the database, the host is
    /// stopped: it must not run on in a state that is not recorded.
    ///
    /// Boxed, because it is called by the actions that it runs itself.
    pub(super) fn step(&self, host: Arc<Host>, event: Event) -> BoxFuture<'_, Option<State>> {
        Box::pin(async move {
            match self.apply(host.id(), event).await {
                Ok((life, actions)) => {
                    self.inner.changed.notify_waiters();
                    for action in actions {
                        self.run(&host, action).await;
                    }
                    Some(life.state)
                }
                Err(ApplyError::Impossible(rejected)) => {
                    tracing::debug!(host = %host.id(), %rejected);
                    None
                }
                Err(error) => {
                    tracing::error!(host = %host.id(), %error, "stopping a host");
                    host.stop().await;
                    None
                }
            }
        })
    }

    async fn run(&self, host: &Arc<Host>, action: Action) {
        match action {
            Action::Recycle { generation } => self.recycle(host, generation).await,
            Action::Stop => host.stop().await,
            // The browser's own task waits for the end of its host.
            Action::EndSession(_) => {}
        }
    }

    /// Ends a session at its agent. The host becomes ready in the background.
    async fn recycle(&self, host: &Arc<Host>, generation: u64) {
        let reason = match host.end_session(generation).await {
            Ok(receipt) if receipt.clean && receipt.replays.is_empty() => {
                let waiting =
                    self.clone()
                        .wait_recycled(host.clone(), generation, receipt.next_generation);
                self.inner.shutdown.spawn(waiting);
                return;
            }
            Ok(receipt) => format!(
                "remaining: {:?}, tainted by: {:?}, replays: {}",
                receipt.remaining,
                receipt.tainted_by,
                receipt.replays.len()
            ),
            Err(error) => error.to_string(),
        };
        tracing::info!(host = %host.id(), reason, "host is not reused");
        self.step(host.clone(), Event::NotRecycled { generation })
            .await;
    }

    async fn wait_recycled(self, host: Arc<Host>, ended: u64, generation: u64) {
        let event = match host.wait_ready(generation, self.start_timeout()).await {
            Ok(()) => Event::Recycled { generation },
            // Its row is about to be deleted.
            Err(HostError::Gone) => return,
            Err(error) => {
                tracing::warn!(host = %host.id(), %error, "recycled host is not ready");
                Event::NotRecycled { generation: ended }
            }
        };
        self.step(host, event).await;
    }

    /// Waits until the host is gone, and deletes its row.
    async fn forget_when_gone(self, host: Arc<Host>) {
        host.wait_gone().await;
        self.inner.local.remove(host.id());
        self.delete_row(host.id().clone()).await;
    }

    /// Deletes the row of a host that is gone. Retries until the server shuts down; the next start
    /// deletes all rows.
    async fn delete_row(self, id: HostId) {
        let Inner {
            store, shutdown, ..
        } = &*self.inner;
        let mut delays = Backoff::new(DELETE_RETRY_DELAY.0, DELETE_RETRY_DELAY.1);
        while let Err(error) = store.delete_host(&id).await {
            tracing::warn!(host = %id, %error, "cannot delete the row of a host; retrying");
            if !shutdown.sleep(delays.next_delay()).await {
                return;
            }
        }
    }
}
