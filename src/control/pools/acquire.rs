//! Leases browsers of pools to clients.
//!
//! ```text
//! acquire ──▶ no one waits and one is idle ──────────────┐
//!    │                                                   ▼
//!    └──▶ ticket ──▶ the dispatcher serves the first ──▶ PendingLease ──▶ checked ──▶ published
//!             │                                            │ not usable: the same ticket again
//!             └── time is up, or the client has left       └ the client has left: idle again
//! ```

use std::{collections::BTreeMap, sync::Arc};

use chrono::Utc;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    PoolError, Pools,
    hand_over::PendingLease,
    queue::{Granted, LocalWaiter},
};
use crate::{
    api::{
        ids::{BrowserId, PoolId},
        profiles::ProfileSelection,
    },
    control::{
        browsers::{CreationLock, HandOverError},
        store::{
            BrowserRow, Claim, Creation, NewBrowserRow, PoolLeaseError, PoolOrigin, PoolRow,
            WaiterTicket,
        },
    },
};

/// The properties of a lease. Those that are absent are the pool's.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NewLease {
    pub name: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub start_url: Option<String>,
    pub profile: Option<ProfileSelection>,
}

/// The ticket of a client of this process. Dropping it removes the ticket, unless the client has
/// been served.
struct QueuePosition {
    pools: Pools,
    pool: PoolId,
    ticket: WaiterTicket,
    /// Whether the dispatcher knows the client.
    is_queued: bool,
}

impl QueuePosition {
    fn new(pools: &Pools, pool: &PoolId, ticket: WaiterTicket) -> QueuePosition {
        QueuePosition {
            pools: pools.clone(),
            pool: pool.clone(),
            ticket,
            is_queued: false,
        }
    }

    /// Lets the dispatcher serve the client.
    fn enqueue(&mut self, waiter: LocalWaiter) {
        self.is_queued = true;
        self.pools.inner.queue.add(&self.pool, self.ticket, waiter);
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let queue = &self.pools.inner.queue;
        match self.is_queued {
            true => {
                queue.leave(&self.pool, self.ticket);
            }
            false => queue.remove_tickets(self.pool.clone(), vec![self.ticket]),
        }
    }
}

impl Pools {
    /// Leases a browser of a pool. Returns `None` if none is available until `deadline`. Dropping
    /// the future undoes it.
    ///
    /// Statements in the database are not interrupted when the time is up, because one that does
    /// not wait would get no browser. The database's own timeouts bound them.
    pub async fn acquire(
        &self,
        pool: &PoolRow,
        deadline: Instant,
        lease: NewLease,
        creation: Option<Creation>,
    ) -> Result<Option<BrowserRow>, PoolError> {
        // One that does not wait has the time of the check, from now on.
        let deadline = deadline.max(Instant::now());
        let project = &pool.project_id;
        let browsers = &self.inner.browsers;
        let lock = match &creation {
            Some(creation) => {
                let locking = browsers.lock_creation(project, creation);
                match timeout_at(deadline, locking).await {
                    Ok(lock) => Some(lock),
                    Err(_) => return Ok(None),
                }
            }
            None => None,
        };
        if let Some(creation) = &creation
            && let Some(row) = browsers.find_repeated(project, creation).await?
        {
            return Ok(Some(row));
        }
        if let Some(name) = &lease.name
            && self
                .inner
                .store
                .find_live_name(project, name)
                .await?
                .is_some()
        {
            return Err(PoolError::NameTaken);
        }
        let profile = browsers.find_profile(project, lease.profile.as_ref());
        let profile = profile.await?;
        let start_url = lease.start_url.clone();
        let new_row = Arc::new(move |pool: &PoolRow| NewBrowserRow {
            profile: profile.clone(),
            ..new_row(pool, &lease, creation.as_ref())
        });
        self.acquire_until(&pool.id, new_row, (start_url, lock), deadline)
            .await
    }

    async fn acquire_until(
        &self,
        pool: &PoolId,
        new_row: Arc<impl Fn(&PoolRow) -> NewBrowserRow + Send + Sync + 'static>,
        (start_url, lock): (Option<String>, Option<CreationLock>),
        deadline: Instant,
    ) -> Result<Option<BrowserRow>, PoolError> {
        let lock = Arc::new(lock);
        let mut ticket = None;
        let mut is_first = true;
        loop {
            if !std::mem::take(&mut is_first) && Instant::now() >= deadline {
                return Ok(None);
            }
            let pending = match ticket {
                None => self.lease_at_once(pool, &*new_row).await?,
                Some(_) => None,
            };
            let pending = match pending {
                Some(pending) => pending,
                None => {
                    let new_row = new_row.clone();
                    let waiter = move |pool: &PoolRow| new_row(pool);
                    match self.wait(pool, ticket, Box::new(waiter), deadline).await? {
                        Some(pending) => pending,
                        None => return Ok(None),
                    }
                }
            };
            ticket = pending.ticket();
            let handing_over = self.hand_over(pending, start_url.clone(), lock.clone(), deadline);
            match handing_over.await {
                Err(PoolError::HandOver(HandOverError::Unusable(error))) => {
                    tracing::warn!(%pool, %error, "a browser of a pool is not handed over");
                }
                handed_over => return handed_over,
            }
        }
    }

    /// Leases an idle browser if no client waits.
    async fn lease_at_once(
        &self,
        pool: &PoolId,
        new_row: impl Fn(&PoolRow) -> NewBrowserRow,
    ) -> Result<Option<PendingLease>, PoolError> {
        let store = &self.inner.store;
        let leasing = store.lease_pool_browser(pool, Claim::NoWaiters, new_row, Utc::now());
        match leasing.await {
            Ok(leased) => {
                self.inner.changed.notify_one();
                Ok(Some(PendingLease::new(self.clone(), leased, None)))
            }
            Err(PoolLeaseError::NoneAvailable) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a browser. A client that was served before has its ticket already.
    async fn wait(
        &self,
        pool: &PoolId,
        ticket: Option<WaiterTicket>,
        new_row: Box<dyn Fn(&PoolRow) -> NewBrowserRow + Send + Sync>,
        deadline: Instant,
    ) -> Result<Option<PendingLease>, PoolError> {
        if Instant::now() >= deadline {
            return Ok(None);
        }
        let mut position = self.take_position(pool, ticket).await?;
        let (sender, mut receiver) = oneshot::channel::<Granted>();
        position.enqueue(LocalWaiter {
            new_row,
            sender,
            deadline,
        });
        let granted = tokio::select! {
            granted = &mut receiver => granted,
            () = sleep_until(deadline) => match self.inner.queue.leave(pool, position.ticket) {
                true => return Ok(None),
                // It is being served, or was just not.
                false => receiver.await,
            },
            () = self.inner.shutdown.requested() => return Err(PoolError::ShuttingDown),
        };
        drop(position);
        match granted {
            Ok(granted) => granted.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Adds a client to those that wait, or restores its ticket. Removes that again if the client
    /// leaves meanwhile.
    async fn take_position(
        &self,
        pool: &PoolId,
        ticket: Option<WaiterTicket>,
    ) -> Result<QueuePosition, PoolError> {
        let (this, pool) = (self.clone(), pool.clone());
        let (sender, receiver) = oneshot::channel();
        self.inner.shutdown.spawn(async move {
            let store = &this.inner.store;
            let position = match ticket {
                Some(ticket) => {
                    // A statement that fails may have had its effect.
                    let position = QueuePosition::new(&this, &pool, ticket);
                    let restored = store.restore_waiter(&pool, ticket).await;
                    restored.map(|()| position)
                }
                None => {
                    let added = store.add_waiter(&pool).await;
                    added.map(|ticket| QueuePosition::new(&this, &pool, ticket))
                }
            };
            // Dropped if the client has left, also after it was sent.
            let _ = sender.send(position);
        });
        let position = receiver.await.map_err(|_| PoolError::ShuttingDown)?;
        Ok(position?)
    }
}

fn new_row(pool: &PoolRow, lease: &NewLease, creation: Option<&Creation>) -> NewBrowserRow {
    let settings = &pool.settings;
    let config = &settings.config;
    NewBrowserRow {
        id: BrowserId::generate(),
        project_id: pool.project_id.clone(),
        name: lease.name.clone(),
        headless: config.headless,
        kiosk_mode: config.kiosk_mode,
        timeout_seconds: settings.timeout_seconds,
        viewport: config.viewport,
        start_url: lease.start_url.clone().or_else(|| config.start_url.clone()),
        tags: lease.tags.clone(),
        profile: None,
        idempotency: creation.cloned(),
        pool: Some(PoolOrigin {
            id: pool.id.clone(),
            name: settings.name.clone(),
        }),
    }
}
