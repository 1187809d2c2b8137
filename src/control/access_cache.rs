//! A cache of rows that decide about access, such as keys and projects.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

/// The lifetime of an entry. Bounds how long a change by another process goes unnoticed. A change
/// by this process clears the cache.
const TTL: Duration = Duration::from_secs(2);
/// The most entries.
const MAX_ENTRIES: usize = 1024;

/// Values that were read at most [`TTL`] ago.
pub(super) struct AccessCache<K, V> {
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    generation: Generation,
}

struct Entry<V> {
    value: V,
    expires_at: Instant,
}

/// Counts how often the cache was cleared. Values that were read before the last time are stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl<K, V> Default for AccessCache<K, V> {
    fn default() -> Self {
        AccessCache {
            state: Mutex::new(State {
                entries: HashMap::new(),
                generation: Generation::default(),
            }),
        }
    }
}

impl<K: Eq + Hash, V: Clone> AccessCache<K, V> {
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let state = self.state();
        let entry = state.entries.get(key)?;
        (entry.expires_at > Instant::now()).then(|| entry.value.clone())
    }

    /// Returns the present generation, to be noted before a value is read.
    pub(super) fn generation(&self) -> Generation {
        self.state().generation
    }

    /// Caches a value that was read in `generation`, unless the cache was cleared since.
    pub(super) fn insert(&self, key: K, value: V, generation: Generation) {
        let now = Instant::now();
        let mut state = self.state();
        if state.generation != generation {
            return;
        }
        let entries = &mut state.entries;
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, entry| entry.expires_at > now);
        }
        if entries.len() < MAX_ENTRIES {
            let expires_at = now + TTL;
            entries.insert(key, Entry { value, expires_at });
        }
    }

    /// Removes all entries, and rejects values that are being read.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.entries.clear();
        state.generation.0 += 1;
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_read_before_a_clear_is_not_cached() {
        let cache = AccessCache::<String, u32>::default();
        let generation = cache.generation();
        cache.insert("a".to_owned(), 1, generation);
        assert_eq!(cache.get("a"), Some(1));
        cache.clear();
        assert_eq!(cache.get("a"), None);
        cache.insert("a".to_owned(), 1, generation);
        assert_eq!(cache.get("a"), None);
        cache.insert("a".to_owned(), 2, cache.generation());
        assert_eq!(cache.get("a"), Some(2));
    }

    #[test]
    fn full_cache_accepts_no_entry() {
        let cache = AccessCache::<usize, ()>::default();
        for key in 0..=MAX_ENTRIES {
            cache.insert(key, (), cache.generation());
        }
        assert_eq!(cache.get(&(MAX_ENTRIES - 1)), Some(()));
        assert_eq!(cache.get(&MAX_ENTRIES), None);
    }
}
