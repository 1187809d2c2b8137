//! The queue of messages to one client. The multiplexer never waits for a client: one that does not
//! read is disconnected.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The bytes that may be queued for a client before a further message disconnects it, as many as
/// Chromium's own server buffers.
const MAX_QUEUED: usize = 256 << 20;
/// The bytes queued for all clients above which a client may have only its share of them.
const MAX_QUEUED_FOR_ALL: usize = 1 << 30;
const SHARE: usize = 16 << 20;
/// The memory of a queued message besides its text.
const MESSAGE_OVERHEAD: usize = 64;

/// Why a client's connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Chromium has ended.
    BrowserGone,
    /// The target that the client is connected to has gone, a closed tab for example.
    TargetGone,
    /// The client did not read its messages.
    TooSlow,
}

#[derive(Debug)]
struct Shared {
    queued: AtomicUsize,
    queued_for_all: Arc<AtomicUsize>,
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

/// Returns the two ends of a queue. `queued_for_all` counts the bytes in the queues of all clients.
pub(super) fn queue(queued_for_all: Arc<AtomicUsize>) -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        queued: AtomicUsize::new(0),
        queued_for_all,
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
        let queued = self.shared.queued.load(Relaxed);
        let is_crowded = self.shared.queued_for_all.load(Relaxed) > MAX_QUEUED_FOR_ALL;
        if queued > MAX_QUEUED || is_crowded && queued > SHARE {
            return false;
        }
        let cost = cost(&message);
        self.shared.queued.fetch_add(cost, Relaxed);
        self.shared.queued_for_all.fetch_add(cost, Relaxed);
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
        if self.shared.is_too_slow() {
            return Err(End::TooSlow);
        }
        if self.messages.recv_many(batch, limit).await == 0 {
            return Err(self.shared.end.get().copied().unwrap_or(End::BrowserGone));
        }
        Ok(())
    }

    /// Returns a message if one is queued.
    pub(super) fn try_receive(&mut self) -> Option<Bytes> {
        if self.shared.is_too_slow() {
            return None;
        }
        self.messages.try_recv().ok()
    }

    /// Counts a message as read.
    pub(super) fn release(&self, message: &Bytes) {
        let cost = cost(message);
        self.shared.queued.fetch_sub(cost, Relaxed);
        self.shared.queued_for_all.fetch_sub(cost, Relaxed);
    }
}

impl Shared {
    fn is_too_slow(&self) -> bool {
        self.end.get() == Some(&End::TooSlow)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let unread = *self.queued.get_mut();
        self.queued_for_all.fetch_sub(unread, Relaxed);
    }
}

fn cost(message: &Bytes) -> usize {
    message.len() + MESSAGE_OVERHEAD
}
