//! The task of a resumable connection: with a WebSocket, and without one.

use std::{
    future::pending,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use axum::extract::ws::{Message, Utf8Bytes, close_code};
use futures::{Sink, SinkExt, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Attachment, OpenedConnection, close,
    frame::{ClientFrame, ack, greeting, numbered},
    log::Log,
    not_resumable,
};
use crate::{
    agent::cdp_clients::{CdpClients, ClientPermit},
    api::devtools::ResumeId,
    http::{CloseCode, CloseReason, close_gracefully},
    shutdown::Shutdown,
    system::cdp::multiplexer::{CdpReceiver, CdpSender, Disconnected, End},
};

/// The messages of the client after which they are acknowledged.
const ACK_MESSAGES: u64 = 32;
/// The bytes of them after which they are acknowledged.
const ACK_BYTES: usize = 256 << 10;
/// The time for a client that is closing its WebSocket.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A resumable connection.
pub(super) struct Connection {
    id: ResumeId,
    window: Duration,
    receiver: CdpReceiver,
    exchange: Exchange,
    clients: CdpClients,
    generation: u64,
    shutdown: Shutdown,
    _permit: ClientPermit,
}

/// The state that both directions of a WebSocket share.
struct Exchange {
    sender: CdpSender,
    log: Mutex<Log>,
    /// The number of the last message that the client has sent.
    received: AtomicU64,
    ack_is_due: AtomicBool,
    /// Notified when an acknowledgement is due, or when one of the client has made room.
    changed: Notify,
}

/// The end of the use of a WebSocket.
enum Outcome {
    /// The client may resume the connection.
    Lost,
    /// The client has resumed the connection with another WebSocket.
    Replaced(Box<Attachment>),
    /// The connection has ended. The reason is for the client, unless it has closed the WebSocket.
    Ended(Option<CloseReason>),
}

impl Connection {
    pub(super) fn new(
        id: ResumeId,
        opened: OpenedConnection,
        window: Duration,
        shutdown: Shutdown,
    ) -> Self {
        let (sender, receiver) = opened.channel;
        Connection {
            id,
            window,
            receiver,
            exchange: Exchange {
                sender,
                log: Mutex::default(),
                received: AtomicU64::new(0),
                ack_is_due: AtomicBool::new(false),
                changed: Notify::new(),
            },
            clients: opened.clients,
            generation: opened.generation,
            shutdown,
            _permit: opened.permit,
        }
    }

    /// Serves the client on one WebSocket after the other until the connection ends.
    pub(super) async fn run(mut self, mut attachments: mpsc::Receiver<Attachment>) {
        let mut next = attachments.recv().await;
        while let Some(attachment) = next.take() {
            next = match self.serve(attachment, &mut attachments).await {
                Outcome::Replaced(attachment) => Some(*attachment),
                Outcome::Lost => {
                    tracing::debug!(connection = ?self.id, "DevTools client lost");
                    self.wait(&mut attachments).await
                }
                Outcome::Ended(_) => None,
            };
        }
    }

    /// Serves the client on a WebSocket.
    async fn serve(
        &mut self,
        attachment: Attachment,
        attachments: &mut mpsc::Receiver<Attachment>,
    ) -> Outcome {
        let received = attachment.received;
        if !self.exchange.log.lock().can_resume_after(received) {
            let reason = "messages after the last one received are not there";
            self.shutdown
                .spawn_connection(close(attachment, not_resumable(reason)));
            return Outcome::Lost;
        }
        let Attachment {
            socket, _in_use, ..
        } = attachment;
        let (mut to_client, mut from_client) = socket.split();
        let outcome = {
            let too_slow = self.receiver.too_slow();
            let greeting = self.greeting();
            let sending = send(
                &mut self.receiver,
                &self.exchange,
                (greeting, received),
                &mut to_client,
            );
            tokio::select! {
                biased;
                () = self.shutdown.requested() => {
                    Outcome::Ended(Some(CloseReason::of_shutdown(&self.shutdown)))
                }
                reason = self.clients.wait_until_gone(self.generation) => {
                    let reason = CloseReason::new(CloseCode::BrowserRestarted, reason);
                    Outcome::Ended(Some(reason))
                }
                () = too_slow.cancelled() => Outcome::Ended(Some(too_slow_reason())),
                Some(attachment) = attachments.recv() => Outcome::Replaced(Box::new(attachment)),
                outcome = receive(&mut from_client, &self.exchange) => outcome,
                end = sending => match end {
                    Some(end) => Outcome::Ended(Some(self.reason_of(end).await)),
                    None => Outcome::Lost,
                },
            }
        };
        let reason = match &outcome {
            Outcome::Lost | Outcome::Ended(None) => return outcome,
            Outcome::Replaced(_) => {
                CloseReason::new(CloseCode::TakenOver, "the client has resumed elsewhere")
            }
            Outcome::Ended(Some(reason)) => reason.clone(),
        };
        self.shutdown.spawn_connection(async move {
            let _in_use = _in_use;
            close_gracefully(reason, &mut to_client, &mut from_client).await;
        });
        outcome
    }

    /// Waits for another WebSocket. Returns `None` if the connection ends meanwhile.
    async fn wait(&mut self, attachments: &mut mpsc::Receiver<Attachment>) -> Option<Attachment> {
        let deadline = Instant::now() + self.window;
        let too_slow = self.receiver.too_slow();
        let end = loop {
            let has_room = self.exchange.log.lock().has_room();
            tokio::select! {
                biased;
                () = self.shutdown.requested() => return None,
                () = sleep_until(deadline) => return None,
                attachment = attachments.recv() => return attachment,
                reason = self.clients.wait_until_gone(self.generation) => {
                    break CloseReason::new(CloseCode::BrowserRestarted, reason);
                }
                () = too_slow.cancelled() => break too_slow_reason(),
                message = self.receiver.next(), if has_room => match message {
                    Ok(message) => self.exchange.log.lock().push(message),
                    Err(end) => break self.reason_of(end).await,
                },
            }
        };
        // A client that comes back in time gets the reason.
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = shutdown.requested() => {}
            () = sleep_until(deadline) => {}
            Some(attachment) = attachments.recv() => {
                self.shutdown.spawn_connection(close(attachment, end));
            }
        }
        None
    }

    fn greeting(&self) -> String {
        let received = self.exchange.received.load(Relaxed);
        greeting(self.id, received, self.window.as_secs())
    }

    async fn reason_of(&self, end: End) -> CloseReason {
        match end {
            End::BrowserGone => {
                let reason = self.clients.wait_until_gone(self.generation).await;
                CloseReason::new(CloseCode::BrowserRestarted, reason)
            }
            End::TargetGone => CloseReason::new(CloseCode::Done, "the tab was closed"),
            End::TooSlow => too_slow_reason(),
        }
    }
}

fn too_slow_reason() -> CloseReason {
    let reason = "the client reads its messages too slowly";
    CloseReason::new(CloseCode::TooSlow, reason)
}

/// Passes the client's messages on until the WebSocket ends.
async fn receive(
    client: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    exchange: &Exchange,
) -> Outcome {
    let mut unacknowledged = (0, 0);
    loop {
        let text = match client.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                return invalid("a binary message is not of this protocol");
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Close(frame))) => {
                // The next read sends the reply.
                let _ = timeout(CLOSE_TIMEOUT, client.next()).await;
                return match frame.map_or(close_code::NORMAL, |frame| frame.code) {
                    close_code::NORMAL | close_code::STATUS => Outcome::Ended(None),
                    _ => Outcome::Lost,
                };
            }
            Some(Err(_)) | None => return Outcome::Lost,
        };
        let received = exchange.received.load(Relaxed);
        match ClientFrame::parse(&text) {
            None => return invalid("the message has no number"),
            Some(ClientFrame::Ack(number)) => {
                if exchange.log.lock().acknowledge(number).is_err() {
                    return invalid("the acknowledged message was not sent");
                }
                exchange.changed.notify_one();
            }
            // Sent again: it has arrived before.
            Some(ClientFrame::Message(number, _)) if number <= received => {}
            Some(ClientFrame::Message(number, _)) if number > received + 1 => {
                return invalid("a message is missing before this one");
            }
            Some(ClientFrame::Message(number, message)) => {
                if let Err(Disconnected) = exchange.sender.send(message).await {
                    // The other direction knows the reason.
                    return pending().await;
                }
                exchange.received.store(number, Relaxed);
                unacknowledged = (unacknowledged.0 + 1, unacknowledged.1 + message.len());
                if unacknowledged.0 >= ACK_MESSAGES || unacknowledged.1 >= ACK_BYTES {
                    unacknowledged = (0, 0);
                    exchange.ack_is_due.store(true, Relaxed);
                    exchange.changed.notify_one();
                }
            }
        }
    }
}

fn invalid(reason: &str) -> Outcome {
    let reason = CloseReason::new(CloseCode::InvalidMessage, reason);
    Outcome::Ended(Some(reason))
}

/// Sends the greeting, and then the messages after the number `last`, until the connection to
/// Chromium ends. Returns `None` if the WebSocket is lost.
async fn send(
    receiver: &mut CdpReceiver,
    exchange: &Exchange,
    (greeting, mut last): (String, u64),
    client: &mut (impl Sink<Message> + Unpin),
) -> Option<End> {
    client.feed(Message::text(greeting)).await.ok()?;
    loop {
        while let Some(message) = next_ready(receiver, exchange, last) {
            last += 1;
            // Chromium writes UTF-8.
            let text = Utf8Bytes::try_from(numbered(last, &message)).unwrap_or_default();
            client.feed(Message::Text(text)).await.ok()?;
        }
        if exchange.ack_is_due.swap(false, Relaxed) {
            let ack = ack(exchange.received.load(Relaxed));
            client.feed(Message::text(ack)).await.ok()?;
        }
        client.flush().await.ok()?;
        let has_room = exchange.log.lock().has_room();
        tokio::select! {
            () = exchange.changed.notified() => {}
            message = receiver.next(), if has_room => match message {
                Ok(message) => exchange.log.lock().push(message),
                Err(end) => return Some(end),
            },
        }
    }
}

/// Returns the message after the number `last`, if there is one already.
fn next_ready(receiver: &mut CdpReceiver, exchange: &Exchange, last: u64) -> Option<bytes::Bytes> {
    let mut log = exchange.log.lock();
    if log.after(last).is_none() && log.has_room() {
        log.push(receiver.next_ready()?);
    }
    log.after(last).cloned()
}
