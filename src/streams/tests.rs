//! Tests of the log against a model, and of its readers.

use futures::StreamExt;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Open(StartAt),
    /// Call `try_next` on the reader at this index.
    TryNext(usize),
    Drop(usize),
    Close(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let start_at = prop_oneof![
        Just(StartAt::Oldest),
        Just(StartAt::Newest),
        (0..60u64).prop_map(StartAt::After)
    ];
    let step = prop_oneof![
        8 => (0..12usize).prop_map(Step::Append),
        2 => start_at.prop_map(Step::Open),
        12 => (0..8usize).prop_map(Step::TryNext),
        1 => (0..8usize).prop_map(Step::Drop),
        1 => any::<bool>().prop_map(Step::Close),
    ];
    prop::collection::vec(step, 0..200)
}

/// A model of the log: all entries ever appended, and the window of those that fit.
#[derive(Default)]
struct Model {
    weights: Vec<usize>,
    is_closed: bool,
}

impl Model {
    fn newest(&self) -> u64 {
        self.weights.len() as u64
    }

    /// Returns the result for a reader at id `next`, and advances it.
    fn try_next(&self, next: &mut u64, bounds: Bounds) -> TryNext<u64> {
        let oldest = self.oldest(bounds);
        if *next < oldest {
            let missed = oldest - *next;
            *next = oldest;
            return TryNext::Entry(Entry::Gap {
                id: oldest - 1,
                missed,
            });
        }
        if *next > self.newest() {
            return match self.is_closed {
                true => TryNext::Closed,
                false => TryNext::Empty,
            };
        }
        *next += 1;
        let id = *next - 1;
        TryNext::Entry(Entry::Item { id, item: id * 10 })
    }

    /// Returns the id of the oldest entry that fits, counted backwards from the newest.
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
    fn readers_match_the_model(
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
                    prop_assert_eq!(log.append(id * 10, weight), !model.is_closed);
                    if !model.is_closed {
                        model.weights.push(weight);
                    }
                }
                Step::Open(start_at) => {
                    let next = match start_at {
                        StartAt::Oldest => model.oldest(bounds),
                        StartAt::Newest => model.newest() + 1,
                        StartAt::After(id) => id.min(model.newest()) + 1,
                    };
                    readers.push((log.reader(start_at), next));
                }
                Step::TryNext(index) => {
                    let count = readers.len().max(1);
                    let Some((reader, next)) = readers.get_mut(index % count) else { continue };
                    let expected = model.try_next(next, bounds);
                    prop_assert_eq!(reader.is_at_end(), expected == TryNext::Closed);
                    prop_assert_eq!(reader.try_next(), expected);
                }
                Step::Drop(index) => {
                    if index < readers.len() {
                        readers.swap_remove(index);
                    }
                }
                Step::Close(with_entry) => {
                    if with_entry && !model.is_closed {
                        prop_assert!(log.close_with((model.newest() + 1) * 10, 1));
                        model.weights.push(1);
                    } else {
                        log.close();
                    }
                    model.is_closed = true;
                }
            }
            prop_assert_eq!(log.is_closed(), model.is_closed);
            prop_assert_eq!(log.newest_id(), model.newest());
        }
    }
}

const ROOMY: Bounds = Bounds {
    entries: 1 << 20,
    weight: usize::MAX,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_readers_receive_all_entries() {
    const ENTRIES: u64 = 20_000;
    let log = Log::new(ROOMY);
    let readers: Vec<_> = (0..10)
        .map(|_| {
            let reader = log.reader(StartAt::Oldest);
            tokio::spawn(reader.into_stream().collect::<Vec<_>>())
        })
        .collect();
    let writer = log.clone();
    tokio::task::spawn_blocking(move || {
        for entry in 1..ENTRIES {
            writer.append(entry, 1);
        }
        writer.close_with(ENTRIES, 1);
    })
    .await
    .unwrap();
    let expected: Vec<_> = (1..=ENTRIES)
        .map(|id| Entry::Item { id, item: id })
        .collect();
    for reader in readers {
        assert!(reader.await.unwrap() == expected);
    }
}

#[tokio::test]
async fn stalled_reader_does_not_exceed_the_bounds() {
    let log = Log::new(Bounds {
        entries: 1000,
        weight: 1 << 20,
    });
    let mut stalled = log.reader(StartAt::Oldest);
    for n in 0..100_000u32 {
        log.append(n, 64 << 10);
    }
    log.close();
    assert_eq!(
        stalled.next().await,
        Some(Entry::Gap {
            id: 100_000 - 16,
            missed: 100_000 - 16
        })
    );
    let rest: Vec<_> = stalled.into_stream().collect().await;
    assert_eq!(rest.len(), 16);
}

#[tokio::test]
async fn log_is_unread_since_its_last_reader_was_dropped() {
    const LIMIT: Duration = Duration::from_millis(50);
    let log = Log::<u8>::new(ROOMY);
    let reader = log.reader(StartAt::Newest);
    let unread = log.without_readers_for(LIMIT);
    let mut unread = std::pin::pin!(unread);
    assert!(futures::poll!(unread.as_mut()).is_pending());
    let dropped_at = Instant::now();
    drop(reader);
    unread.await;
    assert!(dropped_at.elapsed() >= LIMIT);
}

#[test]
fn logs_share_a_budget_until_they_are_dropped() {
    let budget = WeightBudget::new(10);
    let bounds = Bounds {
        entries: 100,
        weight: 8,
    };
    let new_log = || Log::with_budget(bounds, budget.clone());
    let (first, second) = (new_log(), new_log());
    for item in 0..6 {
        first.append(item, 1);
        second.append(item, 1);
    }
    // Of twelve entries, the oldest of each log was dropped.
    assert_eq!((first.weight(), second.weight()), (5, 5));
    let mut reader = second.reader(StartAt::After(0));
    assert_eq!(
        reader.try_next(),
        TryNext::Entry(Entry::Gap { id: 1, missed: 1 })
    );
    drop(first);
    for item in 6..9 {
        second.append(item, 1);
    }
    assert_eq!(second.weight(), 8);
    // The newest entry is retained whatever its weight.
    second.append(9, 100);
    assert_eq!(second.weight(), 100);
    let third = new_log();
    third.append(0, 1);
    third.append(1, 1);
    assert_eq!(third.weight(), 1);
}
