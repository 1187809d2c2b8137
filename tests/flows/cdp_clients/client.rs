//! A client whose steps are random.

use serde_json::json;
use tokio::sync::Barrier;
use tokio_tungstenite::tungstenite::Error;

use super::{
    connection::{Connection, Counts},
    tabs::Tabs,
};
use crate::support::{agent::TestAgent, random::Random, websocket::Client};

/// The largest number of steps on one connection, and of calls that are sent in a row.
const MAX_STEPS: usize = 10;
const MAX_CALLS: usize = 8;
const WORKER: &str = "globalThis.worker = new Worker('data:text/javascript,'), 0";

pub struct RandomClient<'a> {
    agent: &'a TestAgent,
    tabs: &'a Tabs,
    name: String,
    random: Random,
    connections: usize,
    /// The tabs that this client has opened and not closed.
    own: Vec<String>,
    counts: Counts,
}

impl<'a> RandomClient<'a> {
    pub fn new(agent: &'a TestAgent, tabs: &'a Tabs, seed: u64, number: usize) -> Self {
        Self {
            agent,
            tabs,
            name: number.to_string(),
            random: Random::new(seed, number),
            connections: 0,
            own: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Connects so many times, at first together with the other clients, and closes its tabs.
    pub async fn run(mut self, connections: usize, all_connected: &Barrier) -> Counts {
        for index in 0..connections {
            if index > 0 && self.random.one_in(4) {
                self.use_tab().await;
                continue;
            }
            let mut connection = self.connect().await;
            if index == 0 {
                // The first barrier lets the test count the clients, the second lets them go on.
                all_connected.wait().await;
                all_connected.wait().await;
            }
            self.use_browser(&mut connection).await;
            self.end(connection).await;
        }
        let mut connection = self.connect().await;
        for tab in std::mem::take(&mut self.own) {
            self.close_tab(&mut connection, &tab).await;
        }
        connection.settle().await;
        self.counts += connection.close().await;
        self.counts
    }

    fn next_name(&mut self) -> String {
        self.connections += 1;
        format!("{}-{}", self.name, self.connections)
    }

    async fn connect(&mut self) -> Connection<'a> {
        let client = Client::connect(&self.agent.ws_url("/cdp")).await;
        Connection::new(client, self.tabs, self.next_name(), None)
    }

    /// Evaluates on a connection to a tab.
    async fn use_tab(&mut self) {
        let tab = self.random.choose(self.tabs.ids());
        let tab = tab.expect("the first tab is open");
        let url = self.agent.ws_url(&format!("/devtools/page/{tab}"));
        let client = match Client::try_connect(&url).await {
            Ok(client) => client,
            Err(Error::Http(response)) => {
                assert_eq!(response.status().as_u16(), 404, "{tab}");
                assert!(!self.tabs.is_healthy(&tab), "{tab} is open");
                return;
            }
            Err(error) => panic!("{tab}: {error}"),
        };
        let name = self.next_name();
        let mut connection = Connection::new(client, self.tabs, name, Some(&tab));
        connection.call("Runtime.enable", json!({})).await;
        for _ in 0..1 + self.random.below(MAX_STEPS) {
            for _ in 0..1 + self.random.below(MAX_CALLS) {
                connection.evaluate(None, self.random.one_in(4)).await;
            }
            connection.settle().await;
        }
        self.counts += connection.abandon();
    }

    async fn use_browser(&mut self, connection: &mut Connection<'a>) {
        if self.random.one_in(2) {
            let params = json!({"discover": true});
            connection.call("Target.setDiscoverTargets", params).await;
        }
        if self.random.one_in(3) {
            let params =
                json!({"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true});
            connection.call("Target.setAutoAttach", params).await;
        }
        // Hung tabs occupy cores: they last until their client's next connection.
        for tab in self.own.clone() {
            if self.tabs.is_hung(&tab) {
                self.close_tab(connection, &tab).await;
            }
        }
        let first = self.tabs.first().to_owned();
        self.attach(connection, &first).await;
        for _ in 0..1 + self.random.below(MAX_STEPS) {
            self.step(connection).await;
            if !self.random.one_in(4) {
                connection.settle().await;
            }
        }
    }

    async fn step(&mut self, connection: &mut Connection<'a>) {
        match self.random.below(28) {
            0..4 => {
                if let Some(tab) = self.random.choose(self.tabs.ids()) {
                    self.attach(connection, &tab).await;
                }
            }
            4..11 => self.evaluate(connection).await,
            11..13 => {
                connection.call("Browser.getVersion", json!({})).await;
                connection.call("Target.getTargets", json!({})).await;
            }
            13..17 => self.open_tab(connection).await,
            17..19 => self.detach(connection).await,
            19 => {
                if let Some(session) = self.random.choose(connection.ended()) {
                    connection.evaluate(Some(&session), false).await;
                }
            }
            20 => self.start_worker(connection).await,
            21..24 => self.crash_tab(connection).await,
            24..26 => self.hang_tab(connection).await,
            _ => {
                if let Some(tab) = self.random.choose(self.own.clone()) {
                    self.close_tab(connection, &tab).await;
                }
            }
        }
    }

    async fn attach(&mut self, connection: &mut Connection<'a>, tab: &str) {
        let params = json!({"targetId": tab, "flatten": true});
        connection.call("Target.attachToTarget", params).await;
    }

    /// Evaluates in random sessions, without waiting for the answers.
    async fn evaluate(&mut self, connection: &mut Connection<'a>) {
        for _ in 0..1 + self.random.below(MAX_CALLS) {
            if let Some(session) = self.random.choose(connection.sessions()) {
                let is_delayed = self.random.one_in(4);
                connection.evaluate(Some(&session), is_delayed).await;
            }
        }
    }

    async fn open_tab(&mut self, connection: &mut Connection<'a>) {
        if !self.tabs.reserve() {
            return;
        }
        let params = json!({"url": "about:blank"});
        let id = connection.call("Target.createTarget", params).await;
        let created = connection.result(id).await;
        let tab = created["targetId"].as_str().unwrap();
        self.tabs.opened(tab);
        self.own.push(tab.to_owned());
        self.attach(connection, tab).await;
    }

    /// Closes a tab and awaits the response: a call on a dropped connection may be lost.
    async fn close_tab(&mut self, connection: &mut Connection<'a>, tab: &str) {
        self.own.retain(|own| own != tab);
        self.tabs.mark_closed(tab);
        let params = json!({"targetId": tab});
        let id = connection.call("Target.closeTarget", params).await;
        let closed = connection.result(id).await;
        assert_eq!(closed["success"], true, "{tab}: {closed}");
    }

    /// Detaches a session and calls it.
    async fn detach(&mut self, connection: &mut Connection<'a>) {
        let Some(session) = self.random.choose(connection.detachable()) else {
            return;
        };
        connection.evaluate(Some(&session), false).await;
        connection.detach(&session).await;
        connection.evaluate(Some(&session), false).await;
    }

    /// Starts a worker in one of the own tabs; its session is a child of the tab's.
    async fn start_worker(&mut self, connection: &mut Connection<'a>) {
        let Some((_, session)) = self.own_session(connection) else {
            return;
        };
        let params = json!({"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true});
        connection
            .call_session(&session, "Target.setAutoAttach", params)
            .await;
        let params = json!({"expression": WORKER});
        connection
            .call_session(&session, "Runtime.evaluate", params)
            .await;
    }

    /// Returns a healthy tab of this client to which it is attached, and its session.
    fn own_session(&mut self, connection: &Connection<'a>) -> Option<(String, String)> {
        let mut own = self.own.clone();
        own.retain(|tab| self.tabs.is_healthy(tab));
        let tab = self.random.choose(own)?;
        let session = connection.session_of(&tab)?;
        Some((tab, session))
    }

    async fn crash_tab(&mut self, connection: &mut Connection<'a>) {
        if let Some((tab, session)) = self.own_session(connection) {
            self.tabs.mark_crashed(&tab);
            self.counts.crashes += 1;
            connection
                .call_session(&session, "Page.crash", json!({}))
                .await;
        }
    }

    /// Hangs a tab, and uses the browser and other tabs meanwhile.
    async fn hang_tab(&mut self, connection: &mut Connection<'a>) {
        let Some((tab, session)) = self.own_session(connection) else {
            return;
        };
        if !self.tabs.mark_hung(&tab) {
            return;
        }
        self.counts.hangs += 1;
        let params = json!({"expression": "for (;;) {}"});
        connection
            .call_session(&session, "Runtime.evaluate", params)
            .await;
        connection.call("Browser.getVersion", json!({})).await;
        self.evaluate(connection).await;
        if let Some(first) = connection.session_of(self.tabs.first()) {
            connection.evaluate(Some(&first), false).await;
        }
        connection.settle().await;
    }

    /// Closes the connection, drops it, or drops it in the middle of calls.
    async fn end(&mut self, mut connection: Connection<'a>) {
        let counts = match self.random.below(3) {
            0 => connection.close().await,
            1 => connection.abandon(),
            _ => {
                self.evaluate(&mut connection).await;
                connection.call("Target.getTargets", json!({})).await;
                connection.abandon()
            }
        };
        self.counts += counts;
    }
}
