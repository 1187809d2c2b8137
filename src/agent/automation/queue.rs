//! A queue between a worker's link and a writer, bounded by bytes.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    added: Notify,
    taken: Notify,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
            }),
            added: Notify::new(),
            taken: Notify::new(),
        }
    }
}

impl<T> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    pub fn push(&self, item: T, bytes: usize) {
        let mut state = self.state();
        state.bytes += bytes;
        state.items.push_back((item, bytes));
        drop(state);
        self.added.notify_one();
    }

    /// What waits here, in bytes.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Takes out all that waits here.
    pub fn clear(&self) -> Vec<T> {
        let mut state = self.state();
        state.bytes = 0;
        state.items.drain(..).map(|(item, _)| item).collect()
    }

    /// The next item, for one reader. Cancel-safe.
    pub async fn pop(&self) -> T {
        loop {
            {
                let mut state = self.state();
                if let Some((item, bytes)) = state.items.pop_front() {
                    state.bytes -= bytes;
                    drop(state);
                    self.taken.notify_one();
                    return item;
                }
            }
            self.added.notified().await;
        }
    }

    /// Resolves once less than `limit` bytes wait here, for one waiter. Cancel-safe.
    pub async fn below(&self, limit: usize) {
        while self.bytes() >= limit {
            self.taken.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn items_come_out_in_order_and_their_bytes_are_counted() {
        let queue = Arc::new(Queue::default());
        queue.push("a", 3);
        queue.push("b", 4);
        assert_eq!(queue.bytes(), 7);
        let waiter = tokio::spawn({
            let queue = queue.clone();
            async move { queue.below(4).await }
        });
        assert_eq!(queue.pop().await, "a");
        assert_eq!(queue.pop().await, "b");
        waiter.await.unwrap();
        assert_eq!(queue.bytes(), 0);
    }

    #[tokio::test]
    async fn a_cleared_queue_gives_what_comes_after() {
        let queue = Queue::default();
        queue.push(1, 1);
        assert_eq!(queue.clear(), [1]);
        queue.push(2, 1);
        assert_eq!(queue.pop().await, 2);
    }
}
