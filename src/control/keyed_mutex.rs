//! Taking turns by key: what has the same key happens one after the other.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard};

/// The turns that are taken or waited for.
pub struct KeyedMutex<K: Eq + Hash + Clone> {
    keys: Arc<Mutex<HashMap<K, Arc<TurnMutex<()>>>>>,
}

/// Somebody's turn; dropping it lets the next one on.
pub struct Turn<K: Eq + Hash + Clone> {
    key: K,
    keys: Arc<Mutex<HashMap<K, Arc<TurnMutex<()>>>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash + Clone> Default for KeyedMutex<K> {
    fn default() -> Self {
        KeyedMutex {
            keys: Arc::default(),
        }
    }
}

impl<K: Eq + Hash + Clone> KeyedMutex<K> {
    /// Waits until it is one's turn.
    pub async fn take(&self, key: K) -> Turn<K> {
        let mutex = {
            let mut keys = self.keys.lock();
            keys.entry(key.clone()).or_default().clone()
        };
        let mut turn = Turn {
            key,
            keys: self.keys.clone(),
            guard: None,
        };
        turn.guard = Some(mutex.lock_owned().await);
        turn
    }
}

impl<K: Eq + Hash + Clone> Drop for Turn<K> {
    fn drop(&mut self) {
        let mut keys = self.keys.lock();
        self.guard = None;
        // The map's own is the last one: nobody has it or waits for it.
        if keys
            .get(&self.key)
            .is_some_and(|mutex| Arc::strong_count(mutex) == 1)
        {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_same_key_waits_and_another_does_not() {
        let turns = KeyedMutex::default();
        let first = turns.take("a").await;
        let mut second = Box::pin(turns.take("a"));
        assert!((&mut second).now_or_never().is_none());
        assert!(turns.take("b").now_or_never().is_some());
        drop(first);
        drop(second.await);
        assert!(turns.keys.lock().is_empty());
    }

    #[tokio::test]
    async fn whoever_stops_waiting_leaves_nothing() {
        let turns = KeyedMutex::default();
        let first = turns.take("a").await;
        let mut second = Box::pin(turns.take("a"));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        drop(second);
        assert!(turns.keys.lock().is_empty());
    }
}
