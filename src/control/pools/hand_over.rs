//! Hands leased browsers over to their clients, or makes them available again.
//!
//! ```text
//! PendingLease ──▶ check ──▶ usable: own profile and start page ──▶ published
//!      │             ├── not usable: the browser ends
//!      │             └── the client's time is up: available again, while the check goes on
//!      └── the client has left: available again
//! ```

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{PoolError, Pools};
use crate::{
    api::ids::{BrowserId, PoolId},
    backoff::Backoff,
    control::{
        browsers::{CreationLock, HandOverError, PoolLease},
        fleet::{HostError, Lease},
        hosts::CheckError,
        store::{BrowserRow, LeasedBrowser, WaiterTicket},
    },
    request_scope::inherit,
};

/// The first and the longest delay before another attempt to make a browser available again.
const RETURN_RETRY_DELAY: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(10));
/// The time that a check may take beyond the deadline of the client. Otherwise one that does not
/// wait would get no browser.
const CHECK_GRACE_PERIOD: Duration = Duration::from_millis(75);
/// The longest wait of a client that gets no browser until that browser is available again. Longer
/// only if the database fails.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// The check of a leased browser. `None` if its host has lost it.
type Check = JoinHandle<Option<CheckedLease>>;

/// The lease of a browser, and why it is not usable.
struct CheckedLease {
    lease: Lease,
    checked: Result<(), CheckError>,
}

/// A browser that was leased and not handed over yet. Dropping it makes the browser available
/// again.
pub(super) struct PendingLease {
    pools: Pools,
    leased: Option<LeasedBrowser>,
    ticket: Option<WaiterTicket>,
    /// The check, once it is in progress.
    check: Option<Check>,
}

impl PendingLease {
    pub(super) fn new(
        pools: Pools,
        leased: LeasedBrowser,
        ticket: Option<WaiterTicket>,
    ) -> PendingLease {
        PendingLease {
            pools,
            leased: Some(leased),
            ticket,
            check: None,
        }
    }

    /// Returns the ticket that the client had.
    pub(super) fn ticket(&self) -> Option<WaiterTicket> {
        self.ticket
    }

    /// Makes the browser available again, in a task that then waits for the check. The receiver
    /// gets a value when it is available, or is closed.
    fn undo(&mut self) -> Option<oneshot::Receiver<()>> {
        let leased = self.leased.take()?;
        let (pools, check) = (self.pools.clone(), self.check.take());
        let (sender, receiver) = oneshot::channel();
        self.pools.inner.shutdown.spawn(async move {
            pools.return_unused(leased, check, sender).await;
        });
        Some(receiver)
    }
}

impl Drop for PendingLease {
    fn drop(&mut self) {
        self.undo();
    }
}

impl Pools {
    /// Hands a browser over. Returns `None` if the check is not complete at the deadline: the
    /// browser is available again then. Completes or undoes it even if the client disconnects.
    pub(super) async fn hand_over(
        &self,
        mut pending: PendingLease,
        start_url: Option<String>,
        lock: Arc<Option<CreationLock>>,
        deadline: Instant,
    ) -> Result<Option<BrowserRow>, PoolError> {
        let Some(leased) = pending.leased.clone() else {
            return Err(PoolError::Abandoned);
        };
        let this = self.clone();
        let check = pending.check.insert(
            self.inner
                .shutdown
                .spawn(inherit(async move { this.check(&leased).await })),
        );
        let checked = match timeout_at(deadline + CHECK_GRACE_PERIOD, check).await {
            Ok(checked) => checked,
            Err(_) => {
                // Otherwise its name would not be free for the next request of the client.
                if let Some(returned) = pending.undo() {
                    let _ = timeout(RETURN_TIMEOUT, returned).await;
                }
                return Ok(None);
            }
        };
        pending.check = None;
        // If this fails, the browser is available again.
        let checked = checked?;
        let abandoned = CancellationToken::new();
        let abandon_on_drop = abandoned.clone().drop_guard();
        let this = self.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            // A repeated request waits until this is over.
            let _lock = lock;
            this.complete_hand_over(pending, checked, start_url, &abandoned)
                .await
        }));
        let handed_over = task.await?;
        abandon_on_drop.disarm();
        handed_over.map(Some)
    }

    async fn check(&self, leased: &LeasedBrowser) -> Option<CheckedLease> {
        let hosts = &self.inner.hosts;
        let row = &leased.row;
        let lease = hosts.resume_on(&leased.host, &row.id, row.viewport)?;
        let checked = hosts.check(&lease).await;
        Some(CheckedLease { lease, checked })
    }

    async fn complete_hand_over(
        &self,
        mut pending: PendingLease,
        checked: Option<CheckedLease>,
        start_url: Option<String>,
        abandoned: &CancellationToken,
    ) -> Result<BrowserRow, PoolError> {
        let is_usable = checked.as_ref().is_some_and(|lease| lease.checked.is_ok());
        if is_usable && abandoned.is_cancelled() {
            return Err(PoolError::Abandoned);
        }
        let Some(leased) = pending.leased.take() else {
            return Err(PoolError::Abandoned);
        };
        let browsers = &self.inner.browsers;
        let Some(CheckedLease { lease, checked }) = checked else {
            browsers.discard_row(&leased.row.id).await;
            return Err(HandOverError::Unusable(HostError::Gone.into()).into());
        };
        let leased = PoolLease {
            row: leased.row,
            lease,
            has_own_profile: leased.has_own_profile,
            has_user_data: leased.start.profile_version > 0,
            start_url,
        };
        let handed_over = browsers.hand_over(leased, checked, abandoned).await;
        // There is room for another one, if this one was not usable.
        self.inner.changed.notify_one();
        Ok(handed_over?)
    }

    /// Makes a browser available again that its client did not get. If a check of it is in
    /// progress and fails, the browser ends, unless another client has it by then.
    async fn return_unused(
        &self,
        leased: LeasedBrowser,
        check: Option<Check>,
        returned: oneshot::Sender<()>,
    ) {
        let Some(pool) = leased.row.pool.as_ref().map(|pool| pool.id.clone()) else {
            return;
        };
        let Pools { inner } = self;
        let mut delays = Backoff::new(RETURN_RETRY_DELAY.0, RETURN_RETRY_DELAY.1);
        let mut available = None;
        loop {
            match inner.store.return_pool_browser(&leased, Utc::now()).await {
                Ok(Some(id)) => {
                    inner.queue.serve(&pool);
                    available = Some(id);
                }
                // Its host has lost it.
                Ok(None) => inner.browsers.discard_row(&leased.row.id).await,
                Err(error) => {
                    tracing::error!(browser = %leased.row.id, %error, "cannot return a browser to its pool; retrying");
                    // Otherwise another process, or the next start, finishes it.
                    if inner.shutdown.sleep(delays.next_delay()).await {
                        continue;
                    }
                }
            }
            break;
        }
        let _ = returned.send(());
        inner.changed.notify_one();
        if let (Some(id), Some(check)) = (available, check)
            && let Ok(Some(CheckedLease { lease, checked })) = check.await
        {
            inner.hosts.forget(&lease, &leased.row.id);
            if let Err(error) = checked {
                tracing::warn!(%pool, %error, "an idle browser of a pool is not usable");
                self.end_unusable(&pool, &id).await;
            }
        }
    }

    async fn end_unusable(&self, pool: &PoolId, id: &BrowserId) {
        let store = &self.inner.store;
        match store
            .discard_pool_browsers(pool, Some(id), Utc::now())
            .await
        {
            Ok(discarded) => self.end_discarded(discarded, false),
            // The next client finds out.
            Err(error) => tracing::error!(browser = %id, %error, "cannot end an idle browser"),
        }
    }
}
