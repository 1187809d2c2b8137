//! The part of a multiplexer that the next program of this process takes over: the pipes of a
//! running Chromium, and the routes of the clients whose connections continue.

use std::{io, sync::Arc};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{
    CdpReceiver, CdpSender, ClientOptions, Connection, Endpoint, Multiplexer, NewClient, Request,
    outbox::{self, Inbox},
    router::{Call, Client, ClientCall, ClientId, Router},
    session::{Session, SessionId},
};
use crate::system::{
    cdp::pipe::{CdpPipe, PassedPipe},
    process::handover::PassedBytes,
};

/// A multiplexer for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedMultiplexer {
    pipe: PassedPipe,
    /// The bytes of commands that Chromium has not read.
    unsent: PassedBytes,
    clients: Vec<PassedClient>,
    sessions: Vec<(SessionId, Session)>,
    calls: Vec<(u32, PassedCall)>,
    last_client: u64,
    used_ids: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct PassedClient {
    id: ClientId,
    root: SessionId,
    max_event: usize,
    calls: usize,
}

/// A call that Chromium has not answered.
#[derive(Debug, Serialize, Deserialize)]
enum PassedCall {
    /// The call of a client that has gone.
    Attach,
    Detach(ClientId),
    Client(ClientCall),
}

impl PassedMultiplexer {
    pub(super) fn new(pipe: PassedPipe, unsent: &[u8], router: Router) -> Self {
        let clients = router.clients.into_iter().map(|(id, client)| PassedClient {
            id,
            root: client.root,
            max_event: client.max_event,
            calls: client.calls,
        });
        let calls = router.calls.into_iter();
        PassedMultiplexer {
            pipe,
            unsent: unsent.to_vec().into(),
            clients: clients.collect(),
            sessions: router.sessions.into_iter().collect(),
            calls: calls.map(|(id, call)| (id, call.into())).collect(),
            last_client: router.last_client,
            used_ids: router.used_ids,
        }
    }
}

impl From<Call> for PassedCall {
    fn from(call: Call) -> Self {
        match call {
            Call::Attach(_) => PassedCall::Attach,
            Call::Detach(client) => PassedCall::Detach(client),
            Call::Client(call) => PassedCall::Client(call),
        }
    }
}

impl PassedCall {
    fn adopt(self, requests: &mpsc::UnboundedSender<Request>) -> Call {
        match self {
            PassedCall::Attach => Call::Attach(NewClient {
                endpoint: Endpoint::Browser,
                outbox: outbox::queue(Arc::default()).0,
                max_event: 0,
                requests: requests.clone(),
                // Its receiver is dropped, which ends the connection.
                reply: oneshot::channel().0,
            }),
            PassedCall::Detach(client) => Call::Detach(client),
            PassedCall::Client(call) => Call::Client(call),
        }
    }
}

/// The connections of a passed multiplexer. Those that are not taken end.
#[derive(Debug)]
pub struct AdoptedConnections {
    multiplexer: Multiplexer,
    connections: FxHashMap<ClientId, (Connection, Inbox)>,
}

impl AdoptedConnections {
    /// Returns the connection of a client, if it has one.
    pub fn take(
        &mut self,
        client: ClientId,
        options: ClientOptions,
    ) -> Option<(CdpSender, CdpReceiver)> {
        let (connection, inbox) = self.connections.remove(&client)?;
        Some(self.multiplexer.halves(connection, inbox, options))
    }
}

impl Multiplexer {
    /// Starts the task of a Chromium that the program before has started.
    ///
    /// # Errors
    /// Fails if the passed descriptors are no pipes.
    pub fn adopt(passed: PassedMultiplexer) -> io::Result<(Self, AdoptedConnections)> {
        let pipe = CdpPipe::adopt(passed.pipe)?;
        let (requests, receiver) = mpsc::unbounded_channel();
        let queued = Arc::default();
        let mut router = Router::default();
        router.sessions = passed.sessions.into_iter().collect();
        router.last_client = passed.last_client;
        router.used_ids = passed.used_ids;
        let calls = passed.calls.into_iter();
        router.calls = calls
            .map(|(id, call)| (id, call.adopt(&requests)))
            .collect();
        let mut connections = FxHashMap::default();
        for client in passed.clients {
            let (outbox, inbox) = outbox::queue(Arc::clone(&queued));
            let connection = Connection {
                id: client.id,
                requests: requests.clone(),
            };
            connections.insert(client.id, (connection, inbox));
            let entry = Client {
                root: client.root,
                outbox,
                max_event: client.max_event,
                calls: client.calls,
            };
            router.clients.insert(client.id, entry);
        }
        let unsent = passed.unsent.0.to_vec();
        let multiplexer =
            Multiplexer::start_with(pipe, router, unsent, queued, (requests, receiver));
        let adopted = AdoptedConnections {
            multiplexer: multiplexer.clone(),
            connections,
        };
        Ok((multiplexer, adopted))
    }
}
