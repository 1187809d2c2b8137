//! The service of hosts: leases them to sessions, and recycles or stops them afterwards.
//!
//! [`state`] is a host's life as a pure state machine. The row of a host has its state, and changes
//! by a compare-and-set. Local hosts end with this process, so that their rows are deleted at its
//! start.
//!
//! ```text
//! lease:    claim a ready host of the mode, or start one ──▶ wait until ready ──▶ session
//! release:  end the session at the agent ──▶ receipt is clean ──▶ wait until ready ──▶ ready
//!                                       └──▶ anything is left ──▶ stop
//! ```

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::Utc;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    fleet::{
        Host, HostError, HostPermit, HostStartError, LaunchOptions, Lease, LocalFleet,
        SessionRecord,
    },
    settings::StopDeadlines,
    store::{Fleet, HostMode, Store, StoreError},
};
use crate::{
    api::{
        ids::{BrowserId, HostId},
        viewport::Viewport,
    },
    backoff::Backoff,
    shutdown::Shutdown,
};

pub mod state;

use state::{Action, Event, HostLife, ImpossibleEvent, State};

/// The number of the first session of an agent with a new state directory.
const FIRST_GENERATION: u64 = 1;
/// The time in which a ready host must respond to its next session. Otherwise it is stopped.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The first and the longest delay before another attempt to delete the row of a host.
const DELETE_RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Why a session has no host.
#[derive(Debug, thiserror::Error)]
pub enum HostLeaseError {
    #[error("host limit reached ({0})")]
    LimitReached(u32),
    #[error("cannot start the agent: {0}")]
    Start(#[from] HostStartError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an event was not applied to a host.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("the host has no row")]
    Unknown,
    #[error(transparent)]
    Impossible(#[from] ImpossibleEvent),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The service of hosts. Clones share its state.
#[derive(Clone)]
pub struct Hosts {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    fleet: LocalFleet,
    shutdown: Shutdown,
    /// Has a permit for each host that may wait for its next session.
    idle_permits: Arc<Semaphore>,
    running: Mutex<HashMap<HostId, RunningHost>>,
    /// Notified when the state of a host has changed.
    changed: Notify,
}

/// A host of this process.
struct RunningHost {
    host: Arc<Host>,
    session: SessionRecord,
    /// The viewport with which each session begins.
    viewport: Viewport,
    /// Held from the end of a session to the beginning of the next.
    idle_permit: Option<OwnedSemaphorePermit>,
}

impl Hosts {
    /// Creates the service. After a session, up to `idle_hosts` hosts are recycled and kept ready
    /// for the next ones.
    pub fn new(store: Store, fleet: LocalFleet, idle_hosts: u32, shutdown: Shutdown) -> Hosts {
        Hosts {
            inner: Arc::new(Inner {
                store,
                fleet,
                shutdown,
                idle_permits: Arc::new(Semaphore::new(idle_hosts as usize)),
                running: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    /// Ends the hosts of an earlier run. Must run before the first lease.
    ///
    /// Returns the sessions whose data could not be removed yet, each with the token that is
    /// cancelled when it is.
    pub async fn recover(&self) -> Result<Vec<(BrowserId, CancellationToken)>, StoreError> {
        self.inner.store.delete_hosts_of(Fleet::Local).await?;
        match self.inner.fleet.clean_up().await {
            Ok(remaining) => Ok(remaining),
            Err(error) => {
                tracing::error!(%error, "cannot clean up the hosts of an earlier run");
                Ok(Vec::new())
            }
        }
    }

    /// Returns the limit of hosts.
    pub fn capacity(&self) -> u32 {
        self.inner.fleet.capacity()
    }

    /// Returns how long a new host may take to become ready.
    pub fn start_timeout(&self) -> Duration {
        self.inner.fleet.start_timeout()
    }

    /// Returns the deadlines of the phases of a shutdown.
    pub fn stop_deadlines(&self) -> StopDeadlines {
        self.inner.fleet.stop_deadlines()
    }

    /// Leases a host to a session: a ready one of its mode, or a new one, which is still starting.
    /// The caller must release it.
    pub async fn lease(
        &self,
        session: &BrowserId,
        launch: LaunchOptions,
    ) -> Result<Lease, HostLeaseError> {
        loop {
            if let Some(lease) = self.claim(session, launch.mode).await? {
                return Ok(lease);
            }
            if let Some(permit) = self.inner.fleet.try_reserve() {
                return self.start(session, launch, permit).await;
            }
            if !self.make_room().await? {
                return Err(HostLeaseError::LimitReached(self.capacity()));
            }
        }
    }

    /// Waits until the browser of a lease responds.
    pub async fn wait_ready(&self, lease: &Lease) -> Result<(), HostLeaseError> {
        if !lease.is_starting() {
            return Ok(());
        }
        let (host, generation) = (lease.host(), lease.generation());
        host.wait_ready(generation, self.start_timeout()).await?;
        match self.apply(host.id(), Event::Started { generation }).await {
            Ok(_) => Ok(()),
            Err(ApplyError::Store(error)) => Err(error.into()),
            Err(_) => Err(HostError::Gone.into()),
        }
    }

    /// Ends a session at its host, with all that it had. The host is recycled if `reuse` is set,
    /// and stopped otherwise. Returns whether it was recycled.
    pub async fn release(&self, lease: &Lease, session: &BrowserId, reuse: bool) -> bool {
        let host = lease.host();
        if !(reuse && self.reserve_idle(host.id())) {
            self.step(host.clone(), Event::Drain).await;
        }
        let state = self
            .step(host.clone(), Event::Release(session.clone()))
            .await;
        state == Some(State::Recycling)
    }

    /// Stops all hosts.
    pub async fn stop_all(&self) {
        let hosts = self.all();
        join_all(hosts.iter().map(|host| host.stop())).await;
    }

    /// Leases a ready host to the session. Returns `None` if there is none that responds.
    async fn claim(
        &self,
        session: &BrowserId,
        mode: HostMode,
    ) -> Result<Option<Lease>, StoreError> {
        let store = &self.inner.store;
        while let Some(row) = store
            .claim_host(Fleet::Local, mode, session, Utc::now())
            .await?
        {
            let Some((host, record, viewport)) = self.take_idle(&row.id) else {
                // It has ended, and its row is about to be deleted.
                store.delete_host(&row.id).await?;
                continue;
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
            self.release(&lease, session, false).await;
        }
        Ok(None)
    }

    /// Starts a host for a session.
    async fn start(
        &self,
        session: &BrowserId,
        launch: LaunchOptions,
        permit: HostPermit,
    ) -> Result<Lease, HostLeaseError> {
        let Inner { store, fleet, .. } = &*self.inner;
        let id = HostId::generate();
        let life = HostLife::starting(Some(session.clone()));
        let added = store.add_host(&id, Fleet::Local, launch.mode, &life, Utc::now());
        added.await?;
        let viewport = launch.viewport;
        let (host, record) = match fleet.start(&id, session, launch, permit).await {
            Ok(started) => started,
            Err(error) => {
                self.inner.shutdown.spawn(self.clone().delete_row(id));
                return Err(error.into());
            }
        };
        let host = Arc::new(host);
        let entry = RunningHost {
            host: host.clone(),
            session: record,
            viewport,
            idle_permit: None,
        };
        self.inner.running.lock().insert(id, entry);
        let watching = self.clone().forget_when_gone(host.clone());
        self.inner.shutdown.spawn(watching);
        Ok(Lease::new(host, FIRST_GENERATION, true, viewport))
    }

    /// Stops a host that waits for a session of another mode, or waits for one that will soon be
    /// ready. Returns false if all hosts run sessions.
    async fn make_room(&self) -> Result<bool, StoreError> {
        let changed = self.inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let rows = self.inner.store.hosts_of(Fleet::Local).await?;
        // The row of a host that has ended may not be deleted yet.
        let running = |state| {
            let mut rows = rows.iter().filter(move |row| row.life.state == state);
            rows.find_map(|row| self.host(&row.id))
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

    /// Applies an event to a host and runs the actions that follow. Returns its state, or `None` if
    /// the event was not applied. If that is because of the database, the host is stopped: it must
    /// not run on in a state that is not recorded.
    ///
    /// Boxed, because it is called by the actions that it runs itself.
    fn step(&self, host: Arc<Host>, event: Event) -> BoxFuture<'_, Option<State>> {
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
                let waiting = self
                    .clone()
                    .wait_recycled(host.clone(), receipt.next_generation);
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
        self.step(host.clone(), Event::NotRecycled).await;
    }

    async fn wait_recycled(self, host: Arc<Host>, generation: u64) {
        let event = match host.wait_ready(generation, self.start_timeout()).await {
            Ok(()) => Event::Recycled { generation },
            // Its row is about to be deleted.
            Err(HostError::Gone) => return,
            Err(error) => {
                tracing::warn!(host = %host.id(), %error, "recycled host is not ready");
                Event::NotRecycled
            }
        };
        self.step(host, event).await;
    }

    /// Applies an event to the row of a host. Returns the host afterwards and the actions that
    /// follow.
    async fn apply(
        &self,
        id: &HostId,
        event: Event,
    ) -> Result<(HostLife, Vec<Action>), ApplyError> {
        let store = &self.inner.store;
        loop {
            let row = store.find_host(id).await?.ok_or(ApplyError::Unknown)?;
            let (after, actions) = row.life.apply(event.clone())?;
            // Otherwise another event was faster.
            if store.change_host(id, &row.life, &after, Utc::now()).await? {
                return Ok((after, actions));
            }
        }
    }

    /// Waits until the host is gone, and deletes its row.
    async fn forget_when_gone(self, host: Arc<Host>) {
        host.wait_gone().await;
        self.inner.running.lock().remove(host.id());
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

    /// Counts a host as idle from now on. Returns false if there are enough.
    fn reserve_idle(&self, id: &HostId) -> bool {
        if self.inner.shutdown.is_requested() {
            return false;
        }
        let permit = self.inner.idle_permits.clone().try_acquire_owned();
        let mut running = self.inner.running.lock();
        match (permit, running.get_mut(id)) {
            (Ok(permit), Some(entry)) => {
                entry.idle_permit = Some(permit);
                true
            }
            _ => false,
        }
    }

    /// Returns a host that is not idle any more.
    fn take_idle(&self, id: &HostId) -> Option<(Arc<Host>, SessionRecord, Viewport)> {
        let mut running = self.inner.running.lock();
        let entry = running.get_mut(id)?;
        entry.idle_permit = None;
        Some((entry.host.clone(), entry.session.clone(), entry.viewport))
    }

    fn all(&self) -> Vec<Arc<Host>> {
        let running = self.inner.running.lock();
        running.values().map(|entry| entry.host.clone()).collect()
    }

    fn host(&self, id: &HostId) -> Option<Arc<Host>> {
        let running = self.inner.running.lock();
        running.get(id).map(|entry| entry.host.clone())
    }
}
