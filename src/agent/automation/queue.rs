//! A queue from a worker's session to a writer, which counts its bytes. The session enforces the
//! bounds.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    pushed: Notify,
    popped: Notify,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(T, Size)>,
    bytes: usize,
    reply_bytes: usize,
}

/// The bytes of an item, by what bounds them.
#[derive(Clone, Copy, Debug)]
enum Size {
    Plain(usize),
    Reply(usize),
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                reply_bytes: 0,
            }),
            pushed: Notify::new(),
            popped: Notify::new(),
        }
    }
}

impl<T> Queue<T> {
    pub(super) fn push(&self, item: T, bytes: usize) {
        self.add(item, Size::Plain(bytes));
    }

    /// Adds a reply to a command, which is counted apart: its sender has asked for it.
    pub(super) fn push_reply(&self, item: T, bytes: usize) {
        self.add(item, Size::Reply(bytes));
    }

    fn add(&self, item: T, size: Size) {
        let mut state = self.state.lock();
        match size {
            Size::Plain(bytes) => state.bytes += bytes,
            Size::Reply(bytes) => state.reply_bytes += bytes,
        }
        state.items.push_back((item, size));
        drop(state);
        self.pushed.notify_one();
    }

    /// Returns the number of queued bytes, without those of replies.
    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Returns the number of queued bytes of replies.
    pub(super) fn reply_bytes(&self) -> usize {
        self.state.lock().reply_bytes
    }

    /// Removes and returns all queued items.
    pub(super) fn clear(&self) -> Vec<T> {
        let mut state = self.state.lock();
        (state.bytes, state.reply_bytes) = (0, 0);
        state.items.drain(..).map(|(item, _)| item).collect()
    }

    /// Waits for the next item. For one reader; cancel-safe.
    pub(super) async fn pop(&self) -> T {
        loop {
            {
                let mut state = self.state.lock();
                if let Some((item, size)) = state.items.pop_front() {
                    match size {
                        Size::Plain(bytes) => state.bytes -= bytes,
                        Size::Reply(bytes) => state.reply_bytes -= bytes,
                    }
                    drop(state);
                    self.popped.notify_one();
                    return item;
                }
            }
            self.pushed.notified().await;
        }
    }

    /// Waits until less than `limit` bytes are queued. For one waiter; cancel-safe.
    pub(super) async fn below(&self, limit: usize) {
        while self.bytes() >= limit {
            self.popped.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn items_are_popped_in_order_and_their_bytes_are_counted() {
        let queue = Arc::new(Queue::default());
        queue.push("a", 3);
        queue.push("b", 4);
        queue.push_reply("c", 5);
        assert_eq!((queue.bytes(), queue.reply_bytes()), (7, 5));
        let waiter = tokio::spawn({
            let queue = queue.clone();
            async move { queue.below(4).await }
        });
        assert_eq!(queue.pop().await, "a");
        assert_eq!(queue.pop().await, "b");
        assert_eq!(queue.pop().await, "c");
        assert_eq!(queue.reply_bytes(), 0);
        waiter.await.unwrap();
        assert_eq!(queue.bytes(), 0);
    }

    #[tokio::test]
    async fn cleared_queue_returns_later_items() {
        let queue = Queue::default();
        queue.push(1, 1);
        assert_eq!(queue.clear(), [1]);
        queue.push(2, 1);
        assert_eq!(queue.pop().await, 2);
    }
}
