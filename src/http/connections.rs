//! Connection slots: how many connections are open, and which one is closed for another.
//!
//! A slot is of one of two classes. A new connection is unauthenticated; the first of its requests
//! that passes the guard makes it authenticated. Each class has a share of its own, so peers
//! without a credential cannot take the slots of clients that have one.
//!
//! ```text
//! accepted ─▶ unauthenticated ──── a request passes the guard ───▶ authenticated
//!             share full: the oldest is closed                     share full: 503
//! ```
//!
//! Each connection holds its [`ConnectionPermit`], and so does what it is upgraded to. The last of
//! them to end returns the slot.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{extract::Request, middleware::Next, response::Response};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{ApiError, ApiResult};

/// Age from which an unauthenticated connection may be closed for a new one: the time of a client
/// to send a request and of the server to authenticate it.
const MIN_EVICTION_AGE: Duration = Duration::from_millis(100);
/// The unauthenticated share is one slot in this many.
const UNAUTHENTICATED_DIVISOR: usize = 4;
/// `Retry-After` of requests that find all slots of authenticated connections taken.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The number of connections of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    authenticated: usize,
    unauthenticated: usize,
}

impl ConnectionLimits {
    /// Divides `max` connections into the two classes. Each has at least one.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let unauthenticated = (max / UNAUTHENTICATED_DIVISOR).max(1);
        Self {
            authenticated: max.saturating_sub(unauthenticated).max(1),
            unauthenticated,
        }
    }

    /// Returns limits of at most `max` connections that fit into `open_files` descriptors.
    ///
    /// `reserved` descriptors, but at most half of all, are left to the rest of the process.
    #[must_use]
    pub fn for_open_files(
        max: usize,
        open_files: usize,
        reserved: usize,
        per_connection: usize,
    ) -> Self {
        let available = open_files - reserved.min(open_files / 2);
        Self::new(max.min(available / per_connection))
    }

    /// Returns the number of connections of both classes.
    #[must_use]
    pub fn total(self) -> usize {
        self.authenticated + self.unauthenticated
    }
}

/// The open connections of a server.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    limits: ConnectionLimits,
    slots: Mutex<Slots>,
    /// Notified when a connection leaves the unauthenticated class.
    slot_freed: Notify,
}

#[derive(Default)]
struct Slots {
    next_id: u64,
    authenticated: usize,
    /// By id, so oldest first.
    unauthenticated: BTreeMap<u64, Unauthenticated>,
}

struct Unauthenticated {
    opened_at: Instant,
    /// Makes the connection's task close it. It keeps its slot until the task has ended.
    evicted: CancellationToken,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Shared {
            limits,
            slots: Mutex::default(),
            slot_freed: Notify::new(),
        }))
    }

    /// Waits for a slot for a new connection; closes the oldest unauthenticated one if all are
    /// taken.
    pub(super) async fn open(&self) -> ConnectionPermit {
        loop {
            // Registered before the check, so that no notification is missed.
            let freed = self.0.slot_freed.notified();
            let (permit, oldest) = self.try_open();
            match (permit, oldest) {
                (Some(permit), _) => return permit,
                (None, Some(opened_at)) => tokio::select! {
                    () = freed => {}
                    () = sleep_until(opened_at + MIN_EVICTION_AGE) => {
                        self.evict_opened_until(opened_at);
                    }
                },
                (None, None) => freed.await,
            }
        }
    }

    /// Takes a free slot. Otherwise returns when the connection was opened that can be closed for
    /// it, unless one is being closed.
    fn try_open(&self) -> (Option<ConnectionPermit>, Option<Instant>) {
        let mut slots = self.0.slots.lock();
        if slots.unauthenticated.len() >= self.0.limits.unauthenticated {
            return (None, slots.oldest().map(|oldest| oldest.opened_at));
        }
        let id = slots.next_id;
        slots.next_id += 1;
        let evicted = CancellationToken::new();
        let entry = Unauthenticated {
            opened_at: Instant::now(),
            evicted: evicted.clone(),
        };
        slots.unauthenticated.insert(id, entry);
        metrics::gauge!("berth_connections_open").increment(1.0);
        let slot = Slot {
            id,
            evicted,
            shared: self.0.clone(),
        };
        (Some(ConnectionPermit(Arc::new(slot))), None)
    }

    fn evict_opened_until(&self, opened_at: Instant) {
        let slots = self.0.slots.lock();
        let oldest = slots.oldest();
        if let Some(oldest) = oldest.filter(|oldest| oldest.opened_at <= opened_at) {
            oldest.evict();
        }
    }

    /// Closes the oldest unauthenticated connection, whatever its age, because the process is out
    /// of descriptors.
    pub(super) fn evict_oldest(&self) {
        if let Some(oldest) = self.0.slots.lock().oldest() {
            oldest.evict();
        }
    }
}

impl Slots {
    /// Returns the oldest unauthenticated connection, unless it is being closed already.
    fn oldest(&self) -> Option<&Unauthenticated> {
        let (_, oldest) = self.unauthenticated.first_key_value()?;
        (!oldest.evicted.is_cancelled()).then_some(oldest)
    }
}

impl Unauthenticated {
    fn evict(&self) {
        self.evicted.cancel();
        metrics::counter!("berth_connections_aborted_total", "reason" => "unauthenticated")
            .increment(1);
    }
}

/// The right to be connected, shared by a connection and what it is upgraded to.
#[derive(Clone)]
pub(super) struct ConnectionPermit(Arc<Slot>);

struct Slot {
    id: u64,
    evicted: CancellationToken,
    shared: Arc<Shared>,
}

impl ConnectionPermit {
    /// Resolves when the connection has to be closed for another one.
    pub(super) async fn evicted(&self) {
        self.0.evicted.cancelled().await;
    }

    /// Moves the connection to the authenticated class, in which it stays.
    ///
    /// # Errors
    /// Returns 503 if that class is full.
    pub(super) fn authenticate(&self) -> ApiResult<()> {
        let Slot { id, shared, .. } = &*self.0;
        let mut slots = shared.slots.lock();
        if !slots.unauthenticated.contains_key(id) {
            return Ok(());
        }
        let limit = shared.limits.authenticated;
        if slots.authenticated >= limit {
            let message = format!("connection limit reached ({limit})");
            return Err(ApiError::unavailable(message, FULL_RETRY_AFTER));
        }
        slots.unauthenticated.remove(id);
        slots.authenticated += 1;
        shared.slot_freed.notify_one();
        Ok(())
    }
}

/// Middleware behind the guard: moves the connection of a request to the authenticated class.
pub(super) async fn keep_authenticated(request: Request, next: Next) -> ApiResult<Response> {
    if let Some(permit) = request.extensions().get::<ConnectionPermit>() {
        permit.authenticate()?;
    }
    Ok(next.run(request).await)
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = self.shared.slots.lock();
        if slots.unauthenticated.remove(&self.id).is_some() {
            self.shared.slot_freed.notify_one();
        } else {
            slots.authenticated -= 1;
        }
        metrics::gauge!("berth_connections_open").decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};

    use super::*;

    fn connections(authenticated: usize, unauthenticated: usize) -> Connections {
        Connections::new(ConnectionLimits {
            authenticated,
            unauthenticated,
        })
    }

    #[test]
    fn limits_fit_into_the_descriptors() {
        let total = |open_files| ConnectionLimits::for_open_files(1000, open_files, 200, 2).total();
        assert_eq!(total(usize::MAX), 1000);
        assert_eq!(total(1024), 412);
        // At most half of the descriptors are reserved.
        assert_eq!(total(300), 75);
        assert_eq!(total(0), 2);
        let limits = ConnectionLimits::new(1000);
        assert_eq!((limits.authenticated, limits.unauthenticated), (750, 250));
    }

    #[tokio::test]
    async fn oldest_unauthenticated_connection_is_closed_for_a_new_one() {
        let connections = connections(1, 2);
        let first = connections.open().await;
        let second = connections.open().await;
        first.authenticate().unwrap();
        let third = connections.open().await;
        let mut fourth = Box::pin(connections.open());
        assert!(poll!(&mut fourth).is_pending());
        tokio::select! {
            _ = &mut fourth => panic!("a slot was given away twice"),
            () = second.evicted() => {}
        }
        assert!(first.evicted().now_or_never().is_none());
        assert!(third.evicted().now_or_never().is_none());
        drop(second);
        fourth.await;
    }

    #[tokio::test]
    async fn slot_is_freed_by_authentication_and_by_the_last_clone() {
        let connections = connections(2, 1);
        let first = connections.open().await;
        let mut waiting = Box::pin(connections.open());
        assert!(poll!(&mut waiting).is_pending());
        first.authenticate().unwrap();
        let second = waiting.await;
        let upgraded = second.clone();
        drop(second);
        let mut waiting = Box::pin(connections.open());
        assert!(poll!(&mut waiting).is_pending());
        drop(upgraded);
        let third = waiting.await;
        third.authenticate().unwrap();
        third.authenticate().unwrap();
        let error = connections.open().await.authenticate().unwrap_err();
        assert_eq!(error.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        connections.open().await.authenticate().unwrap();
    }
}
