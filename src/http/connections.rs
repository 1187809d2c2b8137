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
//! Links (URLs with a token) are passed on to others than the clients with keys. The connections
//! that only links have authenticated are bounded within the authenticated class, in all and for
//! each link, so that they leave room for keys.
//!
//! Each connection holds its [`ConnectionPermit`], and so does what it is upgraded to. The last of
//! them to end returns the slot.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

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
/// The share of all links is one authenticated slot in this many.
const LINKS_DIVISOR: usize = 2;
/// The share of one link is one slot of all links in this many.
const LINK_DIVISOR: usize = 2;
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

    /// Returns the number of authenticated connections that all links may have.
    fn links(self) -> usize {
        (self.authenticated / LINKS_DIVISOR).max(1)
    }

    /// Returns the number of authenticated connections that one link may have.
    fn link(self) -> usize {
        (self.links() / LINK_DIVISOR).max(1)
    }

    /// Returns the number of connections of both classes.
    #[must_use]
    pub fn total(self) -> usize {
        self.authenticated + self.unauthenticated
    }
}

/// Identifies the link that authenticated a request, an extension of the request. Links to the same
/// thing have the same id, however many tokens were issued for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LinkId(Arc<str>);

impl LinkId {
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self(id.into())
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
    links: LinkSlots,
}

/// The authenticated connections that only links have authenticated.
#[derive(Default)]
struct LinkSlots {
    connections: HashMap<u64, LinkId>,
    /// The number of connections of each link that has any.
    counts: HashMap<LinkId, usize>,
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

impl LinkSlots {
    /// Rejects a further connection of `link` at the limit of it or of all links.
    fn check(&self, link: &LinkId, limits: ConnectionLimits) -> ApiResult<()> {
        let of_link = self.counts.get(link).copied().unwrap_or_default();
        if of_link >= limits.link() {
            let message = format!("connection limit of the link reached ({})", limits.link());
            return Err(ApiError::unavailable(message, FULL_RETRY_AFTER));
        }
        if self.connections.len() >= limits.links() {
            let message = format!("connection limit of all links reached ({})", limits.links());
            return Err(ApiError::unavailable(message, FULL_RETRY_AFTER));
        }
        Ok(())
    }

    fn add(&mut self, id: u64, link: LinkId) {
        *self.counts.entry(link.clone()).or_default() += 1;
        self.connections.insert(id, link);
    }

    /// Removes a connection, if it is one of a link.
    fn remove(&mut self, id: u64) {
        let Some(link) = self.connections.remove(&id) else {
            return;
        };
        if let Entry::Occupied(mut count) = self.counts.entry(link) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
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

    /// Moves the connection to the authenticated class, in which it stays. `link` is the link that
    /// authenticated its request, or `None` for another credential, with which it no longer counts
    /// as one of a link.
    ///
    /// # Errors
    /// Returns 503 if that class, or the share of links in it, is full.
    pub(super) fn authenticate(&self, link: Option<&LinkId>) -> ApiResult<()> {
        let Slot { id, shared, .. } = &*self.0;
        let mut slots = shared.slots.lock();
        if !slots.unauthenticated.contains_key(id) {
            if link.is_none() {
                slots.links.remove(*id);
            }
            return Ok(());
        }
        if let Some(link) = link {
            slots.links.check(link, shared.limits)?;
        }
        let limit = shared.limits.authenticated;
        if slots.authenticated >= limit {
            let message = format!("connection limit reached ({limit})");
            return Err(ApiError::unavailable(message, FULL_RETRY_AFTER));
        }
        slots.unauthenticated.remove(id);
        slots.authenticated += 1;
        if let Some(link) = link {
            slots.links.add(*id, link.clone());
        }
        shared.slot_freed.notify_one();
        Ok(())
    }
}

/// Whether a request has authenticated. Clones share that.
#[derive(Debug, Clone, Default)]
pub(super) struct Authentication(Arc<AtomicBool>);

impl Authentication {
    pub(super) fn has_succeeded(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Middleware behind the guard: moves the connection of a request to the authenticated class, and
/// records that the request has authenticated.
pub(super) async fn keep_authenticated(request: Request, next: Next) -> ApiResult<Response> {
    if let Some(permit) = request.extensions().get::<ConnectionPermit>() {
        permit.authenticate(request.extensions().get::<LinkId>())?;
    }
    if let Some(authentication) = request.extensions().get::<Authentication>() {
        authentication.0.store(true, Ordering::Relaxed);
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
            slots.links.remove(self.id);
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
        first.authenticate(None).unwrap();
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
        first.authenticate(None).unwrap();
        let second = waiting.await;
        let upgraded = second.clone();
        drop(second);
        let mut waiting = Box::pin(connections.open());
        assert!(poll!(&mut waiting).is_pending());
        drop(upgraded);
        let third = waiting.await;
        third.authenticate(None).unwrap();
        third.authenticate(None).unwrap();
        let error = connections.open().await.authenticate(None).unwrap_err();
        assert_eq!(error.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        connections.open().await.authenticate(None).unwrap();
    }

    #[tokio::test]
    async fn links_leave_room_for_other_credentials() {
        let connections = connections(8, 64);
        let links = ["a", "b", "c"].map(LinkId::new);
        let mut open = Vec::new();
        let mut accepted = Vec::new();
        for link in &links {
            let mut count = 0;
            for _ in 0..8 {
                let permit = connections.open().await;
                count += usize::from(permit.authenticate(Some(link)).is_ok());
                open.push(permit);
            }
            accepted.push(count);
        }
        // Two of each link, four of all.
        assert_eq!(accepted, [2, 2, 0]);
        for _ in 0..4 {
            let permit = connections.open().await;
            permit.authenticate(None).unwrap();
            open.push(permit);
        }
        drop(open);
        let permit = connections.open().await;
        permit.authenticate(Some(&links[2])).unwrap();
        let slots = connections.0.slots.lock();
        assert_eq!((slots.authenticated, slots.links.counts.len()), (1, 1));
    }

    #[tokio::test]
    async fn connection_with_another_credential_no_longer_counts_as_one_of_a_link() {
        let connections = connections(4, 4);
        let link = LinkId::new("a");
        let first = connections.open().await;
        first.authenticate(Some(&link)).unwrap();
        let second = connections.open().await;
        second.authenticate(Some(&link)).unwrap_err();
        first.authenticate(None).unwrap();
        second.authenticate(Some(&link)).unwrap();
        // One of a credential stays so.
        first.authenticate(Some(&link)).unwrap();
        assert_eq!(connections.0.slots.lock().links.connections.len(), 1);
    }
}
