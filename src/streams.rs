//! A log in bounded memory that any number of readers follow, each at its own pace.
//!
//! The writer never waits: what no longer fits is dropped from the front, and a reader that had not come so far is told how much
//! it missed. Entries are numbered from 1, so that a reader can go on where an earlier one stopped.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::Stream;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

/// How much a log keeps. The newest entry is kept whatever it weighs.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub entries: usize,
    /// In the unit in which entries are weighed when they are appended, bytes as a rule.
    pub weight: usize,
}

/// The writing end; clones write to the same log.
#[derive(Debug)]
pub struct Log<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    bounds: Bounds,
    state: Mutex<State<T>>,
    /// There is something new to read, or nothing will come any more.
    grown: Notify,
    /// A reader has come or gone.
    readers_changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    kept: VecDeque<(T, usize)>,
    /// The id of the first entry that is kept, or of the next to come.
    first: u64,
    weight: usize,
    ended: bool,
    readers: usize,
    unread_since: Instant,
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With all that is kept. What was dropped before is no gap: the reader never had a claim to it.
    Oldest,
    /// After the entry with this id. An id that has not been given yet stands for the newest.
    After(u64),
    /// With what comes next.
    Newest,
}

/// What a reader finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<T> {
    Item {
        id: u64,
        item: T,
    },
    /// So many entries were dropped before they were read; `id` is that of the last one of them.
    Gap {
        id: u64,
        missed: u64,
    },
}

/// The outcome of a look without waiting.
#[derive(Debug, PartialEq, Eq)]
pub enum Look<T> {
    Entry(Entry<T>),
    /// There is nothing new yet.
    Nothing,
    /// All has been read and nothing will come.
    End,
}

/// One reader. Each has every entry for itself.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    /// The id of the entry to be read next.
    next: u64,
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
        Log {
            shared: Arc::new(Shared {
                bounds,
                state: Mutex::new(State {
                    kept: VecDeque::new(),
                    first: 1,
                    weight: 0,
                    ended: false,
                    readers: 0,
                    unread_since: Instant::now(),
                }),
                grown: Notify::new(),
                readers_changed: Notify::new(),
            }),
        }
    }

    /// Adds an entry and never waits. After the end there is no room: `false`.
    pub fn append(&self, item: T, weight: usize) -> bool {
        self.shared.add(Some((item, weight)), false)
    }

    /// Adds the last entry. It is kept for as long as the log.
    pub fn end_with(&self, item: T, weight: usize) -> bool {
        self.shared.add(Some((item, weight)), true)
    }

    /// Ends the log without a last entry.
    pub fn end(&self) {
        self.shared.add(None, true);
    }

    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.shared.state().ended
    }

    /// What is kept weighs so much.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.shared.state().weight
    }

    /// Resolves once nothing will be added any more.
    pub async fn ended(&self) {
        loop {
            let grown = self.shared.grown.notified();
            let mut grown = std::pin::pin!(grown);
            grown.as_mut().enable();
            if self.is_ended() {
                return;
            }
            grown.await;
        }
    }

    /// The id of the newest entry; 0 where there has been none.
    #[must_use]
    pub fn newest(&self) -> u64 {
        let state = self.shared.state();
        state.first + state.kept.len() as u64 - 1
    }

    #[must_use]
    pub fn reader(&self, from: From) -> Reader<T> {
        let mut state = self.shared.state();
        state.readers += 1;
        let newest = state.first + state.kept.len() as u64;
        let next = match from {
            From::Oldest => state.first,
            From::After(id) => id.saturating_add(1).min(newest),
            From::Newest => newest,
        };
        drop(state);
        self.shared.readers_changed.notify_waiters();
        Reader {
            shared: self.shared.clone(),
            next,
        }
    }

    /// Resolves once nobody has read for `limit` on end.
    pub async fn unread_for(&self, limit: Duration) {
        loop {
            let changed = self.shared.readers_changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let due = {
                let state = self.shared.state();
                (state.readers == 0).then(|| state.unread_since + limit)
            };
            match due {
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => return,
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

    fn add(&self, entry: Option<(T, usize)>, last: bool) -> bool {
        let mut dropped = Vec::new();
        let mut state = self.state();
        if state.ended {
            return false;
        }
        state.ended = last;
        if let Some((item, weight)) = entry {
            state.weight = state.weight.saturating_add(weight);
            state.kept.push_back((item, weight));
        }
        while state.kept.len() > 1
            && (state.kept.len() > self.bounds.entries || state.weight > self.bounds.weight)
        {
            if let Some((item, weight)) = state.kept.pop_front() {
                state.first += 1;
                state.weight -= weight;
                dropped.push(item);
            }
        }
        drop(state);
        // Freed outside the lock, where nobody waits for it.
        drop(dropped);
        self.grown.notify_waiters();
        true
    }
}

impl<T: Clone> Reader<T> {
    /// All has been read and nothing will come.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        let state = self.shared.state();
        state.ended && self.next >= state.first + state.kept.len() as u64
    }

    /// What there is, without waiting.
    pub fn look(&mut self) -> Look<T> {
        let state = self.shared.state();
        if let Some(missed @ 1..) = state.first.checked_sub(self.next) {
            self.next = state.first;
            return Look::Entry(Entry::Gap {
                id: state.first - 1,
                missed,
            });
        }
        let at = usize::try_from(self.next - state.first).unwrap_or(usize::MAX);
        match state.kept.get(at) {
            Some((item, _)) => {
                let (id, item) = (self.next, item.clone());
                self.next += 1;
                Look::Entry(Entry::Item { id, item })
            }
            None if state.ended => Look::End,
            None => Look::Nothing,
        }
    }

    /// Waits for the next entry; `None` after the last. Dropped in between, nothing is lost.
    pub async fn next(&mut self) -> Option<Entry<T>> {
        loop {
            let shared = self.shared.clone();
            let grown = shared.grown.notified();
            let mut grown = std::pin::pin!(grown);
            grown.as_mut().enable();
            match self.look() {
                Look::Entry(entry) => return Some(entry),
                Look::End => return None,
                Look::Nothing => grown.await,
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
        state.readers -= 1;
        if state.readers == 0 {
            state.unread_since = Instant::now();
        }
        drop(state);
        self.shared.readers_changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Append(usize),
        Open(From),
        /// One look of one of the readers.
        Look(usize),
        Close(usize),
        End(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let from = prop_oneof![
            Just(From::Oldest),
            Just(From::Newest),
            (0..60u64).prop_map(From::After)
        ];
        let step = prop_oneof![
            8 => (0..12usize).prop_map(Step::Append),
            2 => from.prop_map(Step::Open),
            12 => (0..8usize).prop_map(Step::Look),
            1 => (0..8usize).prop_map(Step::Close),
            1 => any::<bool>().prop_map(Step::End),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// The log as one would like to have it: all there ever was, and the window that fits.
    #[derive(Default)]
    struct Model {
        weights: Vec<usize>,
        ended: bool,
    }

    impl Model {
        fn newest(&self) -> u64 {
            self.weights.len() as u64
        }

        /// The id of the oldest entry that fits, counted from the newest backwards.
        fn oldest(&self, bounds: Bounds) -> u64 {
            let (mut count, mut weight) = (0, 0);
            for entry in self.weights.iter().rev() {
                count += 1;
                weight += entry;
                if count > 1 && (count > bounds.entries || weight > bounds.weight) {
                    count -= 1;
                    break;
                }
            }
            self.newest() - count as u64 + 1
        }
    }

    proptest! {
        #[test]
        fn every_reader_finds_what_a_simple_model_says(
            steps in steps(),
            entries in 0..6usize,
            weight in 0..40usize,
        ) {
            let bounds = Bounds { entries, weight };
            let log = Log::new(bounds);
            let mut model = Model::default();
            let mut readers: Vec<(Reader<u64>, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Append(weight) => {
                        let id = model.newest() + 1;
                        prop_assert_eq!(log.append(id * 10, weight), !model.ended);
                        if !model.ended {
                            model.weights.push(weight);
                        }
                    }
                    Step::Open(from) => {
                        let next = match from {
                            From::Oldest => model.oldest(bounds),
                            From::Newest => model.newest() + 1,
                            From::After(id) => id.min(model.newest()) + 1,
                        };
                        readers.push((log.reader(from), next));
                    }
                    Step::Look(index) => {
                        let count = readers.len().max(1);
                        let Some((reader, next)) = readers.get_mut(index % count) else { continue };
                        let oldest = model.oldest(bounds);
                        let wanted = if *next < oldest {
                            let gap = Entry::Gap { id: oldest - 1, missed: oldest - *next };
                            *next = oldest;
                            Look::Entry(gap)
                        } else if *next <= model.newest() {
                            *next += 1;
                            Look::Entry(Entry::Item { id: *next - 1, item: (*next - 1) * 10 })
                        } else if model.ended {
                            Look::End
                        } else {
                            Look::Nothing
                        };
                        prop_assert_eq!(reader.is_at_end(), wanted == Look::End);
                        prop_assert_eq!(reader.look(), wanted);
                    }
                    Step::Close(index) => {
                        if index < readers.len() {
                            readers.swap_remove(index);
                        }
                    }
                    Step::End(with_entry) => {
                        if with_entry && !model.ended {
                            prop_assert!(log.end_with((model.newest() + 1) * 10, 1));
                            model.weights.push(1);
                        } else {
                            log.end();
                        }
                        model.ended = true;
                    }
                }
                prop_assert_eq!(log.is_ended(), model.ended);
                prop_assert_eq!(log.newest(), model.newest());
            }
        }
    }

    const ROOMY: Bounds = Bounds {
        entries: 1 << 20,
        weight: usize::MAX,
    };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn readers_that_wait_while_it_is_written_find_all_of_it() {
        const ENTRIES: u64 = 20_000;
        let log = Log::new(ROOMY);
        let readers: Vec<_> = (0..10)
            .map(|_| {
                let reader = log.reader(From::Oldest);
                tokio::spawn(reader.into_stream().collect::<Vec<_>>())
            })
            .collect();
        let writer = log.clone();
        tokio::task::spawn_blocking(move || {
            for entry in 1..ENTRIES {
                writer.append(entry, 1);
            }
            writer.end_with(ENTRIES, 1);
        })
        .await
        .unwrap();
        let wanted: Vec<_> = (1..=ENTRIES)
            .map(|id| Entry::Item { id, item: id })
            .collect();
        for reader in readers {
            assert!(reader.await.unwrap() == wanted);
        }
    }

    #[tokio::test]
    async fn a_reader_that_stops_costs_no_more_than_the_bound() {
        let log = Log::new(Bounds {
            entries: 1000,
            weight: 1 << 20,
        });
        let mut stopped = log.reader(From::Oldest);
        for n in 0..100_000u32 {
            log.append(n, 64 << 10);
        }
        log.end();
        assert_eq!(
            stopped.next().await,
            Some(Entry::Gap {
                id: 100_000 - 16,
                missed: 100_000 - 16
            })
        );
        let rest: Vec<_> = stopped.into_stream().collect().await;
        assert_eq!(rest.len(), 16);
    }

    #[tokio::test]
    async fn a_log_is_unread_from_when_its_last_reader_left() {
        const LIMIT: Duration = Duration::from_millis(50);
        let log = Log::<u8>::new(ROOMY);
        let reader = log.reader(From::Newest);
        let unread = log.unread_for(LIMIT);
        let mut unread = std::pin::pin!(unread);
        assert!(futures::poll!(unread.as_mut()).is_pending());
        let left = Instant::now();
        drop(reader);
        unread.await;
        assert!(left.elapsed() >= LIMIT);
    }
}
