//! The one connection to Chromium, shared by many clients.
//!
//! Chromium accepts one connection, over its pipe. Each client gets a session of its own in it, at
//! the level of the browser or of one target, so that what Chromium keeps for a client (attached
//! targets, discovery, download settings, contexts) is its own and ends with it.
//!
//! ```text
//! CdpSender::send --Command (bounded by a budget)--> +------------------+ --> pipe --> Chromium
//! CdpReceiver::next <---- queue (bounded) ---------- | task with Router | <-- pipe <--
//!                                                    +------------------+
//! ```
//!
//! The task owns the pipe and the routes. It waits for no client: commands wait in their senders
//! while the pipe is full, and a client that does not read is disconnected. A command is in CBOR
//! already. Of a message from Chromium, it reads `id`, `method` and `sessionId`, and writes the
//! rest in JSON if a client receives it; replies get the client's id back.
//!
//! | file | job |
//! |---|---|
//! | `browser_message` | a message of Chromium: its head, and its JSON text for a client |
//! | `carried` | sessions that are not flat: messages in other messages |
//! | `command` | a client's message: checked, and written anew |
//! | `passed` | what the next program of this process takes over |
//! | `session` | sessions and their ids |
//! | `router` | whose session, whose call |
//! | `outbox` | the queue to a client |

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the queues are bounded in bytes: those of commands by a budget, those of messages by \
              ending the connection"
)]

mod browser_message;
mod carried;
mod command;
#[cfg(test)]
mod fuzz;
mod outbox;
mod passed;
#[cfg(test)]
mod passed_tests;
mod router;
mod session;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::{
    command::Command,
    outbox::{Inbox, Outbox},
    router::Router,
};
pub use self::{
    outbox::End,
    passed::{AdoptedConnections, PassedMultiplexer},
    router::ClientId,
};
use super::{
    pipe::{CdpPipe, Frame},
    policy::Caller,
};

/// The bytes of all clients' commands that wait for the pipe. Further ones wait in their senders.
const BUDGET: usize = 8 << 20;
/// The memory of a request besides its text.
const REQUEST_OVERHEAD: usize = 128;
/// The size to which the buffer for the pipe shrinks.
const MAX_BUFFER: usize = 1 << 20;
/// The most requests, or messages to a client, that are handled in one step.
const BATCH: usize = 64;

/// The other end of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Browser,
    /// The target with this id.
    Target(String),
}

/// The properties of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Whose methods the client may call. The agent's own commands, and what its relay has checked,
    /// are not checked again.
    pub caller: Option<Caller>,
    /// The longest event that the client accepts. Longer ones are dropped. Replies are bounded by
    /// the pipe alone.
    pub max_event: usize,
}

/// Why a client was not connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("Chromium has no target with that id")]
    NoTarget,
    #[error("Chromium has ended")]
    Gone,
}

/// A client that is to be connected.
struct NewClient {
    endpoint: Endpoint,
    outbox: Outbox,
    /// The longest event that the client accepts. Longer ones are dropped.
    max_event: usize,
    requests: mpsc::UnboundedSender<Request>,
    /// Receives the connection. Dropping one that is not received disconnects the client.
    reply: oneshot::Sender<Result<Connection, ConnectError>>,
}

enum Request {
    Attach(NewClient),
    Command(ClientId, Command),
    /// A reply to a message that is no command.
    Reject(ClientId, Bytes),
    Disconnect(ClientId),
}

/// A request to disconnect all clients but some, and to end the task.
struct PassRequest {
    kept: Vec<ClientId>,
    reply: oneshot::Sender<io::Result<PassedMultiplexer>>,
}

impl Request {
    /// Returns the part of the budget that it needs.
    fn cost(&self) -> u32 {
        let length = match self {
            Request::Command(_, command) => command.len(),
            Request::Reject(_, reply) => reply.len(),
            Request::Attach(_) | Request::Disconnect(_) => return 0,
        };
        (length + REQUEST_OVERHEAD).min(BUDGET) as u32
    }
}

/// The handle of a connection to Chromium. Clones share it.
#[derive(Clone, Debug)]
pub struct Multiplexer {
    requests: mpsc::UnboundedSender<Request>,
    pass_requests: mpsc::Sender<PassRequest>,
    budget: Arc<Semaphore>,
    /// The bytes of messages that all clients have not read yet.
    queued: Arc<AtomicUsize>,
    receipts: Arc<AtomicUsize>,
    ended: CancellationToken,
}

impl Multiplexer {
    /// Starts the task, which ends with Chromium.
    pub fn start(pipe: CdpPipe) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let queued = Arc::default();
        Self::start_with(
            pipe,
            Router::default(),
            Vec::new(),
            queued,
            (requests, receiver),
        )
    }

    /// Starts the task with `unsent` bytes of commands.
    fn start_with(
        pipe: CdpPipe,
        router: Router,
        unsent: Vec<u8>,
        queued: Arc<AtomicUsize>,
        (requests, receiver): (
            mpsc::UnboundedSender<Request>,
            mpsc::UnboundedReceiver<Request>,
        ),
    ) -> Self {
        let ended = CancellationToken::new();
        let budget = Arc::new(Semaphore::new(BUDGET));
        let (pass_requests, passes) = mpsc::channel(1);
        let receipts = Arc::default();
        let task = Task {
            pipe,
            router,
            receipts: Arc::clone(&receipts),
            requests: receiver,
            passes,
            budget: budget.clone(),
            unsent,
            sent: 0,
            unsent_cost: 0,
            passing: None,
        };
        let guard = ended.clone().drop_guard();
        tokio::spawn(async move {
            let _guard = guard;
            task.run().await;
        });
        Multiplexer {
            requests,
            pass_requests,
            budget,
            queued,
            receipts,
            ended,
        }
    }

    /// Connects a client. Waits for Chromium.
    ///
    /// # Errors
    /// Fails if Chromium has ended, or has no such target.
    pub async fn connect(
        &self,
        endpoint: Endpoint,
        options: ClientOptions,
    ) -> Result<(CdpSender, CdpReceiver), ConnectError> {
        let (outbox, inbox) = outbox::queue(self.queued.clone());
        let (reply, connected) = oneshot::channel();
        let client = NewClient {
            endpoint,
            outbox,
            max_event: options.max_event,
            requests: self.requests.clone(),
            reply,
        };
        let sent = self.requests.send(Request::Attach(client));
        sent.map_err(|_| ConnectError::Gone)?;
        let connection = connected.await.map_err(|_| ConnectError::Gone)??;
        Ok(self.halves(connection, inbox, options))
    }

    fn halves(
        &self,
        connection: Connection,
        inbox: Inbox,
        options: ClientOptions,
    ) -> (CdpSender, CdpReceiver) {
        let connection = Arc::new(connection);
        let sender = CdpSender {
            connection: connection.clone(),
            caller: options.caller,
            budget: self.budget.clone(),
        };
        let receiver = CdpReceiver {
            connection,
            inbox,
            batch: Vec::new(),
        };
        (sender, receiver)
    }

    /// Ends the task without Chromium, for the next program of this process. The connections of
    /// `kept` clients continue there; their messages up to now can still be received here.
    ///
    /// # Errors
    /// Fails if Chromium has ended, or a descriptor cannot be passed on.
    pub async fn pass(&self, kept: Vec<ClientId>) -> io::Result<PassedMultiplexer> {
        let (reply, passed) = oneshot::channel();
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        let sent = self.pass_requests.send(PassRequest { kept, reply }).await;
        sent.map_err(|_| ended())?;
        passed.await.map_err(|_| ended())?
    }

    /// Returns how often something was received from Chromium.
    pub fn receipts(&self) -> usize {
        self.receipts.load(Relaxed)
    }

    /// Whether Chromium has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until Chromium has ended.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// A client's connection. It ends when the sender and the receiver are dropped.
#[derive(Debug)]
struct Connection {
    id: ClientId,
    requests: mpsc::UnboundedSender<Request>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::Disconnect(self.id));
    }
}

/// The connection to Chromium has ended.
#[derive(Debug, thiserror::Error)]
#[error("the connection to Chromium has ended")]
pub struct Disconnected;

/// The sending half of a client's connection.
#[derive(Debug)]
pub struct CdpSender {
    connection: Arc<Connection>,
    caller: Option<Caller>,
    budget: Arc<Semaphore>,
}

impl CdpSender {
    /// Sends a message. Waits while Chromium does not read. A message that is no command is
    /// answered with an error, as Chromium does.
    ///
    /// # Errors
    /// Fails if Chromium has ended.
    pub async fn send(&self, text: &str) -> Result<(), Disconnected> {
        let client = self.connection.id;
        let request = match Command::parse(text, self.caller) {
            Ok(command) => Request::Command(client, command),
            Err(reply) => Request::Reject(client, reply),
        };
        let permit = self.budget.acquire_many(request.cost()).await;
        // The task returns it when the commands up to this one are sent.
        permit.map_err(|_| Disconnected)?.forget();
        let sent = self.connection.requests.send(request);
        sent.map_err(|_| Disconnected)
    }
}

/// The receiving half of a client's connection.
#[derive(Debug)]
pub struct CdpReceiver {
    connection: Arc<Connection>,
    inbox: Inbox,
    /// Messages that were received and not returned yet, the last one first. They still count as
    /// queued.
    batch: Vec<Bytes>,
}

impl CdpReceiver {
    /// Waits for the next message. Cancel-safe.
    ///
    /// # Errors
    /// Fails when the connection has ended.
    pub async fn next(&mut self) -> Result<Bytes, End> {
        loop {
            if let Some(message) = self.next_ready() {
                return Ok(message);
            }
            self.inbox.receive(&mut self.batch, BATCH).await?;
            self.batch.reverse();
        }
    }

    /// Returns the next message if there is one already.
    pub fn next_ready(&mut self) -> Option<Bytes> {
        let message = self.batch.pop().or_else(|| self.inbox.try_receive())?;
        self.inbox.release(&message);
        Some(message)
    }

    /// Returns the id of the client.
    pub fn client(&self) -> ClientId {
        self.connection.id
    }

    /// Returns a token that is cancelled when the connection ends because its messages are not
    /// read.
    pub fn too_slow(&self) -> CancellationToken {
        self.inbox.too_slow()
    }
}

/// The task that owns the pipe.
struct Task {
    pipe: CdpPipe,
    router: Router,
    receipts: Arc<AtomicUsize>,
    requests: mpsc::UnboundedReceiver<Request>,
    passes: mpsc::Receiver<PassRequest>,
    budget: Arc<Semaphore>,
    /// The commands that are being sent to Chromium.
    unsent: Vec<u8>,
    /// The number of bytes of it that Chromium has read.
    sent: usize,
    /// The part of the budget that it occupies.
    unsent_cost: u32,
    /// Receives the pipe and the routes when the task ends for the next program.
    passing: Option<oneshot::Sender<io::Result<PassedMultiplexer>>>,
}

impl Task {
    async fn run(mut self) {
        if let Err(error) = self.serve().await {
            match error.kind() {
                io::ErrorKind::InvalidData => {
                    tracing::warn!(%error, "Chromium does not write CBOR")
                }
                _ => tracing::debug!(%error, "the pipe to Chromium failed"),
            }
        }
        self.budget.close();
        match self.passing.take() {
            Some(reply) => {
                let _ = reply.send(self.pass());
            }
            None => self.router.end_all(),
        }
    }

    fn pass(self) -> io::Result<PassedMultiplexer> {
        let unsent = self.unsent.get(self.sent..).unwrap_or_default();
        Ok(PassedMultiplexer::new(
            self.pipe.pass()?,
            unsent,
            self.router,
        ))
    }

    /// Passes messages on until Chromium has ended, or no handle is left.
    async fn serve(&mut self) -> io::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let is_sending = !self.unsent.is_empty();
            tokio::select! {
                filled = self.pipe.reader.fill() => {
                    if !filled? {
                        return Ok(());
                    }
                    self.receipts.fetch_add(1, Relaxed);
                    while let Some(frame) = self.pipe.reader.next()? {
                        match frame {
                            Frame::Message(message) => self.router.message(message),
                            Frame::TooLong { id } => self.router.too_long(id),
                        }
                    }
                }
                count = self.requests.recv_many(&mut batch, BATCH), if !is_sending => {
                    if count == 0 {
                        return Ok(());
                    }
                    batch.drain(..).for_each(|request| self.handle(request));
                }
                // Also while Chromium does not read.
                Some(PassRequest { kept, reply }) = self.passes.recv() => {
                    while let Ok(request) = self.requests.try_recv() {
                        self.handle(request);
                    }
                    self.router.disconnect_all_but(&kept, &mut self.unsent);
                    self.passing = Some(reply);
                    return Ok(());
                }
                writable = self.pipe.writer.writable(), if is_sending => writable?,
            }
            self.write()?;
        }
    }

    fn handle(&mut self, request: Request) {
        self.unsent_cost += request.cost();
        match request {
            Request::Attach(client) => self.router.attach(client, &mut self.unsent),
            Request::Command(client, command) => {
                self.router.command(client, &command, &mut self.unsent);
            }
            Request::Reject(client, reply) => self.router.deliver(client, reply),
            Request::Disconnect(client) => self.router.disconnect(client, &mut self.unsent),
        }
    }

    /// Writes as much as Chromium takes.
    fn write(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.pipe.writer.try_write(&self.unsent[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.unsent.clear();
        // Frees the memory of a long command.
        self.unsent.shrink_to(MAX_BUFFER);
        let cost = std::mem::take(&mut self.unsent_cost);
        self.budget.add_permits(cost as usize);
        Ok(())
    }
}
