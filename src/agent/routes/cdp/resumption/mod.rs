//! DevTools connections that outlive their WebSocket, for a client that lost it.
//!
//! ```text
//!            new ──▶ attached ──WebSocket lost──▶ detached ──window over──▶ ended
//!                     ▲    │                         │
//!                     └────┴───── resumed by id ─────┘
//! any ── Chromium or the session ends, or the client closes with 1000 ──▶ ended
//! any ── another program takes over the agent ──▶ detached, there
//! ```
//!
//! Messages are numbered in both directions. Each side retains what the other has not acknowledged,
//! and sends it again after a loss, so that each message arrives once and in order. A connection is
//! a task; it owns the session in Chromium, which does not notice a change of the WebSocket.
//!
//! | file | job |
//! |---|---|
//! | `frame` | the messages of the subprotocol |
//! | `log` | the messages that the client has not acknowledged |
//! | `connection` | the task of a connection |
//! | `passed` | connections that the next program of the agent continues |

mod connection;
mod frame;
mod log;
mod passed;

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::extract::ws::WebSocket;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use self::connection::{Connection, ConnectionEnd};
pub use self::passed::{PassedConnection, StoppedConnection};
use crate::{
    agent::cdp_clients::{Admitted, CdpClients, ClientPermit},
    api::devtools::ResumeId,
    http::{CloseCode, CloseReason, close_gracefully},
    shutdown::Shutdown,
    system::cdp::multiplexer::{AdoptedConnections, CdpReceiver, CdpSender},
};

/// The number of WebSockets that may wait for a connection's task.
const MAX_WAITING: usize = 1;

/// A WebSocket for a connection.
struct Attachment {
    socket: WebSocket,
    /// The number of the last message that the client has received.
    received: u64,
    /// Dropped when the WebSocket is no longer used.
    _in_use: oneshot::Sender<()>,
}

/// The resumable connections of a session. Clones share them.
#[derive(Clone)]
pub struct ResumableConnections {
    window: Duration,
    connections: Arc<Connections>,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Connections {
    attachments: Mutex<HashMap<ResumeId, mpsc::Sender<Attachment>>>,
    /// A clone for each connection that has not ended.
    running: Arc<()>,
    /// The connections that the next program continues.
    stopped: Mutex<Vec<StoppedConnection>>,
}

/// A connection to Chromium.
pub(super) struct OpenedConnection {
    pub(super) channel: (CdpSender, CdpReceiver),
    pub(super) permit: ClientPermit,
    pub(super) clients: CdpClients,
    /// The generation of its Chromium.
    pub(super) generation: u64,
}

/// The entry of a connection. Dropping it removes the entry.
struct Registration {
    id: ResumeId,
    connections: Arc<Connections>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.attachments.lock().remove(&self.id);
    }
}

impl ResumableConnections {
    /// `window` is the time for which a connection without a WebSocket is retained.
    pub(in crate::agent) fn new(window: Duration, shutdown: &Shutdown) -> Self {
        ResumableConnections {
            window,
            connections: Arc::default(),
            shutdown: shutdown.clone(),
        }
    }

    /// Returns the number of connections that have not ended.
    pub(in crate::agent) fn count(&self) -> usize {
        Arc::strong_count(&self.connections.running) - 1
    }

    /// Returns the connections that were stopped for another program, after the tasks have ended.
    pub(in crate::agent) fn take_stopped(&self) -> Vec<StoppedConnection> {
        std::mem::take(&mut *self.connections.stopped.lock())
    }

    /// Starts a connection with its first WebSocket, and returns when that is no longer used.
    pub(super) async fn start(&self, opened: OpenedConnection, socket: WebSocket) {
        let id = ResumeId::random();
        let (window, shutdown) = (self.window, self.shutdown.clone());
        let connection = Connection::new(id, opened, window, shutdown);
        self.spawn(connection);
        self.resume(id, 0, socket).await;
    }

    /// Continues the connections of the program before, without WebSockets at first. `clients` has
    /// a permit for each, unless the limit was lowered.
    pub(in crate::agent) async fn adopt(
        &self,
        passed: Vec<PassedConnection>,
        mut channels: AdoptedConnections,
        clients: &CdpClients,
        generation: u64,
    ) {
        for passed in passed {
            let Some(channel) = channels.take(passed.client, super::OPTIONS) else {
                continue;
            };
            let Ok(Admitted { permit, .. }) = clients.admit().await else {
                continue;
            };
            let opened = OpenedConnection {
                channel,
                permit,
                clients: clients.clone(),
                generation,
            };
            let (window, shutdown) = (self.window, self.shutdown.clone());
            let connection = Connection::adopt(passed, opened, window, shutdown);
            self.spawn(connection);
        }
    }

    /// Registers a connection and spawns its task.
    fn spawn(&self, connection: Connection) {
        let id = connection.id();
        let (sender, mut attachments) = mpsc::channel(MAX_WAITING);
        self.connections.attachments.lock().insert(id, sender);
        let registration = Registration {
            id,
            connections: self.connections.clone(),
        };
        let running = self.connections.running.clone();
        let this = self.clone();
        self.shutdown.spawn_connection(async move {
            let end = connection.run(&mut attachments).await;
            drop(running);
            let end = this.finish(end, &mut attachments).await;
            drop(registration);
            // A client that has come at the last moment.
            attachments.close();
            while let Some(attachment) = attachments.recv().await {
                close(attachment, end.clone()).await;
            }
        });
    }

    /// Answers clients that come back, or keeps the connection for the next program. Returns the
    /// reason for clients that come later.
    async fn finish(
        &self,
        end: ConnectionEnd,
        attachments: &mut mpsc::Receiver<Attachment>,
    ) -> CloseReason {
        match end {
            ConnectionEnd::Closed => not_resumable("the connection has ended"),
            ConnectionEnd::Reason(reason) => {
                repeat(&reason, attachments, self.window, &self.shutdown).await;
                reason
            }
            ConnectionEnd::Stopping(stopped) => {
                if self.shutdown.is_handover() {
                    self.connections.stopped.lock().push(*stopped);
                }
                CloseReason::of_shutdown(&self.shutdown)
            }
        }
    }

    /// Continues a connection with another WebSocket, and returns when that is no longer used.
    /// `received` is the number of the last message that the client has received.
    pub(super) async fn resume(&self, id: ResumeId, received: u64, socket: WebSocket) {
        let (in_use, not_in_use) = oneshot::channel();
        let attachment = Attachment {
            socket,
            received,
            _in_use: in_use,
        };
        let connection = self.connections.attachments.lock().get(&id).cloned();
        let refused = match connection {
            Some(connection) => match connection.send(attachment).await {
                Ok(()) => None,
                Err(mpsc::error::SendError(attachment)) => Some(attachment),
            },
            None => Some(attachment),
        };
        match refused {
            // Another program may continue the connection.
            Some(attachment) if self.shutdown.is_requested() => {
                close(attachment, CloseReason::of_shutdown(&self.shutdown)).await;
            }
            Some(attachment) => close(attachment, not_resumable("no such connection")).await,
            // An error: the sender was dropped, as it always is.
            None => drop(not_in_use.await),
        }
    }
}

/// Answers clients that come back in time with the reason of the end.
async fn repeat(
    end: &CloseReason,
    attachments: &mut mpsc::Receiver<Attachment>,
    window: Duration,
    shutdown: &Shutdown,
) {
    let deadline = Instant::now() + window;
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            () = sleep_until(deadline) => return,
            attachment = attachments.recv() => match attachment {
                Some(attachment) => drop(shutdown.spawn_connection(close(attachment, end.clone()))),
                None => return,
            },
        }
    }
}

fn not_resumable(reason: &str) -> CloseReason {
    CloseReason::new(CloseCode::NotResumable, reason)
}

async fn close(attachment: Attachment, reason: CloseReason) {
    let (mut to_client, mut from_client) = attachment.socket.split();
    close_gracefully(reason, &mut to_client, &mut from_client).await;
}
