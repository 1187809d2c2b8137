//! The service of hosts: leases them to sessions, and recycles, stops or retires them afterwards.
//!
//! - [`state`]: a host's life as a pure state machine.
//! - [`local`]: the running hosts of this machine.
//! - [`registered`]: the registered hosts that this process uses.
//! - [`chromium_version`]: the newest Chromium of a fleet.
//! - [`pooled`]: the use of hosts by pools.
//! - [`reconciler`]: the task that makes registered hosts what their rows say.
//!
//! The row of a host has its state, and changes by a compare-and-set. Local hosts end with this
//! process, so that their rows are deleted at its start. Registered hosts do not: several processes
//! use them, and whatever one was about to do with them when it died follows from their rows.
//!
//! ```text
//! lease:    claim a ready host of the mode ──▶ it responds ──▶ session
//!             └── none: start one (local), or wait for one that is being recycled (registered)
//! release:  end the session at the agent ──▶ receipt is clean ──▶ wait until ready ──▶ ready
//!                                       └──▶ anything is left ──▶ stop or retire
//! ```

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use tokio::{sync::Notify, time::Instant};

use super::{
    fleet::{
        HostError, HostStartError, LaunchOptions, Lease, LocalFleet, registered::RegisteredHosts,
    },
    replays::Replays,
    settings::StopDeadlines,
    store::{Fleet, HostRow, Store, StoreError},
};
use crate::{
    api::ids::{BrowserId, HostId, PoolId},
    shutdown::Shutdown,
};

mod chromium_version;
mod local;
mod pooled;
mod reconciler;
mod registered;
pub mod state;

use local::LocalHosts;
pub use pooled::CheckError;
use registered::{HostHandles, RECYCLE_WAIT_TIMEOUT};
use state::{Action, Event, HostLife, ImpossibleEvent};

/// The time in which a ready host must respond to its next session. Otherwise it gets none.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a session has no host.
#[derive(Debug, thiserror::Error)]
pub enum HostLeaseError {
    #[error("host limit reached ({0})")]
    LimitReached(u32),
    #[error("no registered host is ready")]
    NoneReady,
    #[error("cannot start the agent: {0}")]
    Start(#[from] HostStartError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The use of a host after a session, unless something of the session is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterSession {
    /// The host is replaced.
    Retire,
    /// The host is recycled for any other session.
    Recycle,
    /// The host is recycled for the pool that it is reserved for.
    Return,
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
    /// The fleet that new sessions get their hosts from.
    fleet: Fleet,
    local: LocalHosts,
    registered: RegisteredHosts,
    handles: HostHandles,
    /// Fetches the recordings that a registered host has after a session.
    replays: Replays,
    shutdown: Shutdown,
    /// Notified when the state of a host has changed.
    changed: Notify,
}

/// The sources of hosts.
pub struct HostSources {
    /// The fleet that new sessions get their hosts from.
    pub fleet: Fleet,
    pub local: LocalFleet,
    /// The most local hosts that are kept for further sessions.
    pub idle_hosts: u32,
    pub registered: RegisteredHosts,
}

impl Hosts {
    pub fn new(store: Store, sources: HostSources, replays: Replays, shutdown: Shutdown) -> Hosts {
        Hosts {
            inner: Arc::new(Inner {
                store,
                fleet: sources.fleet,
                local: LocalHosts::new(sources.local, sources.idle_hosts),
                handles: HostHandles::new(sources.registered.client().clone()),
                registered: sources.registered,
                replays,
                shutdown,
                changed: Notify::new(),
            }),
        }
    }

    /// Returns the fleet that new sessions get their hosts from.
    pub fn fleet(&self) -> Fleet {
        self.inner.fleet
    }

    /// Wakes the sessions that wait for a host, because another process has changed one.
    pub fn notice_change(&self) {
        self.inner.changed.notify_waiters();
    }

    /// Returns the number of hosts that sessions can have at once.
    pub async fn capacity(&self) -> Result<u32, StoreError> {
        let Inner { store, local, .. } = &*self.inner;
        match self.inner.fleet {
            Fleet::Local => Ok(local.fleet.capacity()),
            Fleet::Registered => {
                let count = store.count_usable_hosts(Fleet::Registered).await?;
                Ok(u32::try_from(count).unwrap_or(u32::MAX))
            }
        }
    }

    /// Returns how long a new host may take to become ready.
    pub fn start_timeout(&self) -> Duration {
        self.inner.local.fleet.start_timeout()
    }

    /// Returns the deadlines of the phases of a shutdown.
    pub fn stop_deadlines(&self) -> StopDeadlines {
        self.inner.local.fleet.stop_deadlines()
    }

    /// Leases a host to a session: a ready one of its mode, or a new local one, which is still
    /// starting. Reserves the host for a pool if there is one. The caller must release it.
    pub async fn lease(
        &self,
        session: &BrowserId,
        launch: LaunchOptions,
        pool: Option<&PoolId>,
    ) -> Result<Lease, HostLeaseError> {
        let deadline = Instant::now() + RECYCLE_WAIT_TIMEOUT;
        loop {
            if let Some(lease) = self.claim(session, &launch, pool, deadline).await? {
                return Ok(lease);
            }
            let local = &self.inner.local.fleet;
            match self.inner.fleet {
                Fleet::Local => {
                    if let Some(permit) = local.try_reserve() {
                        return self.start(session, launch, pool, permit).await;
                    }
                    if !self.make_room().await? {
                        return Err(HostLeaseError::LimitReached(local.capacity()));
                    }
                }
                // The task that fills pools tries again, and records their demand.
                Fleet::Registered if pool.is_some() => return Err(HostLeaseError::NoneReady),
                Fleet::Registered => {
                    if !self.wait_for_host(&launch, deadline).await? {
                        self.inner.registered.demand().record(launch);
                        return Err(HostLeaseError::NoneReady);
                    }
                }
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

    /// Ends a session at its host, with all that it had. Returns whether its recordings are to be
    /// taken from the directory of the host, which is stopped then.
    pub async fn release(&self, lease: &Lease, session: &BrowserId, after: AfterSession) -> bool {
        let host = lease.host();
        match host.fleet() {
            Fleet::Local => !self.release_local(host, session, after).await,
            Fleet::Registered => {
                let generation = lease.generation();
                self.release_registered(host, generation, session, after)
                    .await;
                false
            }
        }
    }

    /// Leases a ready host to the session. Returns `None` if there is none that responds, or if no
    /// registered host that was tried until the deadline does.
    async fn claim(
        &self,
        session: &BrowserId,
        launch: &LaunchOptions,
        pool: Option<&PoolId>,
        deadline: Instant,
    ) -> Result<Option<Lease>, StoreError> {
        let fleet = self.inner.fleet;
        while (fleet == Fleet::Local || Instant::now() < deadline)
            && let Some(row) = self.claim_row(session, launch, pool).await?
        {
            let lease = match fleet {
                Fleet::Local => self.begin_local(&row, session).await?,
                Fleet::Registered => self.begin_registered(&row, session).await,
            };
            if lease.is_some() {
                return Ok(lease);
            }
        }
        Ok(None)
    }

    async fn claim_row(
        &self,
        session: &BrowserId,
        launch: &LaunchOptions,
        pool: Option<&PoolId>,
    ) -> Result<Option<HostRow>, StoreError> {
        let Inner { store, fleet, .. } = &*self.inner;
        let LaunchOptions { mode, viewport } = *launch;
        match pool {
            Some(pool) => {
                let claiming =
                    store.claim_host_for_pool(*fleet, mode, viewport, session, pool, Utc::now());
                claiming.await
            }
            None => {
                let claiming = store.claim_host(*fleet, mode, viewport, session, Utc::now());
                claiming.await
            }
        }
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
}
