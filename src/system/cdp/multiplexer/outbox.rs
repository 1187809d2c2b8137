//! The queue of messages to one client. The multiplexer never waits for a client: one that does not
//! read is disconnected.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The bytes that may be queued before a further message disconnects the client.
const MAX_QUEUED: usize = 64 << 20;
/// The memory of a queued message besides its text.
const MESSAGE_OVERHEAD: usize = 64;
/// The longest message that is copied, so that it does not keep the whole read that it is part of.
const MAX_COPIED: usize = 16 << 10;

/// Why a client's connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Chromium has ended.
    BrowserGone,
    /// The target that the client is connected to has gone, a closed tab for example.
    TargetGone,
    /// The client did not read its messages.
    TooSlow,
    /// A reply was longer than the client accepts.
    TooLong,
}

#[derive(Debug)]
struct Shared {
    queued: AtomicUsize,
    end: OnceLock<End>,
    too_slow: CancellationToken,
}

/// The multiplexer's end of the queue. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Outbox {
    messages: mpsc::UnboundedSender<Bytes>,
    shared: Arc<Shared>,
}

/// The client's end of the queue.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: mpsc::UnboundedReceiver<Bytes>,
    shared: Arc<Shared>,
}

pub(super) fn queue() -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        queued: AtomicUsize::new(0),
        end: OnceLock::new(),
        too_slow: CancellationToken::new(),
    });
    let outbox = Outbox {
        messages: sender,
        shared: shared.clone(),
    };
    let inbox = Inbox {
        messages: receiver,
        shared,
    };
    (outbox, inbox)
}

impl Outbox {
    /// Queues a message. Returns false if too much is queued already.
    pub(super) fn push(&self, message: Bytes) -> bool {
        if self.shared.queued.load(Relaxed) > MAX_QUEUED {
            return false;
        }
        let message = match message.len() {
            0..=MAX_COPIED => Bytes::copy_from_slice(&message),
            _ => message,
        };
        self.shared.queued.fetch_add(cost(&message), Relaxed);
        // If the client has gone, its disconnection is on its way.
        let _ = self.messages.send(message);
        true
    }

    /// States why the connection ends when the queue does. The first reason counts.
    pub(super) fn end(&self, end: End) {
        let is_first = self.shared.end.set(end).is_ok();
        if is_first && end == End::TooSlow {
            self.shared.too_slow.cancel();
        }
    }
}

impl Inbox {
    /// Returns a token that is cancelled when the client is too slow.
    pub(super) fn too_slow(&self) -> CancellationToken {
        self.shared.too_slow.clone()
    }

    /// Waits for messages and appends them to `batch`.
    ///
    /// # Errors
    /// Fails when the connection has ended. Messages that were queued before come first, except of
    /// a client that is too slow for them.
    pub(super) async fn receive(
        &mut self,
        batch: &mut Vec<Bytes>,
        limit: usize,
    ) -> Result<(), End> {
        if self.shared.too_slow.is_cancelled() {
            return Err(End::TooSlow);
        }
        let start = batch.len();
        if self.messages.recv_many(batch, limit).await == 0 {
            return Err(self.shared.end.get().copied().unwrap_or(End::BrowserGone));
        }
        let received: usize = batch[start..].iter().map(cost).sum();
        self.shared.queued.fetch_sub(received, Relaxed);
        Ok(())
    }
}

fn cost(message: &Bytes) -> usize {
    message.len() + MESSAGE_OVERHEAD
}
