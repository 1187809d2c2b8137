//! Clients of resumable DevTools connections, in the protocol of docs/websockets.md.

use serde_json::{Value, json};

use super::{agent::TestAgent, websocket::Client};

pub const PROTOCOL: &str = "berth.resume.v1";

/// A client that numbers its messages.
pub struct Resumable {
    pub socket: Client,
    pub id: String,
    pub sent: u64,
    pub received: u64,
}

impl Resumable {
    pub async fn connect(agent: &TestAgent) -> Self {
        let mut socket = open(agent, "resume=new").await;
        let greeting = parse(&socket.next_text().await);
        assert_eq!(greeting["received"], 0);
        Resumable {
            socket,
            id: greeting["id"].as_str().unwrap().to_owned(),
            sent: 0,
            received: 0,
        }
    }

    pub fn query(&self) -> String {
        format!("resume={}&received={}", self.id, self.received)
    }

    /// Loses the WebSocket, without a Close frame.
    pub fn lose(self) -> Lost {
        Lost {
            id: self.id,
            sent: self.sent,
            received: self.received,
        }
    }

    pub async fn send(&mut self, number: u64, message: Value) {
        self.sent = number;
        self.socket.send_text(format!("{number} {message}")).await;
    }

    pub async fn call(&mut self, message: Value) {
        self.send(self.sent + 1, message).await;
    }

    /// Returns the next message, whose number must follow.
    pub async fn next(&mut self) -> Value {
        loop {
            let text = self.socket.next_text().await;
            let (number, message) = text.split_once(' ').expect("a number");
            if number == "ack" {
                continue;
            }
            self.received += 1;
            assert_eq!(number, self.received.to_string(), "{text:.200}");
            return parse(message);
        }
    }

    /// Returns the next reply with this id; events before it are discarded.
    pub async fn reply(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
        }
    }
}

/// A client without a WebSocket.
pub struct Lost {
    pub id: String,
    pub sent: u64,
    pub received: u64,
}

impl Lost {
    pub async fn resume(self, agent: &TestAgent, expected: u64) -> Resumable {
        let query = format!("resume={}&received={}", self.id, self.received);
        let mut resumed = Resumable {
            socket: open(agent, &query).await,
            id: self.id,
            sent: self.sent,
            received: self.received,
        };
        let greeting = parse(&resumed.socket.next_text().await);
        assert_eq!(greeting["received"], expected);
        assert_eq!(greeting["id"], resumed.id.as_str());
        resumed
    }

    pub async fn is_refused(&self, agent: &TestAgent, code: u16) {
        let query = format!("resume={}&received={}", self.id, self.received);
        assert_eq!(close_code(open(agent, &query).await).await, code);
    }
}

pub async fn open(agent: &TestAgent, query: &str) -> Client {
    let url = agent.ws_url(&format!("/cdp?{query}"));
    Client::connect_with_protocol(&url, PROTOCOL).await
}

pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:.200}"))
}

pub async fn close_code(socket: Client) -> u16 {
    let close = socket.closed().await.expect("a Close frame");
    close.code.into()
}

/// Attaches to the tab, and returns the session.
pub async fn attach(client: &mut Resumable) -> Value {
    client
        .call(json!({"id": 1, "method": "Target.getTargets"}))
        .await;
    let targets = client.reply(1).await;
    let infos = targets["result"]["targetInfos"].as_array().unwrap();
    let tab = infos.iter().find(|info| info["type"] == "page").unwrap();
    let params = json!({"targetId": tab["targetId"], "flatten": true});
    client
        .call(json!({"id": 2, "method": "Target.attachToTarget", "params": params}))
        .await;
    let session = client.reply(2).await["result"]["sessionId"].clone();
    client
        .call(json!({"id": 3, "method": "Runtime.enable", "sessionId": session}))
        .await;
    client.reply(3).await;
    session
}

pub fn evaluate(id: u64, session: &Value, expression: &str) -> Value {
    json!({"id": id, "method": "Runtime.evaluate", "sessionId": session,
        "params": {"expression": expression}})
}
