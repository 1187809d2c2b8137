//! The browsers that this process discards: each once at a time, and a bounded number at once.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::ids::BrowserId;

/// The most browsers that are discarded at once. Each waits for its host most of the time, and uses
/// a connection to the database only for moments.
const MAX_CONCURRENT_DISCARDS: usize = 64;

/// The browsers that this process discards.
pub(super) struct Discards {
    permits: Semaphore,
    in_progress: Arc<Mutex<HashSet<BrowserId>>>,
}

/// A browser that is being discarded, or waits for that, until this is dropped.
pub(super) struct DiscardGuard {
    id: BrowserId,
    in_progress: Arc<Mutex<HashSet<BrowserId>>>,
}

impl Drop for DiscardGuard {
    fn drop(&mut self) {
        self.in_progress.lock().remove(&self.id);
    }
}

impl Default for Discards {
    fn default() -> Self {
        Discards {
            permits: Semaphore::new(MAX_CONCURRENT_DISCARDS),
            in_progress: Arc::default(),
        }
    }
}

impl Discards {
    /// Begins to discard a browser. Returns `None` if that is in progress.
    pub(super) fn begin(&self, id: &BrowserId) -> Option<DiscardGuard> {
        let is_new = self.in_progress.lock().insert(id.clone());
        is_new.then(|| DiscardGuard {
            id: id.clone(),
            in_progress: self.in_progress.clone(),
        })
    }

    /// Returns whether a browser is being discarded, or waits for that.
    pub(super) fn contains(&self, id: &BrowserId) -> bool {
        self.in_progress.lock().contains(id)
    }

    /// Waits until a further browser may be discarded. Returns `None` only if the semaphore is
    /// closed, which it never is.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn browser_beyond_the_bound_waits_for_another_one() {
        let discards = Discards::default();
        let mut held = Vec::new();
        for _ in 0..MAX_CONCURRENT_DISCARDS {
            held.push(discards.permit().await);
        }
        let mut next = std::pin::pin!(discards.permit());
        assert!(next.as_mut().now_or_never().is_none());
        held.pop();
        assert!(next.now_or_never().is_some());
    }

    #[test]
    fn browser_is_discarded_once_at_a_time() {
        let discards = Discards::default();
        let id = BrowserId::generate();
        let guard = discards.begin(&id);
        assert!(guard.is_some() && discards.contains(&id));
        assert!(discards.begin(&id).is_none());
        drop(guard);
        assert!(!discards.contains(&id));
        assert!(discards.begin(&id).is_some());
    }
}
