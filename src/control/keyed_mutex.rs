//! A mutex for each key: operations on the same key run one after the other.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Mutexes by key. Only keys that are locked or waited for take memory, even if a wait is
/// cancelled.
pub(super) struct KeyedMutex<K: Eq + Hash + Clone> {
    entries: Entries<K>,
}

type Entries<K> = Arc<Mutex<HashMap<K, Arc<AsyncMutex<()>>>>>;

/// The lock on one key. Dropping it unlocks the key.
pub(super) struct KeyedMutexGuard<K: Eq + Hash + Clone> {
    key: K,
    entries: Entries<K>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash + Clone> Default for KeyedMutex<K> {
    fn default() -> Self {
        KeyedMutex {
            entries: Arc::default(),
        }
    }
}

impl<K: Eq + Hash + Clone> KeyedMutex<K> {
    /// Waits until the key is unlocked, and locks it. Waiters are served in order.
    pub(super) async fn lock(&self, key: K) -> KeyedMutexGuard<K> {
        let mutex = self.entries.lock().entry(key.clone()).or_default().clone();
        // Exists before the wait, so that its `drop` also cleans up after a cancelled wait.
        let mut lock = KeyedMutexGuard {
            key,
            entries: self.entries.clone(),
            guard: None,
        };
        lock.guard = Some(mutex.lock_owned().await);
        lock
    }
}

impl<K: Eq + Hash + Clone> Drop for KeyedMutexGuard<K> {
    fn drop(&mut self) {
        let mut entries = self.entries.lock();
        self.guard = None;
        // The map holds the last reference if no other task has or awaits the lock.
        if entries
            .get(&self.key)
            .is_some_and(|mutex| Arc::strong_count(mutex) == 1)
        {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn lock_waits_for_the_same_key_only() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock("a").await;
        let mut second = Box::pin(mutex.lock("a"));
        assert!((&mut second).now_or_never().is_none());
        assert!(mutex.lock("b").now_or_never().is_some());
        drop(first);
        drop(second.await);
        assert!(mutex.entries.lock().is_empty());
    }

    #[tokio::test]
    async fn cancelled_wait_leaves_no_entry() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock("a").await;
        let mut second = Box::pin(mutex.lock("a"));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        drop(second);
        assert!(mutex.entries.lock().is_empty());
    }
}
