//! The task that serves the clients of this process which wait for browsers of pools.
//!
//! Each process serves its own clients, and only when one of them is the first of all. Whatever
//! makes a browser available or a client leave is a hint to all processes; what is missed is found
//! by polling.

use std::{collections::HashMap, time::Duration};

use chrono::Utc;
use futures::{StreamExt, stream};
use tokio::time::{MissedTickBehavior, interval};

use super::{PoolError, Pools, hand_over::PendingLease};
use crate::{
    api::ids::PoolId,
    control::store::{Claim, Hint, PoolLeaseError, StoreError, WaiterTicket},
};

/// Between two looks for pools that can be served, unless there is a hint.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The most pools that are served at once.
const MAX_CONCURRENT: usize = 8;
/// The checks in a row in which a ticket must have no client before it is removed.
const UNKNOWN_PASSES: u32 = 10;
/// The number of polls of which one checks the tickets while no client waits.
const IDLE_CHECK_PASSES: u32 = 8;

/// The memory of the checks of tickets.
#[derive(Default)]
struct TicketCheck {
    passes: u32,
    /// The tickets without a client, with the number of checks in a row that found none.
    unknown: HashMap<WaiterTicket, u32>,
}

impl Pools {
    /// Serves clients until shutdown.
    pub async fn dispatch(self) {
        let shutdown = self.inner.shutdown.clone();
        let mut tickets = TicketCheck::default();
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.inner.queue.changed().notified() => {}
                _ = poll.tick() => {
                    self.check_tickets(&mut tickets).await;
                    self.find_to_serve().await;
                }
                () = shutdown.requested() => {
                    // Its clients are refused. Those of other processes are served without a wait.
                    if let Err(error) = self.inner.store.remove_own_waiters().await {
                        tracing::warn!(%error, "cannot remove waiting clients");
                    }
                    return;
                }
            }
            self.remove_unused_tickets().await;
            let pools = self.inner.queue.take_to_serve();
            stream::iter(pools)
                .for_each_concurrent(MAX_CONCURRENT, |pool| {
                    let this = self.clone();
                    async move {
                        if let Err(error) = this.serve_waiters(&pool).await {
                            tracing::warn!(%pool, %error, "cannot serve the clients of a pool yet");
                        }
                    }
                })
                .await;
        }
    }

    /// Requests service for the pool of another process's hint.
    pub fn notice_change(&self, pool: &PoolId) {
        self.inner.queue.serve(pool);
        self.inner.changed.notify_one();
    }

    /// Restores lost tickets of clients that wait, because another process took this one
    /// for dead, and removes those without a client.
    async fn check_tickets(&self, check: &mut TicketCheck) {
        let Pools { inner } = self;
        check.passes += 1;
        if inner.queue.is_empty() && !check.passes.is_multiple_of(IDLE_CHECK_PASSES) {
            return;
        }
        if let Err(error) = self.try_check_tickets(check).await {
            tracing::warn!(%error, "cannot check the waiting clients");
        }
    }

    async fn try_check_tickets(&self, check: &mut TicketCheck) -> Result<(), StoreError> {
        let Pools { inner } = self;
        let recorded = inner.store.own_waiters().await?;
        let local = inner.queue.tickets();
        let lost = local
            .iter()
            .filter(|(ticket, _)| !recorded.contains_key(ticket));
        for (ticket, pool) in lost {
            // Clients of a deleted pool are refused instead.
            if inner.store.find_any_pool(pool).await?.is_some() {
                inner.store.restore_waiter(pool, *ticket).await?;
            }
            inner.queue.serve(pool);
        }
        let unknown = recorded
            .into_iter()
            .filter(|(ticket, _)| !local.contains_key(ticket));
        let unknown: HashMap<WaiterTicket, PoolId> = unknown.collect();
        // Those that are being added or served have no client for a moment.
        check
            .unknown
            .retain(|ticket, _| unknown.contains_key(ticket));
        for (ticket, pool) in unknown {
            let count = check.unknown.entry(ticket).or_default();
            *count += 1;
            if *count >= UNKNOWN_PASSES {
                inner.store.remove_waiters(&pool, &[ticket]).await?;
            }
        }
        Ok(())
    }

    async fn find_to_serve(&self) {
        let Pools { inner } = self;
        if inner.queue.is_empty() {
            return;
        }
        match inner.store.pools_to_serve().await {
            Ok(pools) => pools.iter().for_each(|pool| inner.queue.serve(pool)),
            Err(error) => tracing::warn!(%error, "cannot look for available browsers of pools"),
        }
    }

    /// Removes the tickets of clients that do not wait any more.
    async fn remove_unused_tickets(&self) {
        let Pools { inner } = self;
        for (pool, tickets) in inner.queue.take_unused_tickets() {
            match inner.store.remove_waiters(&pool, &tickets).await {
                // Another one may be the first now.
                Ok(()) => inner.queue.serve(&pool),
                Err(error) => {
                    tracing::warn!(%pool, %error, "cannot remove waiting clients yet");
                    inner.queue.retry_removal(pool, tickets);
                }
            }
        }
    }

    /// Leases available browsers to clients of this process, as long as one of them is the first.
    /// Notifies the process of the next one.
    async fn serve_waiters(&self, pool: &PoolId) -> Result<(), StoreError> {
        let Pools { inner } = self;
        let mut has_served = false;
        // Also after the last client of this process: another one may be next.
        while has_served || inner.queue.is_waited_for(pool) {
            let Some(first) = inner.store.first_waiter(pool).await? else {
                return self.find_missing(pool).await;
            };
            if first.process != inner.store.process() {
                if has_served {
                    inner.store.hint(Hint::Pool(pool.clone()));
                }
                return Ok(());
            }
            // A client that is being added is not served before it waits.
            if !inner.queue.is_waited_for(pool) || !self.serve_first(pool, first.ticket).await? {
                return Ok(());
            }
            has_served = true;
        }
        Ok(())
    }

    /// Leases an available browser to the client with a ticket, which is the first of all. Returns
    /// whether the next one may be served.
    async fn serve_first(&self, pool: &PoolId, ticket: WaiterTicket) -> Result<bool, StoreError> {
        let Pools { inner } = self;
        let Some(waiter) = inner.queue.take(pool, ticket) else {
            // It has left, or its request is over.
            inner.store.remove_waiters(pool, &[ticket]).await?;
            return Ok(true);
        };
        let claim = Claim::First(ticket);
        let leasing = inner
            .store
            .lease_pool_browser(pool, claim, &waiter.new_row, Utc::now());
        let granted = match leasing.await {
            Ok(leased) => {
                inner.changed.notify_one();
                Ok(PendingLease::new(self.clone(), leased, Some(ticket)))
            }
            Err(PoolLeaseError::NoneAvailable) => {
                inner.queue.put_back(pool, ticket, waiter);
                return Ok(false);
            }
            Err(
                error @ (PoolLeaseError::NoPool
                | PoolLeaseError::Profile(_)
                | PoolLeaseError::Store(StoreError::UniqueViolation(_))),
            ) => {
                inner.store.remove_waiters(pool, &[ticket]).await?;
                Err(error.into())
            }
            Err(PoolLeaseError::Store(error)) => {
                inner.queue.put_back(pool, ticket, waiter);
                return Err(error);
            }
        };
        // A client that has left meanwhile drops what it got.
        let _ = waiter.sender.send(granted);
        Ok(true)
    }

    /// Finds out why the clients of this process have no tickets.
    async fn find_missing(&self, pool: &PoolId) -> Result<(), StoreError> {
        let Pools { inner } = self;
        if inner.store.find_any_pool(pool).await?.is_none() {
            for waiter in inner.queue.take_all(pool) {
                let _ = waiter.sender.send(Err(PoolError::NotFound));
            }
            return Ok(());
        }
        // The next check of the tickets restores them.
        Ok(())
    }
}
