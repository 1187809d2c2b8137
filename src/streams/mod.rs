//! A log in bounded memory with any number of independent readers.
//!
//! The writer never waits: entries that no longer fit are dropped from the front, and a reader that
//! has not read them gets a gap with their number. Entries are numbered from 1, so that a
//! reconnecting client can resume after the last id it has received.
//!
//! ```text
//!            dropped        retained            next append
//! ids   1 ─────────── first ──────── newest ──▶
//!       reader A ─▲ (gets a gap)   ▲── reader B (waits)
//! ```
//!
//! The log is closed once, optionally with a last entry; readers then get the rest and end.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::Stream;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

/// Limits of a log. The newest entry is retained whatever its weight.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub entries: usize,
    /// In the unit of the weights given to [`Log::append`], usually bytes.
    pub weight: usize,
}

/// A limit on the total weight of several logs. While it is exceeded, a log that gets an entry
/// drops all others that it retains. Clones share the budget.
#[derive(Debug, Clone)]
pub struct WeightBudget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

impl WeightBudget {
    #[must_use]
    pub fn new(limit: usize) -> Self {
        WeightBudget {
            used: Arc::default(),
            limit,
        }
    }

    fn add(&self, weight: usize) {
        self.used.fetch_add(weight, Relaxed);
    }

    fn subtract(&self, weight: usize) {
        self.used.fetch_sub(weight, Relaxed);
    }

    fn is_exceeded(&self) -> bool {
        self.used.load(Relaxed) > self.limit
    }
}

/// The writing end of a log; clones write to the same log.
#[derive(Debug)]
pub struct Log<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    bounds: Bounds,
    budget: WeightBudget,
    state: Mutex<State<T>>,
    /// Notified when an entry is appended or the log is closed.
    changed: Notify,
    /// Notified when a reader is created or dropped.
    readers_changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    /// The retained entries with their weights.
    retained: VecDeque<(T, usize)>,
    /// The id of the first retained entry, or of the next entry if none is retained.
    first_id: u64,
    weight: usize,
    is_closed: bool,
    reader_count: usize,
    /// The time when the last reader was dropped.
    unread_since: Instant,
}

impl<T> State<T> {
    fn next_id(&self) -> u64 {
        self.first_id + self.retained.len() as u64
    }
}

/// The position at which a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// The first retained entry. Entries dropped before are not reported as a gap.
    Oldest,
    /// The entry after this id. An id that has not been assigned yet means the newest.
    After(u64),
    /// The next entry to be appended.
    Newest,
}

/// The result of reading one position of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<T> {
    Item {
        id: u64,
        item: T,
    },
    /// This many entries were dropped before they were read; `id` is that of the last of them.
    Gap {
        id: u64,
        missed: u64,
    },
}

/// The result of [`Reader::try_next`].
#[derive(Debug, PartialEq, Eq)]
pub enum TryNext<T> {
    Entry(Entry<T>),
    /// No entry is available yet.
    Empty,
    /// All entries have been read, and the log is closed.
    Closed,
}

/// A reader of a log. Every reader gets every entry.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    /// The id of the entry to be read next.
    next_id: u64,
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Log {
            shared: self.shared.clone(),
        }
    }
}

impl<T: Clone> Log<T> {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self::with_budget(bounds, WeightBudget::new(usize::MAX))
    }

    /// Creates a log whose entries also count against a budget.
    #[must_use]
    pub fn with_budget(bounds: Bounds, budget: WeightBudget) -> Self {
        Log {
            shared: Arc::new(Shared {
                bounds,
                budget,
                state: Mutex::new(State {
                    retained: VecDeque::new(),
                    first_id: 1,
                    weight: 0,
                    is_closed: false,
                    reader_count: 0,
                    unread_since: Instant::now(),
                }),
                changed: Notify::new(),
                readers_changed: Notify::new(),
            }),
        }
    }

    /// Appends an entry without waiting; returns `false` if the log is closed.
    pub fn append(&self, item: T, weight: usize) -> bool {
        self.shared.append(Some((item, weight)), false)
    }

    /// Appends the last entry, which is retained as long as the log, and closes the log.
    pub fn close_with(&self, item: T, weight: usize) -> bool {
        self.shared.append(Some((item, weight)), true)
    }

    /// Closes the log without a last entry.
    pub fn close(&self) {
        self.shared.append(None, true);
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.state().is_closed
    }

    /// Returns the weight of the retained entries.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.shared.state().weight
    }

    /// Resolves when the log is closed.
    pub async fn closed(&self) {
        loop {
            let changed = self.shared.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Returns the id of the newest entry; 0 if there has been none.
    #[must_use]
    pub fn newest_id(&self) -> u64 {
        self.shared.state().next_id() - 1
    }

    #[must_use]
    pub fn reader(&self, start_at: StartAt) -> Reader<T> {
        let mut state = self.shared.state();
        state.reader_count += 1;
        let next_id = match start_at {
            StartAt::Oldest => state.first_id,
            StartAt::After(id) => id.saturating_add(1).min(state.next_id()),
            StartAt::Newest => state.next_id(),
        };
        drop(state);
        self.shared.readers_changed.notify_waiters();
        Reader {
            shared: self.shared.clone(),
            next_id,
        }
    }

    /// Resolves when the log has had no reader for `limit`.
    pub async fn without_readers_for(&self, limit: Duration) {
        loop {
            let changed = self.shared.readers_changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let deadline = {
                let state = self.shared.state();
                (state.reader_count == 0).then(|| state.unread_since + limit)
            };
            match deadline {
                Some(deadline) => tokio::select! {
                    () = tokio::time::sleep_until(deadline) => return,
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    fn append(&self, entry: Option<(T, usize)>, is_last: bool) -> bool {
        let mut dropped = Vec::new();
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.is_closed = is_last;
        if let Some((item, weight)) = entry {
            state.weight = state.weight.saturating_add(weight);
            self.budget.add(weight);
            state.retained.push_back((item, weight));
        }
        while state.retained.len() > 1
            && (state.retained.len() > self.bounds.entries
                || state.weight > self.bounds.weight
                || self.budget.is_exceeded())
        {
            if let Some((item, weight)) = state.retained.pop_front() {
                state.first_id += 1;
                state.weight -= weight;
                self.budget.subtract(weight);
                dropped.push(item);
            }
        }
        drop(state);
        // Items are freed outside the lock, so that no reader waits for it.
        drop(dropped);
        self.changed.notify_waiters();
        true
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.budget.subtract(self.state.get_mut().weight);
    }
}

impl<T: Clone> Reader<T> {
    /// Returns whether all entries have been read and the log is closed.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        let state = self.shared.state();
        state.is_closed && self.next_id >= state.next_id()
    }

    /// Returns the next entry without waiting.
    pub fn try_next(&mut self) -> TryNext<T> {
        let state = self.shared.state();
        if let Some(missed @ 1..) = state.first_id.checked_sub(self.next_id) {
            self.next_id = state.first_id;
            return TryNext::Entry(Entry::Gap {
                id: state.first_id - 1,
                missed,
            });
        }
        let index = usize::try_from(self.next_id - state.first_id).unwrap_or(usize::MAX);
        match state.retained.get(index) {
            Some((item, _)) => {
                let (id, item) = (self.next_id, item.clone());
                self.next_id += 1;
                TryNext::Entry(Entry::Item { id, item })
            }
            None if state.is_closed => TryNext::Closed,
            None => TryNext::Empty,
        }
    }

    /// Waits for the next entry; `None` after the last. Cancel-safe: no entry is lost if the future
    /// is dropped.
    pub async fn next(&mut self) -> Option<Entry<T>> {
        loop {
            let shared = self.shared.clone();
            let changed = shared.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            match self.try_next() {
                TryNext::Entry(entry) => return Some(entry),
                TryNext::Closed => return None,
                TryNext::Empty => changed.await,
            }
        }
    }

    pub fn into_stream(self) -> impl Stream<Item = Entry<T>> + Send
    where
        T: Send,
    {
        futures::stream::unfold(self, |mut reader| async move {
            let entry = reader.next().await?;
            Some((entry, reader))
        })
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.reader_count -= 1;
        if state.reader_count == 0 {
            state.unread_since = Instant::now();
        }
        drop(state);
        self.shared.readers_changed.notify_waiters();
    }
}
