//! The routes of messages: which client has which session, and which of its calls has which id on
//! the pipe.
//!
//! Sessions form trees. The root of each is the one that its client is connected to; Chromium
//! announces every other one with `Target.attachedToTarget` in its parent.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::{
    ConnectError, Connection, Endpoint, Request,
    command::{Command, FIRST_ID, LAST_ID, rejection, with_session},
    outbox::{End, Outbox},
    session::{MEMBER_LENGTH, SessionId},
};
use crate::system::cdp::{
    message::{Head, SERVER_ERROR, SESSION_NOT_FOUND},
    pipe::TERMINATOR,
};

/// The most calls of one client that are not answered yet.
const MAX_CALLS: usize = 1 << 16;

/// Chromium's error for a session that has ended.
const NO_SESSION: &str = "Session with given id not found.";

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct ClientId(u64);

/// A client that is to be connected.
pub(super) struct NewClient {
    pub(super) endpoint: Endpoint,
    pub(super) outbox: Outbox,
    /// The longest message that the client accepts. Longer events are dropped.
    pub(super) max_message: usize,
    pub(super) requests: mpsc::UnboundedSender<Request>,
    /// Receives the connection. Dropping one that is not received disconnects the client.
    pub(super) reply: oneshot::Sender<Result<Connection, ConnectError>>,
}

struct Client {
    root: SessionId,
    outbox: Outbox,
    max_message: usize,
    /// The number of calls that are not answered yet.
    calls: usize,
}

struct Session {
    client: ClientId,
    parent: Option<SessionId>,
    children: Vec<SessionId>,
}

/// The use of the reply to an id on the pipe.
enum Call {
    Attach(NewClient),
    /// Ends the connection of a client that has gone: afterwards no reply for it can come.
    Detach(ClientId),
    Client {
        client: ClientId,
        session: SessionId,
        id: i32,
    },
}

#[derive(Default)]
pub(super) struct Router {
    clients: HashMap<ClientId, Client>,
    sessions: HashMap<SessionId, Session>,
    calls: HashMap<u32, Call>,
    last_client: u64,
    /// The number of ids used on the pipe.
    used_ids: u32,
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
        let call = json!({ "id": id, "method": method, "params": params });
        pipe.extend_from_slice(call.to_string().as_bytes());
        pipe.push(TERMINATOR);
    }

    /// Sends a client's command to Chromium, or rejects it.
    pub(super) fn command(&mut self, client_id: ClientId, command: &Command, pipe: &mut Vec<u8>) {
        let Some(client) = self.clients.get_mut(&client_id) else {
            return;
        };
        let session = command.session.unwrap_or(client.root);
        let has_session = |session: &Session| session.client == client_id;
        let error = if !self.sessions.get(&session).is_some_and(has_session) {
            // Chromium's error names no session either.
            Some((None, SESSION_NOT_FOUND, NO_SESSION))
        } else if client.calls >= MAX_CALLS {
            Some((
                command.session,
                SERVER_ERROR,
                "65536 calls of this connection are unanswered",
            ))
        } else {
            None
        };
        if let Some((session, code, message)) = error {
            self.deliver(client_id, rejection(command.id, session, code, message));
            return;
        }
        client.calls += 1;
        let root = client.root;
        let id = self.register(Call::Client {
            client: client_id,
            session,
            id: command.id,
        });
        command.write(id, root, pipe);
    }

    /// Ends the connection of a client that has gone, and with it all that Chromium keeps for it.
    pub(super) fn disconnect(&mut self, client: ClientId, pipe: &mut Vec<u8>) {
        if let Some(root) = self.clients.get(&client).map(|client| client.root) {
            self.remove_tree(root);
            self.detach(client, root, pipe);
        }
        self.clients.remove(&client);
    }

    fn detach(&mut self, client: ClientId, root: SessionId, pipe: &mut Vec<u8>) {
        let id = self.register(Call::Detach(client));
        let call = format!(
            r#"{{"id":{id},"method":"Target.detachFromTarget","params":{{"sessionId":"{root}"}}}}"#
        );
        pipe.extend_from_slice(call.as_bytes());
        pipe.push(TERMINATOR);
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

    /// Routes a message from Chromium.
    pub(super) fn message(&mut self, message: BytesMut) {
        let Some(head) = Head::of_browser(&message) else {
            tracing::warn!(bytes = message.len(), "dropped a message of Chromium");
            return;
        };
        let session = head.session.as_deref();
        let session = session.map(|text| SessionId::parse(text.as_bytes()));
        match (head.id, session) {
            (Some(id), session) => {
                let has_session = session.is_some();
                self.reply(id, has_session, message);
            }
            (None, Some(Some(session))) => {
                let changes_sessions = match head.method.as_deref() {
                    Some("Target.attachedToTarget") => Some(true),
                    Some("Target.detachedFromTarget") => Some(false),
                    _ => None,
                };
                self.event(session, changes_sessions, message);
            }
            (None, _) if head.method.as_deref() == Some("Target.detachedFromTarget") => {
                if let Some(session) = session_in_params(&message) {
                    self.end_root(session);
                }
            }
            // Announcements of the roots, which the replies contain as well.
            (None, _) if head.method.is_some() => {}
            (None, _) => {
                let error = String::from_utf8_lossy(&message[..message.len().min(200)]);
                tracing::warn!(%error, "Chromium rejected a message");
            }
        }
    }

    fn reply(&mut self, id: i64, has_session: bool, message: BytesMut) {
        let call = u32::try_from(id).ok().and_then(|id| self.calls.remove(&id));
        match call {
            // The session had ended before its command came, which was answered then.
            None => {}
            Some(Call::Attach(client)) => self.connect(client, &message),
            Some(Call::Detach(client)) => self.forget_calls(client),
            Some(Call::Client {
                client,
                session,
                id,
            }) => {
                let Some(entry) = self.clients.get_mut(&client) else {
                    return;
                };
                entry.calls -= 1;
                let message = with_id(message, id);
                let message = match session == entry.root {
                    true => without_session(message).freeze(),
                    // The replacement of a reply that is too long.
                    false if !has_session && !is_session_not_found(&message) => {
                        with_session(&message, session)
                    }
                    false => message.freeze(),
                };
                self.deliver(client, message);
            }
        }
    }

    /// Passes an event on to the client that has the session. `changes_sessions` is whether it
    /// announces a session (true), or the end of one.
    fn event(&mut self, session: SessionId, changes_sessions: Option<bool>, message: BytesMut) {
        let Some(client) = self.sessions.get(&session).map(|session| session.client) else {
            return;
        };
        let changed =
            changes_sessions.and_then(|added| Some((added, session_in_params(&message)?)));
        if let Some((true, child)) = changed {
            self.add_child(client, session, child);
        }
        let is_root = self.clients.get(&client).map(|client| client.root) == Some(session);
        let message = match is_root {
            true => without_session(message),
            false => message,
        };
        self.deliver(client, message.freeze());
        if let Some((false, child)) = changed {
            self.end_child(client, child);
        }
    }

    fn add_child(&mut self, client: ClientId, parent: SessionId, child: SessionId) {
        if let Some(session) = self.sessions.get_mut(&parent) {
            session.children.push(child);
        }
        let session = Session {
            client,
            parent: Some(parent),
            children: Vec::new(),
        };
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
        let is_unanswered = |_: &u32, call: &mut Call| matches!(call, Call::Client { session, .. } if ended.contains(session));
        let unanswered: Vec<Call> = self
            .calls
            .extract_if(is_unanswered)
            .map(|(_, call)| call)
            .collect();
        entry.calls -= unanswered.len();
        for call in unanswered {
            if let Call::Client { id, .. } = call {
                self.deliver(client, rejection(id, None, SESSION_NOT_FOUND, NO_SESSION));
            }
        }
    }

    /// Removes the calls of a client to which no further reply can come.
    fn forget_calls(&mut self, client: ClientId) {
        self.calls.retain(
            |_, call| !matches!(call, Call::Client { client: other, .. } if *other == client),
        );
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

    /// Connects a client to the session in Chromium's reply.
    fn connect(&mut self, client: NewClient, reply: &[u8]) {
        self.last_client += 1;
        let id = ClientId(self.last_client);
        let Some(root) = session_in_reply(reply) else {
            let _ = client.reply.send(Err(ConnectError::NoTarget));
            return;
        };
        let session = Session {
            client: id,
            parent: None,
            children: Vec::new(),
        };
        self.sessions.insert(root, session);
        let entry = Client {
            root,
            outbox: client.outbox,
            max_message: client.max_message,
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
        if message.len() > entry.max_message {
            if message.starts_with(b"{\"method\"") {
                tracing::warn!(bytes = message.len(), "dropped a long event");
            } else {
                self.end_client(client, End::TooLong);
            }
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

/// Returns `params.sessionId` of an event.
fn session_in_params(event: &[u8]) -> Option<SessionId> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        params: WithSession<'a>,
    }
    let event: Event = serde_json::from_slice(event).ok()?;
    SessionId::parse(event.params.session_id.as_bytes())
}

/// Returns `result.sessionId` of a reply, or `None` for an error.
fn session_in_reply(reply: &[u8]) -> Option<SessionId> {
    #[derive(Deserialize)]
    struct Reply<'a> {
        #[serde(borrow)]
        result: WithSession<'a>,
    }
    let reply: Reply = serde_json::from_slice(reply).ok()?;
    SessionId::parse(reply.result.session_id.as_bytes())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithSession<'a> {
    session_id: &'a str,
}

/// Whether a reply is Chromium's error for a session that has ended.
fn is_session_not_found(reply: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(reply)
        .is_ok_and(|reply| reply["error"]["code"] == SESSION_NOT_FOUND)
}

/// Returns the reply with the client's id for the one that it had on the pipe.
pub(super) fn with_id(mut reply: BytesMut, id: i32) -> BytesMut {
    const START: usize = r#"{"id":1000000000"#.len();
    let head = format!(r#"{{"id":{id}"#);
    if reply.starts_with(br#"{"id":"#) && reply.len() >= START {
        if head.len() > START {
            return [head.as_bytes(), &reply[START..]]
                .concat()
                .as_slice()
                .into();
        }
        let mut rest = reply.split_off(START - head.len());
        rest[..head.len()].copy_from_slice(head.as_bytes());
        return rest;
    }
    rewritten(&reply, |members| {
        members.insert("id".to_owned(), id.into());
    })
}

/// Returns the message without its session.
pub(super) fn without_session(mut message: BytesMut) -> BytesMut {
    let end = message.len().saturating_sub(MEMBER_LENGTH + 1);
    if message[end..].starts_with(br#","sessionId":""#) && message.ends_with(b"\"}") {
        message.truncate(end);
        message.extend_from_slice(b"}");
        return message;
    }
    match Head::parse(&message).is_some_and(|head| head.session.is_some()) {
        true => rewritten(&message, |members| {
            members.remove("sessionId");
        }),
        false => message,
    }
}

/// Returns a message whose members are in an unusual order with a change.
fn rewritten(
    message: &[u8],
    change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>),
) -> BytesMut {
    let mut members = serde_json::from_slice(message).unwrap_or_default();
    change(&mut members);
    let text = serde_json::Value::Object(members).to_string();
    Bytes::from(text).into()
}
