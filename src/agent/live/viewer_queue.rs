//! A bounded queue of one viewer's input messages. Consecutive pointer moves are coalesced to the
//! last one, consecutive wheel messages are added up.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

use crate::api::live::ViewerMessage;

/// Queued messages above which senders wait.
const MAX_QUEUED_MESSAGES: usize = 64;
/// Bytes of queued text above which senders wait.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// The sending half. Dropping it closes the queue; queued messages are still delivered.
pub(super) struct ViewerSender(Arc<ViewerQueue>);

/// The receiving half.
pub(super) struct ViewerReceiver(Arc<ViewerQueue>);

pub(super) fn channel() -> (ViewerSender, ViewerReceiver) {
    let queue = Arc::new(ViewerQueue {
        state: Mutex::new(QueueState {
            messages: VecDeque::new(),
            closed: false,
            last_activity: Instant::now(),
        }),
        not_empty: Notify::new(),
        not_full: Notify::new(),
    });
    (ViewerSender(queue.clone()), ViewerReceiver(queue))
}

struct ViewerQueue {
    state: Mutex<QueueState>,
    not_empty: Notify,
    not_full: Notify,
}

struct QueueState {
    messages: VecDeque<ViewerMessage>,
    closed: bool,
    /// When the viewer last sent any message.
    last_activity: Instant,
}

impl ViewerQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

impl ViewerSender {
    /// Records that the viewer is alive, whatever it sent.
    pub(super) fn touch(&self) {
        self.0.lock().last_activity = Instant::now();
    }

    /// Queues a message. Waits while the queue is full.
    pub(super) async fn send(&self, message: ViewerMessage) {
        let mut message = message;
        loop {
            let pushed = self.0.lock().push(message);
            match pushed {
                Ok(()) => return self.0.not_empty.notify_one(),
                Err(rejected) => message = rejected,
            }
            self.0.not_full.notified().await;
        }
    }
}

impl Drop for ViewerSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.not_empty.notify_one();
    }
}

impl ViewerReceiver {
    /// Returns the next message, or `None` once the queue is closed and empty.
    pub(super) async fn recv(&self) -> Option<ViewerMessage> {
        loop {
            {
                let mut state = self.0.lock();
                if let Some(message) = state.messages.pop_front() {
                    // A viewer blocked by a full queue could not send anything meanwhile.
                    state.last_activity = Instant::now();
                    self.0.not_full.notify_one();
                    return Some(message);
                }
                if state.closed {
                    return None;
                }
            }
            self.0.not_empty.notified().await;
        }
    }

    pub(super) fn last_activity(&self) -> Instant {
        self.0.lock().last_activity
    }
}

impl QueueState {
    /// Adds a message, coalescing it with the last one where possible. Returns it if the queue is
    /// full.
    fn push(&mut self, message: ViewerMessage) -> Result<(), ViewerMessage> {
        use ViewerMessage::{PointerMove, Wheel};
        let message = match (self.messages.back_mut(), message) {
            (Some(last @ PointerMove { .. }), message @ PointerMove { .. }) => {
                *last = message;
                return Ok(());
            }
            (
                Some(Wheel {
                    x,
                    y,
                    delta_x,
                    delta_y,
                }),
                Wheel {
                    x: new_x,
                    y: new_y,
                    delta_x: more_x,
                    delta_y: more_y,
                },
            ) => {
                (*x, *y) = (new_x, new_y);
                (*delta_x, *delta_y) = (
                    delta_x.saturating_add(more_x),
                    delta_y.saturating_add(more_y),
                );
                return Ok(());
            }
            (_, message) => message,
        };
        let bytes: usize = self.messages.iter().map(text_len).sum();
        if self.messages.len() >= MAX_QUEUED_MESSAGES
            || bytes > 0 && bytes + text_len(&message) > MAX_QUEUED_BYTES
        {
            return Err(message);
        }
        self.messages.push_back(message);
        Ok(())
    }
}

fn text_len(message: &ViewerMessage) -> usize {
    match message {
        ViewerMessage::Text { text } | ViewerMessage::Paste { text: Some(text) } => text.bytes(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    fn message(value: Value) -> ViewerMessage {
        let Ok(message) = deserr::deserialize::<_, _, JsonError>(value.clone()) else {
            panic!("{value}");
        };
        message
    }

    fn send(sender: &ViewerSender, value: Value) -> bool {
        sender.send(message(value)).now_or_never().is_some()
    }

    fn recv(receiver: &ViewerReceiver) -> Option<ViewerMessage> {
        receiver.recv().now_or_never().flatten()
    }

    #[test]
    fn queue_coalesces_consecutive_moves_and_wheel_messages() {
        let (sender, receiver) = channel();
        let wheel = |x: u32, delta: i32| json!({"type": "wheel", "x": x, "y": 0, "delta_x": 1, "delta_y": delta});
        for value in [
            json!({"type": "pointer_move", "x": 1, "y": 1}),
            json!({"type": "pointer_move", "x": 2, "y": 1}),
            wheel(3, 100),
            wheel(4, -30),
            json!({"type": "release"}),
            json!({"type": "pointer_move", "x": 5, "y": 1}),
        ] {
            assert!(send(&sender, value));
        }
        let Some(ViewerMessage::PointerMove { x, .. }) = recv(&receiver) else {
            panic!("no pointer move");
        };
        assert_eq!(x.pixels(), 2);
        let Some(ViewerMessage::Wheel {
            x,
            delta_x,
            delta_y,
            ..
        }) = recv(&receiver)
        else {
            panic!("no wheel message");
        };
        assert_eq!((x.pixels(), delta_x.pixels(), delta_y.pixels()), (4, 2, 70));
        assert!(matches!(recv(&receiver), Some(ViewerMessage::Release)));
        assert!(matches!(
            recv(&receiver),
            Some(ViewerMessage::PointerMove { .. })
        ));
        assert!(recv(&receiver).is_none());
    }

    #[tokio::test]
    async fn sender_blocks_when_queue_is_full() {
        let (sender, receiver) = channel();
        let release = || json!({"type": "release"});
        for _ in 0..MAX_QUEUED_MESSAGES {
            assert!(send(&sender, release()));
        }
        let mut blocked = Box::pin(sender.send(message(release())));
        assert!((&mut blocked).now_or_never().is_none());
        assert!(recv(&receiver).is_some());
        blocked.await;
        let mut received = 0;
        while recv(&receiver).is_some() {
            received += 1;
        }
        assert_eq!(received, MAX_QUEUED_MESSAGES);
    }

    #[test]
    fn sender_blocks_when_queued_text_exceeds_the_byte_limit() {
        let (sender, _receiver) = channel();
        let text = || json!({"type": "paste", "text": "a".repeat(MAX_QUEUED_BYTES)});
        assert!(send(&sender, text()));
        assert!(send(&sender, json!({"type": "release"})));
        assert!(!send(&sender, text()));
    }

    #[tokio::test]
    async fn receiver_drains_the_queue_after_the_sender_is_dropped() {
        let (sender, receiver) = channel();
        assert!(send(&sender, json!({"type": "release"})));
        drop(sender);
        assert!(receiver.recv().await.is_some());
        assert!(receiver.recv().await.is_none());
    }
}
