//! The routes of messages: which client has which session, and which of its calls has which id on
//! the pipe.
//!
//! Sessions form trees. The root of each is the one that its client is connected to; Chromium
//! announces every other one with `Target.attachedToTarget` in its parent.

use std::{collections::hash_map::Entry, io, sync::Arc};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    ConnectError, Connection, Endpoint, NewClient,
    browser_message::{BrowserHead, BrowserMessage},
    carried::{Carried, Effect, Recipient, received_message},
    command::{Command, FIRST_ID, LAST_ID, rejection, success, write_own},
    outbox::{End, Outbox},
    session::{Session, SessionId},
};
use crate::system::cdp::{
    message::{SERVER_ERROR, SESSION_NOT_FOUND},
    pipe::MAX_MESSAGE,
};

/// The most calls of one client that are not answered yet.
const MAX_CALLS: usize = 1 << 16;

/// Chromium's error for a session that has ended.
const NO_SESSION: &str = "Session with given id not found.";
const TOO_MANY_CALLS: &str = "65536 calls of this connection are unanswered";
const TOO_LONG: &str = "the reply is over 256 MiB";
/// The size above which a message is not copied out of the buffer in which it was written.
const MAX_COPIED: usize = 64 << 10;

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientId(u64);

pub(super) struct Client {
    pub(super) root: SessionId,
    pub(super) outbox: Outbox,
    pub(super) max_event: usize,
    /// The number of calls that are not answered yet.
    pub(super) calls: usize,
}

/// The use of the reply to an id on the pipe.
pub(super) enum Call {
    Attach(NewClient),
    /// Ends the connection of a client that has gone: afterwards no reply for it can come.
    Detach(ClientId),
    Client(ClientCall),
}

/// A client's call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientCall {
    client: ClientId,
    session: SessionId,
    /// The session whose messages carry the reply.
    connection: SessionId,
    id: i32,
    /// Whether the session in the reply is flat, if the call attaches one.
    attaches_flat: Option<bool>,
}

/// All keys are chosen by Chromium or the agent, so that a fast hash is safe.
#[derive(Default)]
pub(super) struct Router {
    pub(super) clients: FxHashMap<ClientId, Client>,
    pub(super) sessions: FxHashMap<SessionId, Session>,
    pub(super) calls: FxHashMap<u32, Call>,
    pub(super) last_client: u64,
    /// The number of ids used on the pipe.
    pub(super) used_ids: u32,
    /// The buffer in which messages to clients are written.
    text: Vec<u8>,
}

impl Router {
    /// Requests a session for a new client. It is connected when Chromium has replied.
    pub(super) fn attach(&mut self, client: NewClient, pipe: &mut Vec<u8>) {
        let (method, params) = match &client.endpoint {
            Endpoint::Browser => ("Target.attachToBrowserTarget", json!({})),
            Endpoint::Target(id) => (
                "Target.attachToTarget",
                json!({ "targetId": id, "flatten": true }),
            ),
        };
        let id = self.register(Call::Attach(client));
        write_own(id, method, &params, pipe);
    }

    /// Sends a client's command to Chromium, or rejects it.
    pub(super) fn command(&mut self, client: ClientId, command: &Command, pipe: &mut Vec<u8>) {
        if let Some(root) = self.clients.get(&client).map(|client| client.root) {
            self.command_in(client, root, command, pipe);
        }
    }

    /// Handles a command of `connection`: the client's root, or a session that is not flat.
    fn command_in(
        &mut self,
        client_id: ClientId,
        connection: SessionId,
        command: &Command,
        pipe: &mut Vec<u8>,
    ) {
        let Some(client) = self.clients.get(&client_id) else {
            return;
        };
        let session = command.session.unwrap_or(connection);
        let entry = self.sessions.get_mut(&session);
        let Some(entry) = entry.filter(|entry| entry.client == client_id) else {
            // Chromium's error names no session either.
            let error = rejection(command.id, None, SESSION_NOT_FOUND, NO_SESSION);
            self.deliver_in(connection, error);
            return;
        };
        if client.calls >= MAX_CALLS {
            let error = rejection(command.id, command.session, SERVER_ERROR, TOO_MANY_CALLS);
            self.deliver_in(connection, error);
            return;
        }
        let mut attaches_flat = None;
        match &command.effect {
            Effect::None => {}
            Effect::Attach { is_flat } => attaches_flat = Some(*is_flat),
            Effect::AutoAttach { is_flat } => entry.auto_attaches_flat = *is_flat,
            Effect::Carry(carried) => {
                if let Some(recipient) = self.recipient(session, carried) {
                    let done = success(command.id, command.session);
                    self.deliver_in(connection, done);
                    match &*carried.command {
                        Ok(command) => self.command_in(client_id, recipient, command, pipe),
                        Err(reply) => self.deliver_in(recipient, reply.clone()),
                    }
                    return;
                }
            }
        }
        if let Some(client) = self.clients.get_mut(&client_id) {
            client.calls += 1;
        }
        let id = self.register(Call::Client(ClientCall {
            client: client_id,
            session,
            connection,
            id: command.id,
            attaches_flat,
        }));
        command.write(id, connection, pipe);
    }

    /// Returns the session that a carried command is for, if it is one that is not flat.
    fn recipient(&self, parent: SessionId, carried: &Carried) -> Option<SessionId> {
        let children = &self.sessions.get(&parent)?.children;
        let is_recipient = |child: &&SessionId| {
            let entry = self.sessions.get(child).filter(|entry| !entry.is_flat);
            entry.is_some_and(|entry| match &carried.recipient {
                Recipient::Session(session) => session == *child,
                Recipient::Target(target) => *target == entry.target,
            })
        };
        children.iter().find(is_recipient).copied()
    }

    /// Returns the session whose messages carry those of this one: the nearest one above it that is
    /// not flat, or the root. It is its own if it is not flat.
    fn connection_of(&self, mut session: SessionId) -> SessionId {
        while let Some(Session {
            parent: Some(parent),
            is_flat: true,
            ..
        }) = self.sessions.get(&session)
        {
            session = *parent;
        }
        session
    }

    /// Queues a message that belongs to the client's root, or is carried by its parent's messages.
    fn deliver_in(&mut self, mut connection: SessionId, mut message: Bytes) {
        while let Some(entry) = self.sessions.get(&connection) {
            let Some(parent) = entry.parent else {
                self.deliver(entry.client, message);
                return;
            };
            let carrier = self.connection_of(parent);
            let named = Some(parent).filter(|parent| *parent != carrier);
            message = received_message(&message, connection, &entry.target, named);
            connection = carrier;
        }
    }

    /// Ends the connection of a client that has gone, and with it all that Chromium keeps for it.
    pub(super) fn disconnect(&mut self, client: ClientId, pipe: &mut Vec<u8>) {
        if let Some(root) = self.clients.get(&client).map(|client| client.root) {
            self.remove_tree(root);
            self.detach(client, root, pipe);
        }
        self.clients.remove(&client);
    }

    pub(super) fn disconnect_all_but(&mut self, kept: &[ClientId], pipe: &mut Vec<u8>) {
        let clients: Vec<ClientId> = self.clients.keys().copied().collect();
        for client in clients.into_iter().filter(|client| !kept.contains(client)) {
            self.disconnect(client, pipe);
        }
    }

    fn detach(&mut self, client: ClientId, root: SessionId, pipe: &mut Vec<u8>) {
        let id = self.register(Call::Detach(client));
        let params = json!({ "sessionId": root.to_string() });
        write_own(id, "Target.detachFromTarget", &params, pipe);
    }

    /// Returns an id for the pipe that no unanswered call has. Ids are not used again soon: after
    /// the end of a session, Chromium may still reply to commands that were under way.
    fn register(&mut self, call: Call) -> u32 {
        loop {
            let id = FIRST_ID + self.used_ids % (LAST_ID - FIRST_ID + 1);
            self.used_ids = self.used_ids.wrapping_add(1);
            if let Entry::Vacant(entry) = self.calls.entry(id) {
                entry.insert(call);
                return id;
            }
        }
    }

    /// Routes a message from Chromium: the contents of its envelope.
    pub(super) fn message(&mut self, contents: &[u8]) {
        let Ok(message) = BrowserMessage::parse(contents) else {
            tracing::warn!(bytes = contents.len(), "dropped a message of Chromium");
            return;
        };
        match (message.head, message.session) {
            (BrowserHead::Reply(id), _) => self.reply(id, Some(&message)),
            (BrowserHead::Event(method), Some(session)) => self.event(method, session, &message),
            (BrowserHead::Event("Target.detachedFromTarget"), None) => {
                if let Some(session) = message.session_in("params") {
                    self.end_root(session);
                }
            }
            // Announcements of the roots, which the replies contain as well.
            (BrowserHead::Event(_), None) => {}
            (BrowserHead::Rejection, _) => {
                let mut text = Vec::new();
                // A longer text is cut.
                let _ = message.write_json(message.head, None, &mut text, 200);
                let error = String::from_utf8_lossy(&text);
                tracing::warn!(%error, "Chromium rejected a message");
            }
        }
    }

    /// Handles a message from Chromium that is too long to be read. A reply has an id.
    pub(super) fn too_long(&mut self, id: Option<i32>) {
        match id {
            Some(id) => self.reply(id, None),
            None => tracing::warn!("dropped an event of Chromium over 256 MiB"),
        }
    }

    /// Handles the reply to a call, which is `None` if it is too long.
    fn reply(&mut self, id: i32, reply: Option<&BrowserMessage>) {
        let call = u32::try_from(id).ok().and_then(|id| self.calls.remove(&id));
        match call {
            // The session had ended before its command came, which was answered then.
            None => {}
            Some(Call::Attach(client)) => {
                let session = reply.and_then(|reply| reply.session_in("result"));
                self.connect(client, session);
            }
            Some(Call::Detach(client)) => self.forget_calls(client),
            Some(Call::Client(ClientCall {
                client,
                session,
                connection,
                id,
                attaches_flat,
            })) => {
                let Some(entry) = self.clients.get_mut(&client) else {
                    return;
                };
                entry.calls -= 1;
                if let Some(is_flat) = attaches_flat
                    && let Some(child) = reply.and_then(|reply| reply.session_in("result"))
                    && let Some(entry) = self.sessions.get_mut(&child)
                {
                    entry.is_flat = is_flat;
                }
                let session = Some(session).filter(|session| *session != connection);
                let text = self.reply_text(id, session, reply);
                self.deliver_in(connection, text);
            }
        }
    }

    /// Returns the reply for a client with its id, or an error that replaces it. `session` is that
    /// of the call unless messages without a session belong to it.
    fn reply_text(
        &mut self,
        id: i32,
        session: Option<SessionId>,
        reply: Option<&BrowserMessage>,
    ) -> Bytes {
        let json = match reply {
            // The error for a session that has ended names none.
            Some(reply) => {
                let session = session.and(reply.session);
                self.json(reply, BrowserHead::Reply(id), session, MAX_MESSAGE)
            }
            None => Err(io::ErrorKind::FileTooLarge.into()),
        };
        json.unwrap_or_else(|error| {
            tracing::warn!(%error, "replaced a reply of Chromium");
            let message = match error.kind() {
                io::ErrorKind::FileTooLarge => TOO_LONG,
                _ => "the reply is invalid",
            };
            rejection(id, session, SERVER_ERROR, message)
        })
    }

    /// Passes an event on to the client that has the session.
    fn event(&mut self, method: &str, session: SessionId, event: &BrowserMessage) {
        let Some(client) = self.sessions.get(&session).map(|session| session.client) else {
            return;
        };
        let max_length = self.clients.get(&client).map_or(0, |entry| entry.max_event);
        let child = match method {
            "Target.attachedToTarget" | "Target.detachedFromTarget" => event.session_in("params"),
            _ => None,
        };
        if let ("Target.attachedToTarget", Some(child)) = (method, child) {
            let target = event.text_in(&["params", "targetInfo"], "targetId");
            self.add_child(client, session, child, target.unwrap_or_default());
        }
        let connection = self.connection_of(session);
        let named = Some(session).filter(|session| *session != connection);
        match self.json(event, event.head, named, max_length) {
            Ok(text) => self.deliver_in(connection, text),
            Err(error) => tracing::warn!(%error, "dropped an event of Chromium"),
        }
        if let ("Target.detachedFromTarget", Some(child)) = (method, child) {
            self.end_child(client, child);
        }
    }

    /// Returns the JSON text of a message for a client, of `max_length` bytes at most.
    fn json(
        &mut self,
        message: &BrowserMessage,
        head: BrowserHead,
        session: Option<SessionId>,
        max_length: usize,
    ) -> io::Result<Bytes> {
        self.text.clear();
        message.write_json(head, session, &mut self.text, max_length.min(MAX_MESSAGE))?;
        Ok(match self.text.len() {
            0..=MAX_COPIED => Bytes::copy_from_slice(&self.text),
            _ => std::mem::take(&mut self.text).into_boxed_slice().into(),
        })
    }

    fn add_child(&mut self, client: ClientId, parent: SessionId, child: SessionId, target: &str) {
        let Some(entry) = self.sessions.get_mut(&parent) else {
            return;
        };
        entry.children.push(child);
        // The reply to `Target.attachToTarget` corrects it.
        let is_flat = entry.auto_attaches_flat;
        let session = Session::new(client, Some(parent), target, is_flat);
        self.sessions.insert(child, session);
    }

    /// Removes a session that Chromium has ended. Chromium does not answer its calls any more.
    fn end_child(&mut self, client: ClientId, child: SessionId) {
        let is_own = |session: &Session| session.client == client && session.parent.is_some();
        if !self.sessions.get(&child).is_some_and(is_own) {
            return;
        }
        if let Some(parent) = self.sessions[&child].parent
            && let Some(parent) = self.sessions.get_mut(&parent)
        {
            parent.children.retain(|other| *other != child);
        }
        let ended = self.remove_tree(child);
        let Some(entry) = self
            .clients
            .get_mut(&client)
            .filter(|entry| entry.calls > 0)
        else {
            return;
        };
        let is_unanswered = |_: &u32, call: &mut Call| matches!(call, Call::Client(call) if ended.contains(&call.session));
        let unanswered: Vec<Call> = self
            .calls
            .extract_if(is_unanswered)
            .map(|(_, call)| call)
            .collect();
        entry.calls -= unanswered.len();
        for call in unanswered {
            if let Call::Client(ClientCall { connection, id, .. }) = call {
                let error = rejection(id, None, SESSION_NOT_FOUND, NO_SESSION);
                self.deliver_in(connection, error);
            }
        }
    }

    /// Removes the calls of a client to which no further reply can come.
    fn forget_calls(&mut self, client: ClientId) {
        self.calls
            .retain(|_, call| !matches!(call, Call::Client(call) if call.client == client));
    }

    /// Removes a session and those below it, and returns them.
    fn remove_tree(&mut self, root: SessionId) -> Vec<SessionId> {
        let mut removed = vec![root];
        let mut next = 0;
        while let Some(session) = removed.get(next) {
            if let Some(session) = self.sessions.remove(session) {
                removed.extend(session.children);
            }
            next += 1;
        }
        removed
    }

    /// Connects a client to the session in Chromium's reply, or to none if that is an error.
    fn connect(&mut self, client: NewClient, root: Option<SessionId>) {
        self.last_client += 1;
        let id = ClientId(self.last_client);
        let Some(root) = root else {
            let _ = client.reply.send(Err(ConnectError::NoTarget));
            return;
        };
        self.sessions.insert(root, Session::new(id, None, "", true));
        let entry = Client {
            root,
            outbox: client.outbox,
            max_event: client.max_event,
            calls: 0,
        };
        self.clients.insert(id, entry);
        let connection = Connection {
            id,
            requests: client.requests,
        };
        // If the client has gone, dropping the connection disconnects it.
        let _ = client.reply.send(Ok(connection));
    }

    /// Ends the connection of the client whose target has gone.
    fn end_root(&mut self, root: SessionId) {
        let Some(client) = self.sessions.get(&root).map(|session| session.client) else {
            return;
        };
        self.remove_tree(root);
        self.forget_calls(client);
        // What Chromium's own server sends before it closes the connection.
        let detached = Bytes::from_static(
            br#"{"method":"Inspector.detached","params":{"reason":"target_closed"}}"#,
        );
        self.deliver(client, detached);
        self.end_client(client, End::TargetGone);
    }

    /// Queues a message for the client.
    pub(super) fn deliver(&mut self, client: ClientId, message: Bytes) {
        let Some(entry) = self.clients.get(&client) else {
            return;
        };
        if message.len() > entry.max_event && message.starts_with(b"{\"method\"") {
            tracing::warn!(bytes = message.len(), "dropped a long event");
        } else if !entry.outbox.push(message) {
            self.end_client(client, End::TooSlow);
        }
    }

    /// Ends the queue to a client. Its session stays until the client is disconnected.
    fn end_client(&mut self, client: ClientId, end: End) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.outbox.end(end);
            let (closed, _) = super::outbox::queue(Arc::default());
            entry.outbox = closed;
        }
    }

    /// Ends all connections, because Chromium has ended.
    pub(super) fn end_all(self) {
        for client in self.clients.into_values() {
            client.outbox.end(End::BrowserGone);
        }
    }
}
