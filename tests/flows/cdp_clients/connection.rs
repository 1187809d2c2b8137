//! A DevTools connection that checks each message it receives.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
};

use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::tabs::Tabs;
use crate::support::{wait::WAIT_TIMEOUT, websocket::Client};

/// Chromium's code for "Session with given id not found."
const NO_SESSION: i64 = -32001;

/// The numbers of checked messages and of what clients did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub answers: usize,
    pub events: usize,
    pub detached: usize,
    pub late_calls: usize,
    pub crashes: usize,
    pub hangs: usize,
    pub abandoned_calls: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.answers += other.answers;
        self.events += other.events;
        self.detached += other.detached;
        self.late_calls += other.late_calls;
        self.crashes += other.crashes;
        self.hangs += other.hangs;
        self.abandoned_calls += other.abandoned_calls;
    }
}

/// A session that was announced to this connection and has not ended.
struct Session {
    tab: String,
    parent: Option<String>,
    /// Whether this client has called `Target.detachFromTarget`.
    is_detaching: bool,
}

impl Session {
    fn is_attached_to_tab(&self) -> bool {
        self.parent.is_none() && !self.is_detaching
    }
}

/// A call without a response.
#[derive(Debug)]
struct Call {
    session: Option<String>,
    /// The tab that it concerns.
    tab: Option<String>,
    /// Whether its session had ended, or was ending, when the call was sent.
    is_late: bool,
    method: &'static str,
    value: Option<String>,
}

pub struct Connection<'a> {
    client: Client,
    tabs: &'a Tabs,
    /// Part of every value that is evaluated, and different for each connection.
    name: String,
    /// The tab of a connection to `/devtools/page/{id}`.
    tab: Option<String>,
    next_id: u64,
    sessions: BTreeMap<String, Session>,
    ended: BTreeSet<String>,
    pending: BTreeMap<u64, Call>,
    is_closed: bool,
    /// The methods that this client has called outside sessions.
    called: BTreeSet<&'static str>,
    pub counts: Counts,
}

impl<'a> Connection<'a> {
    pub fn new(client: Client, tabs: &'a Tabs, name: String, tab: Option<&str>) -> Self {
        Self {
            client,
            tabs,
            name,
            tab: tab.map(str::to_owned),
            next_id: 0,
            sessions: BTreeMap::new(),
            ended: BTreeSet::new(),
            pending: BTreeMap::new(),
            is_closed: false,
            called: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the sessions that have not ended.
    pub fn sessions(&self) -> Vec<String> {
        self.sessions.keys().cloned().collect()
    }

    pub fn ended(&self) -> Vec<String> {
        self.ended.iter().cloned().collect()
    }

    /// Returns the sessions of tabs that this client has not detached.
    pub fn detachable(&self) -> Vec<String> {
        let sessions = self.sessions.iter();
        let found = sessions.filter(|(_, session)| session.is_attached_to_tab());
        found.map(|(id, _)| id.clone()).collect()
    }

    /// Returns a session of the tab itself.
    pub fn session_of(&self, tab: &str) -> Option<String> {
        let mut sessions = self.sessions.iter();
        let found =
            sessions.find(|(_, session)| session.tab == tab && session.is_attached_to_tab());
        found.map(|(id, _)| id.clone())
    }

    /// Sends a call to the browser, or to the tab of the connection.
    pub async fn call(&mut self, method: &'static str, params: Value) -> u64 {
        self.send(None, method, params, None).await
    }

    pub async fn call_session(&mut self, session: &str, method: &'static str, params: Value) {
        self.send(Some(session), method, params, None).await;
    }

    /// Evaluates a value that only this call has, in a session or in the tab of the connection.
    pub async fn evaluate(&mut self, session: Option<&str>, is_delayed: bool) {
        let value = format!("{}-{}", self.name, self.next_id + 1);
        let expression = match is_delayed {
            true => format!("new Promise(done => setTimeout(() => done('{value}'), 3))"),
            false => format!("'{value}'"),
        };
        let params = json!({"expression": expression, "awaitPromise": is_delayed});
        self.send(session, "Runtime.evaluate", params, Some(value))
            .await;
    }

    async fn send(
        &mut self,
        session: Option<&str>,
        method: &'static str,
        params: Value,
        value: Option<String>,
    ) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let known = session.map(|session| self.sessions.get(session));
        let is_late = known.is_some_and(|known| known.is_none_or(|known| known.is_detaching));
        let named = params["sessionId"].as_str();
        let session_of_tab = session.or(named).and_then(|id| self.sessions.get(id));
        let tab = match (session_of_tab, params["targetId"].as_str()) {
            (Some(session), _) => Some(session.tab.clone()),
            (None, Some(tab)) => Some(tab.to_owned()),
            (None, None) => self.tab.clone(),
        };
        let mut message = json!({"id": id, "method": method, "params": params});
        match session {
            Some(session) => message["sessionId"] = json!(session),
            None => _ = self.called.insert(method),
        }
        let call = Call {
            session: session.map(str::to_owned),
            tab,
            is_late,
            method,
            value,
        };
        self.pending.insert(id, call);
        if !self.is_closed {
            self.client.send_text(message.to_string()).await;
        }
        id
    }

    /// Detaches a session. Later calls to it and to its children are late.
    pub async fn detach(&mut self, session: &str) {
        let params = json!({"sessionId": session});
        self.call("Target.detachFromTarget", params).await;
        for id in self.family(session) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.is_detaching = true;
            }
        }
    }

    /// Returns a session and its descendants.
    fn family(&self, session: &str) -> Vec<String> {
        let mut family = vec![session.to_owned()];
        let mut next = 0;
        while let Some(parent) = family.get(next).cloned() {
            let is_child = |session: &Session| session.parent.as_ref() == Some(&parent);
            let children = self.sessions.iter().filter(|(_, child)| is_child(child));
            family.extend(children.map(|(id, _)| id.clone()));
            next += 1;
        }
        family
    }

    /// Whether a call has to be answered: one to the browser, to a session that has ended, and to a
    /// session that lives as long as its tab is healthy.
    fn is_due(&self, call: &Call) -> bool {
        let is_healthy = || {
            let tab = call.tab.as_ref();
            tab.is_none_or(|tab| self.tabs.is_healthy(tab))
        };
        match &call.session {
            _ if self.is_closed => false,
            _ if call.is_late => true,
            Some(session) => {
                let session = self.sessions.get(session);
                session.is_some_and(|session| !session.is_detaching) && is_healthy()
            }
            None => self.tab.is_none() || is_healthy(),
        }
    }

    fn due(&self) -> impl Iterator<Item = (&u64, &Call)> {
        self.pending.iter().filter(|(_, call)| self.is_due(call))
    }

    /// Reads messages until each call that is due is answered.
    pub async fn settle(&mut self) {
        let mut changes = self.tabs.changes();
        let reading = async {
            while self.due().next().is_some() {
                tokio::select! {
                    message = self.client.next_message() => self.accept(message),
                    _ = changes.changed() => {}
                }
            }
        };
        if timeout(WAIT_TIMEOUT, reading).await.is_err() {
            let missing: Vec<_> = self.due().collect();
            panic!("{}: timed out waiting for {missing:?}", self.name);
        }
    }

    /// Reads messages until the call is answered, which must be with a result, and returns it.
    pub async fn result(&mut self, id: u64) -> Value {
        let reading = async {
            loop {
                let message = self.client.next_message().await;
                let text = match &message {
                    Ok(Message::Text(text)) => text.as_str().to_owned(),
                    other => panic!("{}: expected text, received {other:?}", self.name),
                };
                self.accept(message);
                let mut message: Value = serde_json::from_str(&text).unwrap();
                if message["id"] == id {
                    assert!(message["error"].is_null(), "{}: {message}", self.name);
                    return message["result"].take();
                }
            }
        };
        let result = timeout(WAIT_TIMEOUT, reading).await;
        result.unwrap_or_else(|_| panic!("{}: timed out waiting for response {id}", self.name))
    }

    fn accept(&mut self, message: Result<Message, (u16, String)>) {
        match message {
            Ok(Message::Text(text)) => {
                let message: Value = serde_json::from_str(text.as_str()).unwrap();
                match message["id"].as_u64() {
                    Some(id) => self.accept_answer(id, &message),
                    None => self.accept_event(&message),
                }
            }
            Ok(other) => panic!("{}: expected text, received {other:?}", self.name),
            Err(close) => {
                let tab = self.tab.as_ref().map(|tab| self.tabs.is_healthy(tab));
                assert_eq!(tab, Some(false), "{}: closed with {close:?}", self.name);
                assert_eq!(close.0, 1000, "{}: closed with {close:?}", self.name);
                self.is_closed = true;
            }
        }
    }

    fn accept_answer(&mut self, id: u64, message: &Value) {
        let name = &self.name;
        let call = self.pending.remove(&id);
        let call =
            call.unwrap_or_else(|| panic!("{name}: answered twice, or for another: {message}"));
        let is_unknown = message["error"]["code"] == NO_SESSION;
        let session = call.session.as_deref();
        // Chromium does not repeat a session that it does not know.
        if !(is_unknown && message["sessionId"].is_null()) {
            let answered = message["sessionId"].as_str();
            assert_eq!(answered, session, "{name}: {call:?}: {message}");
        }
        self.counts.answers += 1;
        let has_ended = call.session.as_ref().is_some_and(|session| {
            let session = self.sessions.get(session);
            session.is_none_or(|session| session.is_detaching)
        });
        let is_unhealthy = call
            .tab
            .as_ref()
            .is_some_and(|tab| !self.tabs.is_healthy(tab));
        if message["error"].is_object() {
            let is_expected = match call.is_late || self.is_ended(session) {
                true => is_unknown,
                false => has_ended || is_unhealthy,
            };
            assert!(is_expected, "{name}: {call:?}: {message}");
            self.counts.late_calls += usize::from(is_unknown);
            return;
        }
        assert!(!self.is_ended(session), "{name}: {call:?}: {message}");
        assert!(!call.is_late, "{name}: {call:?}: {message}");
        if let Some(value) = &call.value {
            let answered = &message["result"]["result"]["value"];
            assert_eq!(answered, value, "{name}: {call:?}: {message}");
        }
        if call.method == "Target.attachToTarget" {
            let session = message["result"]["sessionId"].as_str().unwrap();
            let is_known = self.sessions.contains_key(session) || self.ended.contains(session);
            assert!(is_known, "{name}: not announced: {message}");
        }
    }

    fn is_ended(&self, session: Option<&str>) -> bool {
        session.is_some_and(|session| self.ended.contains(session))
    }

    /// Whether an event outside sessions is due to a call of this client.
    fn has_caused(&self, method: &str, params: &Value) -> bool {
        match method {
            "Target.attachedToTarget" => {
                let tab = params["targetInfo"]["targetId"].as_str();
                let is_call = |call: &Call| {
                    call.method == "Target.attachToTarget" && call.tab.as_deref() == tab
                };
                self.called.contains("Target.setAutoAttach") || self.pending.values().any(is_call)
            }
            "Target.targetCreated" | "Target.targetDestroyed" | "Target.targetCrashed" => {
                self.called.contains("Target.setDiscoverTargets")
            }
            _ => method.starts_with("Target."),
        }
    }

    fn accept_event(&mut self, message: &Value) {
        let name = &self.name;
        let session = message["sessionId"].as_str();
        let is_known = session.is_none_or(|session| self.sessions.contains_key(session));
        assert!(is_known, "{name}: of another session: {message}");
        let method = message["method"].as_str().unwrap();
        let params = &message["params"];
        if session.is_none() && self.tab.is_none() {
            let is_caused = self.has_caused(method, params);
            assert!(is_caused, "{name}: of another client: {message}");
        }
        self.counts.events += 1;
        match method {
            "Target.attachedToTarget" => {
                let parent = session.and_then(|session| self.sessions.get(session));
                let tab = match (parent, &self.tab) {
                    (Some(parent), _) => parent.tab.clone(),
                    (None, Some(tab)) => tab.clone(),
                    (None, None) => params["targetInfo"]["targetId"]
                        .as_str()
                        .unwrap()
                        .to_owned(),
                };
                let id = params["sessionId"].as_str().unwrap().to_owned();
                let is_new = !self.sessions.contains_key(&id) && !self.ended.contains(&id);
                assert!(is_new, "{name}: announced twice: {message}");
                let announced = Session {
                    tab,
                    parent: session.map(str::to_owned),
                    is_detaching: false,
                };
                self.sessions.insert(id, announced);
            }
            "Target.detachedFromTarget" => {
                let id = params["sessionId"].as_str().unwrap();
                assert!(self.sessions.contains_key(id), "{name}: {message}");
                self.counts.detached += 1;
                for id in self.family(id) {
                    self.sessions.remove(&id);
                    self.ended.insert(id);
                }
            }
            _ => {}
        }
    }

    /// Drops the connection, whatever is not answered.
    pub fn abandon(mut self) -> Counts {
        self.counts.abandoned_calls += self.pending.len();
        self.counts
    }

    /// Closes the connection with Close frames.
    pub async fn close(self) -> Counts {
        if !self.is_closed {
            self.client.close().await;
        }
        self.counts
    }
}
