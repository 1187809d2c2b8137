//! The cache of a provider's list of items. It has metadata only.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ItemSummary, ProviderError};

pub(super) type ItemList = Arc<[ItemSummary]>;
type ItemsFuture = BoxFuture<'static, Result<ItemList, ProviderError>>;

/// A list that is used for some time after its fetch began. Concurrent callers share one fetch.
pub(super) struct ItemCache {
    /// Zero disables the cache.
    ttl: Duration,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    list: Option<CachedList>,
    /// The fetch that is under way.
    fetch: Option<WeakShared<ItemsFuture>>,
}

struct CachedList {
    items: ItemList,
    expires_at: Instant,
}

impl ItemCache {
    pub(super) fn new(ttl: Duration) -> Arc<ItemCache> {
        Arc::new(ItemCache {
            ttl,
            state: Mutex::default(),
        })
    }

    /// Returns the list that is cached at `now`, or that of `fetch`. Errors are not cached.
    ///
    /// A fetch whose list is cached goes on without callers: otherwise one that takes longer than
    /// they wait would never end.
    pub(super) async fn get_or_fetch<F>(
        self: &Arc<Self>,
        now: Instant,
        fetch: impl FnOnce() -> F,
    ) -> Result<ItemList, ProviderError>
    where
        F: Future<Output = Result<Vec<ItemSummary>, ProviderError>> + Send + 'static,
    {
        let shared = {
            let mut state = self.state.lock();
            if let Some(list) = state.list.as_ref().filter(|list| list.expires_at > now) {
                return Ok(list.items.clone());
            }
            state.list = None;
            let under_way = state.fetch.as_ref().and_then(WeakShared::upgrade);
            under_way.unwrap_or_else(|| {
                let shared = self.clone().store(now, fetch()).boxed().shared();
                state.fetch = shared.downgrade();
                if !self.ttl.is_zero() {
                    tokio::spawn(shared.clone());
                }
                shared
            })
        };
        shared.await
    }

    async fn store(
        self: Arc<Self>,
        started_at: Instant,
        fetch: impl Future<Output = Result<Vec<ItemSummary>, ProviderError>>,
    ) -> Result<ItemList, ProviderError> {
        let result = fetch.await.map(ItemList::from);
        let mut state = self.state.lock();
        state.fetch = None;
        if let (Ok(items), false) = (&result, self.ttl.is_zero()) {
            state.list = Some(CachedList {
                items: items.clone(),
                expires_at: started_at + self.ttl,
            });
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::{future::join_all, poll};
    use tokio::sync::Notify;

    use super::*;

    const TTL: Duration = Duration::from_secs(300);

    fn list(count: usize) -> Vec<ItemSummary> {
        let item = |number: usize| ItemSummary {
            id: number.to_string(),
            path: "v/i".to_owned(),
            title: "i".to_owned(),
            vault_id: "v".to_owned(),
            vault_name: "v".to_owned(),
            urls: Vec::new(),
        };
        (0..count).map(item).collect()
    }

    /// Returns the length of the list, which is `count` if it is fetched.
    async fn get(cache: &Arc<ItemCache>, now: Instant, count: usize) -> usize {
        let items = cache.get_or_fetch(now, || async move { Ok(list(count)) });
        items.await.unwrap().len()
    }

    #[tokio::test]
    async fn list_is_used_until_its_lifetime_ends() {
        let (cache, now) = (ItemCache::new(TTL), Instant::now());
        assert_eq!(get(&cache, now, 1).await, 1);
        let last = now + TTL - Duration::from_nanos(1);
        assert_eq!(get(&cache, last, 2).await, 1);
        assert_eq!(get(&cache, now + TTL, 3).await, 3);
    }

    #[tokio::test]
    async fn lifetime_begins_with_the_fetch() {
        let (cache, now) = (ItemCache::new(TTL), Instant::now());
        let release = Arc::new(Notify::new());
        let released = release.clone();
        let mut slow = Box::pin(cache.get_or_fetch(now, || async move {
            released.notified().await;
            Ok(list(1))
        }));
        assert!(poll!(&mut slow).is_pending());
        release.notify_one();
        // The time that the fetch takes is part of the lifetime.
        assert_eq!(slow.await.unwrap().len(), 1);
        assert_eq!(get(&cache, now + TTL, 2).await, 2);
    }

    #[tokio::test]
    async fn lifetime_of_zero_caches_nothing() {
        let (cache, now) = (ItemCache::new(Duration::ZERO), Instant::now());
        assert_eq!(get(&cache, now, 1).await, 1);
        assert_eq!(get(&cache, now, 2).await, 2);
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_fetch() {
        let now = Instant::now();
        for ttl in [Duration::ZERO, TTL] {
            let cache = ItemCache::new(ttl);
            let (count, release) = (AtomicUsize::new(0), Arc::new(Notify::new()));
            let callers = (0..10).map(|_| {
                cache.get_or_fetch(now, || {
                    count.fetch_add(1, Ordering::SeqCst);
                    let release = release.clone();
                    async move {
                        release.notified().await;
                        Ok(list(1))
                    }
                })
            });
            let mut callers = Box::pin(join_all(callers));
            assert!(poll!(&mut callers).is_pending());
            release.notify_one();
            assert!(callers.await.iter().all(Result::is_ok));
            assert_eq!(count.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn fetch_survives_the_caller_that_began_it() {
        let (cache, now) = (ItemCache::new(TTL), Instant::now());
        let release = Arc::new(Notify::new());
        let released = release.clone();
        let mut first = Box::pin(cache.get_or_fetch(now, || async move {
            released.notified().await;
            Ok(list(3))
        }));
        assert!(poll!(&mut first).is_pending());
        let mut second = Box::pin(get(&cache, now, 9));
        assert!(poll!(&mut second).is_pending());
        drop(first);
        release.notify_one();
        assert_eq!(second.await, 3);
    }

    #[tokio::test]
    async fn fetch_without_callers_ends_only_if_its_list_is_not_cached() {
        let (cache, now) = (ItemCache::new(TTL), Instant::now());
        let release = Arc::new(Notify::new());
        let released = release.clone();
        let mut slow = Box::pin(cache.get_or_fetch(now, || async move {
            released.notified().await;
            Ok(list(3))
        }));
        assert!(poll!(&mut slow).is_pending());
        drop(slow);
        release.notify_one();
        assert_eq!(get(&cache, now, 9).await, 3);

        let cache = ItemCache::new(Duration::ZERO);
        let mut never = Box::pin(cache.get_or_fetch(now, pending));
        assert!(poll!(&mut never).is_pending());
        drop(never);
        assert_eq!(get(&cache, now, 1).await, 1);
    }

    #[tokio::test]
    async fn error_is_not_cached() {
        let (cache, now) = (ItemCache::new(TTL), Instant::now());
        let failed = cache.get_or_fetch(now, || async { Err(ProviderError::Timeout) });
        assert_eq!(failed.await, Err(ProviderError::Timeout));
        assert_eq!(get(&cache, now, 1).await, 1);
    }
}
