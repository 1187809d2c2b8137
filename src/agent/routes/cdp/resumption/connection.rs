//! The task of a resumable connection: with a WebSocket, and without one.

use std::{
    future::pending,
    pin::pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use axum::extract::ws::{Message, Utf8Bytes, close_code};
use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use metrics::counter;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout},
};

use super::{
    Attachment, OpenedConnection, close,
    frame::{ClientFrame, ack, greeting, numbered},
    log::Log,
    not_resumable,
    passed::{PassedConnection, StoppedConnection},
};
use crate::{
    agent::{
        cdp_clients::{CdpClients, ClientPermit},
        routes::cdp::socket::MAX_COMMAND,
    },
    api::devtools::ResumeId,
    http::{CloseCode, CloseReason, close_gracefully},
    shutdown::Shutdown,
    system::cdp::multiplexer::{CdpReceiver, CdpSender, Disconnected, End},
};

/// The messages of the client after which they are acknowledged.
const ACK_MESSAGES: u64 = 32;
/// The bytes of them after which they are acknowledged.
const ACK_BYTES: usize = 256 << 10;
/// The interval of pings, which a client answers.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// The time without a sign of the client after which its WebSocket is lost.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(25);
/// The time for a client that is closing its WebSocket.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A resumable connection.
pub(super) struct Connection {
    id: ResumeId,
    /// Whether it begins without a WebSocket.
    is_adopted: bool,
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
    /// The client has closed the connection.
    Closed,
    /// The connection has ended for this reason.
    Ended(CloseReason),
    /// The agent is shutting down.
    Stopping,
}

/// The end of a connection.
pub(super) enum ConnectionEnd {
    /// The client has closed it, or has not come back in time.
    Closed,
    /// The reason for which it has ended, which a client that comes back gets.
    Reason(CloseReason),
    /// The agent is shutting down.
    Stopping(Box<StoppedConnection>),
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
            is_adopted: false,
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

    /// Returns the connection that the program before has passed.
    pub(super) fn adopt(
        passed: PassedConnection,
        opened: OpenedConnection,
        window: Duration,
        shutdown: Shutdown,
    ) -> Self {
        let mut connection = Self::new(passed.id, opened, window, shutdown);
        connection.is_adopted = true;
        connection.exchange.log = Mutex::new(passed.log);
        connection.exchange.received = AtomicU64::new(passed.received);
        connection
    }

    pub(super) fn id(&self) -> ResumeId {
        self.id
    }

    /// Serves the client on one WebSocket after the other until the connection ends.
    pub(super) async fn run(self, attachments: &mut mpsc::Receiver<Attachment>) -> ConnectionEnd {
        let first = match self.is_adopted {
            true => Outcome::Lost,
            false => match attachments.recv().await {
                Some(first) => Outcome::Replaced(Box::new(first)),
                None => Outcome::Closed,
            },
        };
        self.run_after(first, attachments).await
    }

    async fn run_after(
        mut self,
        mut outcome: Outcome,
        attachments: &mut mpsc::Receiver<Attachment>,
    ) -> ConnectionEnd {
        loop {
            outcome = match outcome {
                Outcome::Replaced(attachment) => self.serve(*attachment, attachments).await,
                Outcome::Lost if self.is_unused() => return ConnectionEnd::Closed,
                Outcome::Lost => {
                    tracing::debug!(connection = ?self.id, "DevTools client lost");
                    match self.wait(attachments).await {
                        Outcome::Lost => return ConnectionEnd::Closed,
                        outcome => outcome,
                    }
                }
                Outcome::Closed => return ConnectionEnd::Closed,
                Outcome::Ended(reason) => return ConnectionEnd::Reason(reason),
                Outcome::Stopping => {
                    let stopped = StoppedConnection {
                        id: self.id,
                        received: self.exchange.received.into_inner(),
                        log: self.exchange.log.into_inner(),
                        receiver: self.receiver,
                    };
                    return ConnectionEnd::Stopping(Box::new(stopped));
                }
            };
        }
    }

    /// Whether the client has sent nothing. Then it may not even have received the id.
    fn is_unused(&self) -> bool {
        self.exchange.received.load(Relaxed) == 0
    }

    /// Serves the client on a WebSocket that is accepted.
    async fn serve(
        &mut self,
        attachment: Attachment,
        attachments: &mut mpsc::Receiver<Attachment>,
    ) -> Outcome {
        let Attachment {
            socket,
            received,
            _in_use,
        } = attachment;
        // What the client has received it needs no more.
        let acknowledged = self.exchange.log.lock().acknowledge(received);
        if acknowledged.is_err() {
            return Outcome::Lost;
        }
        let (mut to_client, mut from_client) = socket.split();
        let outcome = self
            .exchange_messages(received, (&mut to_client, &mut from_client), attachments)
            .await;
        let reason = match &outcome {
            Outcome::Lost | Outcome::Closed => return outcome,
            Outcome::Replaced(_) => {
                CloseReason::new(CloseCode::TakenOver, "the client has resumed elsewhere")
            }
            Outcome::Ended(reason) => reason.clone(),
            Outcome::Stopping => CloseReason::of_shutdown(&self.shutdown),
        };
        self.shutdown.spawn_connection(async move {
            let _in_use = _in_use;
            close_gracefully(reason, &mut to_client, &mut from_client).await;
        });
        outcome
    }

    /// Passes messages on in both directions. `received` is the number of the last message that the
    /// client has.
    async fn exchange_messages(
        &mut self,
        received: u64,
        (to_client, from_client): (
            &mut (impl Sink<Message> + Unpin),
            &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
        ),
        attachments: &mut mpsc::Receiver<Attachment>,
    ) -> Outcome {
        let too_slow = self.receiver.too_slow();
        let first = (self.greeting(), received);
        let (exchange, clients) = (&self.exchange, self.clients.clone());
        let mut sending = pin!(send(&mut self.receiver, exchange, first, to_client));
        let mut receiving = pin!(receive(from_client, exchange));
        let end = loop {
            tokio::select! {
                biased;
                () = self.shutdown.requested() => return Outcome::Stopping,
                reason = clients.wait_until_gone(self.generation) => return restarted(reason),
                () = too_slow.cancelled() => return Outcome::Ended(too_slow_reason()),
                Some(attachment) = attachments.recv() => {
                    if let Some(outcome) = exchange.accept(attachment, &self.shutdown) {
                        return outcome;
                    }
                }
                outcome = &mut receiving => return outcome,
                end = &mut sending => match end {
                    Some(end) => break end,
                    // It may have sent a Close frame before.
                    None => {
                        let outcome = timeout(CLOSE_TIMEOUT, receiving).await;
                        return outcome.unwrap_or(Outcome::Lost);
                    }
                },
            }
        };
        Outcome::Ended(reason_of(end, &clients, self.generation).await)
    }

    /// Waits for another WebSocket.
    async fn wait(&mut self, attachments: &mut mpsc::Receiver<Attachment>) -> Outcome {
        let deadline = Instant::now() + self.window;
        let too_slow = self.receiver.too_slow();
        loop {
            let has_room = self.exchange.log.lock().has_room();
            tokio::select! {
                biased;
                () = self.shutdown.requested() => return Outcome::Stopping,
                () = sleep_until(deadline) => return Outcome::Lost,
                Some(attachment) = attachments.recv() => {
                    if let Some(outcome) = self.exchange.accept(attachment, &self.shutdown) {
                        return outcome;
                    }
                }
                reason = self.clients.wait_until_gone(self.generation) => return restarted(reason),
                () = too_slow.cancelled() => return Outcome::Ended(too_slow_reason()),
                message = self.receiver.next(), if has_room => match message {
                    Ok(message) => self.exchange.log.lock().push(message),
                    Err(end) => {
                        let reason = reason_of(end, &self.clients, self.generation).await;
                        return Outcome::Ended(reason);
                    }
                },
            }
        }
    }

    fn greeting(&self) -> String {
        let received = self.exchange.received.load(Relaxed);
        greeting(self.id, received, self.window.as_secs())
    }
}

impl Exchange {
    /// Takes a WebSocket if the connection can be resumed with it, and closes it otherwise.
    fn accept(&self, attachment: Attachment, shutdown: &Shutdown) -> Option<Outcome> {
        if self.log.lock().can_resume_after(attachment.received) {
            return Some(Outcome::Replaced(Box::new(attachment)));
        }
        let reason = not_resumable("messages after the last one received are not there");
        shutdown.spawn_connection(close(attachment, reason));
        None
    }
}

fn restarted(reason: String) -> Outcome {
    Outcome::Ended(CloseReason::new(CloseCode::BrowserRestarted, reason))
}

async fn reason_of(end: End, clients: &CdpClients, generation: u64) -> CloseReason {
    match end {
        End::BrowserGone => {
            let reason = clients.wait_until_gone(generation).await;
            CloseReason::new(CloseCode::BrowserRestarted, reason)
        }
        End::TargetGone => CloseReason::new(CloseCode::Done, "the tab was closed"),
        End::TooSlow => too_slow_reason(),
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
        let Ok(next) = timeout(SILENCE_TIMEOUT, client.next()).await else {
            return Outcome::Lost;
        };
        let text = match next {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                return invalid("a binary message is not of this protocol");
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Close(frame))) => {
                // The next read sends the reply.
                let _ = timeout(CLOSE_TIMEOUT, client.next()).await;
                return match frame.map_or(close_code::NORMAL, |frame| frame.code) {
                    close_code::NORMAL | close_code::STATUS => Outcome::Closed,
                    _ => Outcome::Lost,
                };
            }
            Some(Err(error)) if is_of_connection(&error) => return Outcome::Lost,
            Some(Err(_)) => return invalid("the message is too long or no text"),
            None => return Outcome::Lost,
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
            Some(ClientFrame::Message(_, message)) if message.len() > MAX_COMMAND => {
                return invalid("the message is too long");
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
                counter!("berth_cdp_messages_total", "to" => "chromium").increment(1);
                counter!("berth_cdp_bytes_total", "to" => "chromium")
                    .increment(message.len() as u64);
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

/// Whether an error is one of the connection, not of what the client has sent.
fn is_of_connection(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    // The peer has ended the connection without a Close frame.
    error.to_string().contains("without closing handshake")
}

fn invalid(reason: &str) -> Outcome {
    Outcome::Ended(CloseReason::new(CloseCode::InvalidMessage, reason))
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
    let mut ping = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            _ = ping.tick() => client.feed(Message::Ping(Bytes::new())).await.ok()?,
            message = receiver.next(), if has_room => match message {
                Ok(message) => exchange.log.lock().push(message),
                Err(end) => return Some(end),
            },
        }
    }
}

/// Returns the message after the number `last`, if there is one already.
fn next_ready(receiver: &mut CdpReceiver, exchange: &Exchange, last: u64) -> Option<Bytes> {
    let mut log = exchange.log.lock();
    if log.after(last).is_none() && log.has_room() {
        log.push(receiver.next_ready()?);
    }
    log.send_after(last)
}
