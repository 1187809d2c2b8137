//! Clients of resumable DevTools connections, in the protocol of docs/websockets.md.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};
use tokio_tungstenite::tungstenite::Error;

use super::{
    agent::TestAgent,
    python::clients,
    wait::{in_time, until},
    websocket::Client,
};

pub const PROTOCOL: &str = "berth.resume.v1";
/// A page that greets.
const SITE: &str = "data:text/html,<title>Greetings</title><input id=name><button id=greet \
    onclick=\"greeting.textContent='Hello, '+document.getElementById('name').value\">Greet</button><p id=greeting></p>";

/// A Playwright script in Node, which works until [`WorkingScript::finish`].
pub struct WorkingScript {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WorkingScript {
    /// Starts it with the command of Node, and waits until it works.
    pub async fn start(mut node: Command, endpoint: &str) -> Self {
        let mut child = node
            .arg(clients().join("resumable.mjs"))
            .args([endpoint, SITE, "input"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("Node is installed");
        let stdout = child.stdout.take().expect("a pipe");
        let mut script = WorkingScript {
            stdin: child.stdin.take().expect("a pipe"),
            lines: BufReader::new(stdout).lines(),
            child,
        };
        assert_eq!(script.next_line().await, "working");
        script
    }

    async fn next_line(&mut self) -> String {
        let line = in_time("a line", self.lines.next_line()).await;
        line.expect("text").expect("a further line")
    }

    /// Has it finish. It fails if a call was lost or made twice.
    pub async fn finish(mut self) {
        self.stdin.write_all(b"over\n").await.unwrap();
        let results = parse(&self.next_line().await);
        assert_eq!(results["greeting"], "Hello, Ada", "{results}");
        let status = in_time("its exit", self.child.wait()).await.unwrap();
        assert!(status.success(), "{status}");
    }
}

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
    /// Resumes the connection, at the latest when the agent has been replaced.
    pub async fn resume(self, agent: &TestAgent, expected: u64) -> Resumable {
        let query = format!("resume={}&received={}", self.id, self.received);
        let url = agent.ws_url(&format!("/cdp?{query}"));
        let accepted = until("an agent that is not being replaced", async || {
            match Client::try_connect_with_protocol(&url, PROTOCOL).await {
                Err(Error::Http(response)) if response.status() == 503 => None,
                connected => Some(connected),
            }
        });
        let mut resumed = Resumable {
            socket: accepted.await.expect("the handshake succeeds"),
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
