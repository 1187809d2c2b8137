//! The multiplexer with a Chromium of the test at the other end of the pipe.

use std::{collections::VecDeque, io, os::fd::OwnedFd, time::Duration};

use nix::{fcntl::OFlag, unistd::pipe2};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::system::cdp::{
    cbor::tests::{object_to_json, value_to_cbor},
    message::{INVALID_REQUEST, PARSE_ERROR, SERVER_ERROR, SESSION_NOT_FOUND},
};

pub(super) const OPTIONS: ClientOptions = ClientOptions {
    caller: Some(Caller::Client),
    max_event: usize::MAX,
};
const NO_SESSION: &str = "Session with given id not found.";

/// Chromium's end of the pipes.
pub(crate) struct FakeChromium {
    pipe: CdpPipe,
    received: VecDeque<Value>,
    sessions: u32,
}

impl FakeChromium {
    pub(crate) fn start() -> (Multiplexer, Self) {
        let pipe = || -> (OwnedFd, OwnedFd) { pipe2(OFlag::O_CLOEXEC).unwrap() };
        let (commands, to_chromium) = pipe();
        let (from_chromium, events) = pipe();
        let multiplexer = Multiplexer::start(CdpPipe::of(from_chromium, to_chromium).unwrap());
        let chromium = FakeChromium {
            pipe: CdpPipe::of(commands, events).unwrap(),
            received: VecDeque::new(),
            sessions: 0,
        };
        (multiplexer, chromium)
    }

    /// Returns the next command, or `None` when the agent has closed the pipe.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        while self.received.is_empty() {
            let filled = timeout(Duration::from_secs(60), self.pipe.reader.fill()).await;
            if !filled.expect("a command in time").unwrap() {
                return None;
            }
            while let Some(frame) = self.pipe.reader.next().unwrap() {
                let Frame::Message(contents) = frame else {
                    panic!("{frame:?}");
                };
                self.received.push_back(object_to_json(contents));
            }
        }
        self.received.pop_front()
    }

    /// Sends a message, which is given in JSON.
    pub(crate) async fn send(&mut self, message: impl AsRef<str>) {
        let message = value_to_cbor(message.as_ref());
        self.send_bytes(message).await;
    }

    pub(super) async fn send_bytes(&mut self, mut rest: Vec<u8>) {
        while !rest.is_empty() {
            self.pipe.writer.writable().await.unwrap();
            match self.pipe.writer.try_write(&rest) {
                Ok(written) => drop(rest.drain(..written)),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    pub(crate) async fn reply(&mut self, call: &Value, result: Value) {
        let session = match call["sessionId"].as_str() {
            Some(session) => format!(r#","sessionId":"{session}""#),
            None => String::new(),
        };
        let reply = format!(r#"{{"id":{},"result":{result}{session}}}"#, call["id"]);
        self.send(reply).await;
    }

    /// Accepts a connection and returns its session.
    pub(crate) async fn accept(&mut self) -> String {
        let call = self.next().await.expect("a connection");
        let method = call["method"].as_str().unwrap();
        assert!(method.starts_with("Target.attachTo"), "{call}");
        self.sessions += 1;
        let session = format!("{:032X}", self.sessions);
        self.reply(&call, json!({ "sessionId": session })).await;
        session
    }

    /// Sends an event about a session below `parent`.
    pub(crate) async fn announce(&mut self, method: &str, parent: &str, session: &str) {
        let event = format!(
            r#"{{"method":"Target.{method}","params":{{"sessionId":"{session}"}},"sessionId":"{parent}"}}"#
        );
        self.send(event).await;
    }
}

pub(super) struct Client {
    pub(super) sender: CdpSender,
    pub(super) receiver: CdpReceiver,
    /// The session of its connection.
    pub(super) root: String,
}

impl Client {
    pub(super) async fn connect(multiplexer: &Multiplexer, chromium: &mut FakeChromium) -> Self {
        Self::connect_to(multiplexer, chromium, Endpoint::Browser).await
    }

    async fn connect_to(
        multiplexer: &Multiplexer,
        chromium: &mut FakeChromium,
        endpoint: Endpoint,
    ) -> Self {
        let connecting = multiplexer.connect(endpoint, OPTIONS);
        let (connected, root) = tokio::join!(connecting, chromium.accept());
        let (sender, receiver) = connected.unwrap();
        Client {
            sender,
            receiver,
            root,
        }
    }

    pub(super) async fn send(&self, message: impl AsRef<str>) {
        self.sender.send(message.as_ref()).await.unwrap();
    }

    pub(super) async fn received(&mut self) -> Value {
        serde_json::from_slice(&self.text().await).unwrap()
    }

    async fn text(&mut self) -> Bytes {
        let next = timeout(Duration::from_secs(60), self.receiver.next());
        next.await.expect("a message in time").unwrap()
    }

    pub(super) async fn end(&mut self) -> End {
        let next = timeout(Duration::from_secs(60), self.receiver.next());
        next.await.expect("an end in time").unwrap_err()
    }

    /// Asserts that nothing was sent to the client before the reply to this call.
    pub(super) async fn assert_quiet(&mut self, chromium: &mut FakeChromium) {
        self.send(r#"{"id":2147483647,"method":"Quiet.check"}"#)
            .await;
        let call = chromium.next().await.unwrap();
        chromium.reply(&call, json!({})).await;
        assert_eq!(self.received().await, json!({"id": i32::MAX, "result": {}}));
    }
}

#[tokio::test]
async fn each_client_has_its_own_ids_and_sessions() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut a = Client::connect(&multiplexer, &mut chromium).await;
    let mut b = Client::connect(&multiplexer, &mut chromium).await;
    for id in [-1, 0, 7, i32::MIN, i32::MAX] {
        for client in [&a, &b] {
            client
                .send(json!({"id": id, "method": "A.b", "params": {"n": 1.50}}).to_string())
                .await;
        }
        let calls = [
            chromium.next().await.unwrap(),
            chromium.next().await.unwrap(),
        ];
        assert_ne!(calls[0]["id"], calls[1]["id"]);
        for (call, client) in calls.iter().zip([&a, &b]) {
            assert_eq!(call["method"], "A.b");
            assert_eq!(call["params"], json!({"n": 1.5}));
            assert_eq!(call["sessionId"], client.root);
        }
        for call in calls.iter().rev() {
            let of = &call["sessionId"];
            chromium.reply(call, json!({ "of": of })).await;
        }
        for client in [&mut a, &mut b] {
            let expected = json!({"id": id, "result": {"of": client.root}});
            assert_eq!(client.received().await, expected);
        }
    }
    let event = |root: &str| format!(r#"{{"method":"E.e","params":{{}},"sessionId":"{root}"}}"#);
    chromium.send(event(&b.root)).await;
    assert_eq!(b.text().await, r#"{"method":"E.e","params":{}}"#);
    a.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn session_of_another_client_is_unknown() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut a = Client::connect(&multiplexer, &mut chromium).await;
    let mut b = Client::connect(&multiplexer, &mut chromium).await;
    let child = "F".repeat(32);
    chromium.announce("attachedToTarget", &a.root, &child).await;
    let announced = a.received().await;
    assert_eq!(announced["params"]["sessionId"], child.as_str());
    assert_eq!(announced["sessionId"], Value::Null);
    let call = |session: &str| json!({"id": 5, "method": "A.b", "sessionId": session}).to_string();
    for session in [&child, &a.root, "x", &"0".repeat(32), &child.to_lowercase()] {
        b.send(call(session)).await;
        let error = json!({"code": SESSION_NOT_FOUND, "message": NO_SESSION});
        assert_eq!(b.received().await, json!({"id": 5, "error": error}));
    }
    a.send(call(&child)).await;
    let received = chromium.next().await.unwrap();
    assert_eq!(received["sessionId"], child.as_str());
    chromium.reply(&received, json!({})).await;
    assert_eq!(
        a.received().await,
        json!({"id": 5, "result": {}, "sessionId": child})
    );
    // An event of the child goes to its client alone, unchanged.
    let event = format!(r#"{{"method":"E.e","params":{{}},"sessionId":"{child}"}}"#);
    chromium.send(&event).await;
    assert_eq!(a.text().await, event);
    b.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn ended_session_answers_its_calls_once() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let (page, worker) = ("A".repeat(32), "B".repeat(32));
    chromium
        .announce("attachedToTarget", &client.root, &page)
        .await;
    chromium.announce("attachedToTarget", &page, &worker).await;
    for _ in 0..2 {
        client.received().await;
    }
    for (id, session) in [(1, &page), (2, &worker)] {
        client
            .send(json!({"id": id, "method": "A.b", "sessionId": session}).to_string())
            .await;
    }
    client
        .send(json!({"id": 3, "method": "A.b"}).to_string())
        .await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(chromium.next().await.unwrap());
    }
    chromium
        .announce("detachedFromTarget", &client.root, &page)
        .await;
    assert_eq!(
        client.received().await["method"],
        "Target.detachedFromTarget"
    );
    let mut ids = [client.received().await, client.received().await].map(|reply| {
        assert_eq!(reply["error"]["code"], SESSION_NOT_FOUND);
        reply["id"].as_i64().unwrap()
    });
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    // Chromium's own reply to a late command belongs to nobody.
    for call in &calls[..2] {
        let late = json!({"id": call["id"], "error": {"code": -32001, "message": NO_SESSION}});
        chromium.send(late.to_string()).await;
    }
    chromium.reply(&calls[2], json!({})).await;
    assert_eq!(client.received().await, json!({"id": 3, "result": {}}));
    client
        .send(json!({"id": 4, "method": "A.b", "sessionId": worker}).to_string())
        .await;
    assert_eq!(client.received().await["error"]["code"], SESSION_NOT_FOUND);
}

#[tokio::test]
async fn dropped_client_is_detached() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let client = Client::connect(&multiplexer, &mut chromium).await;
    let mut other = Client::connect(&multiplexer, &mut chromium).await;
    client.send(r#"{"id":1,"method":"A.b"}"#).await;
    let unanswered = chromium.next().await.unwrap();
    let root = client.root.clone();
    drop(client);
    let detach = chromium.next().await.unwrap();
    assert_eq!(detach["method"], "Target.detachFromTarget");
    assert_eq!(detach["params"], json!({ "sessionId": root }));
    assert_eq!(detach["sessionId"], Value::Null);
    chromium.reply(&unanswered, json!({})).await;
    chromium.reply(&detach, json!({})).await;
    other.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn abandoned_connection_is_detached() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let connecting = multiplexer.connect(Endpoint::Browser, OPTIONS);
    tokio::select! {
        biased;
        _ = connecting => panic!("nobody has answered"),
        call = chromium.next() => {
            let session = "C".repeat(32);
            let reply = json!({"id": call.unwrap()["id"], "result": {"sessionId": session}});
            chromium.send(reply.to_string()).await;
        }
    }
    let detach = chromium.next().await.unwrap();
    assert_eq!(detach["method"], "Target.detachFromTarget");
}

#[tokio::test]
async fn client_of_a_target_ends_with_it() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let missing = multiplexer.connect(Endpoint::Target("gone".into()), OPTIONS);
    let refuse = async {
        let call = chromium.next().await.unwrap();
        assert_eq!(call["params"], json!({"targetId": "gone", "flatten": true}));
        let error = json!({"code": -32602, "message": "No target with given id found"});
        let reply = json!({"id": call["id"], "error": error});
        chromium.send(reply.to_string()).await;
    };
    let (connected, ()) = tokio::join!(missing, refuse);
    assert!(matches!(connected, Err(ConnectError::NoTarget)));
    let target = Endpoint::Target("T".into());
    let mut client = Client::connect_to(&multiplexer, &mut chromium, target).await;
    let event = format!(
        r#"{{"method":"Target.detachedFromTarget","params":{{"sessionId":"{}"}}}}"#,
        client.root
    );
    chromium.send(event).await;
    assert_eq!(
        client.received().await,
        json!({"method": "Inspector.detached", "params": {"reason": "target_closed"}})
    );
    assert_eq!(client.end().await, End::TargetGone);
}

#[tokio::test]
async fn every_client_ends_with_chromium() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    assert!(!multiplexer.has_ended());
    let connecting = multiplexer.connect(Endpoint::Browser, OPTIONS);
    let end = async {
        chromium.next().await;
        drop(chromium);
    };
    let (connected, ()) = tokio::join!(connecting, end);
    assert!(matches!(connected, Err(ConnectError::Gone)));
    assert_eq!(client.end().await, End::BrowserGone);
    multiplexer.ended().await;
    assert!(
        client
            .sender
            .send(r#"{"id":1,"method":"A.b"}"#)
            .await
            .is_err()
    );
    let again = multiplexer.connect(Endpoint::Browser, OPTIONS).await;
    assert!(matches!(again, Err(ConnectError::Gone)));
}

/// Returns a command whose parameters nest too deep for Chromium's parser.
fn deep_command() -> String {
    let (open, close) = ("[".repeat(300), "]".repeat(300));
    format!(r#"{{"id":9,"method":"A.b","params":{{"x":{open}{close}}}}}"#)
}

#[tokio::test]
async fn message_that_is_no_command_is_rejected() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let deep = deep_command();
    for (message, code, id) in [
        ("", PARSE_ERROR, None),
        ("[]", PARSE_ERROR, None),
        (r#"[9,"A.b"]"#, PARSE_ERROR, None),
        (r#"{"id":9,"method":"A.b""#, PARSE_ERROR, None),
        (
            "{\"id\":9,\"method\":\"A.b\"}\0{\"id\":1,\"method\":\"Browser.close\"}",
            PARSE_ERROR,
            None,
        ),
        (
            "{\"id\":9,\"method\":\"A.b\",\"params\":{\"x\":\"\0\"}}",
            PARSE_ERROR,
            None,
        ),
        (r#"{"method":"A.b"}"#, INVALID_REQUEST, None),
        (r#"{"id":"9","method":"A.b"}"#, INVALID_REQUEST, None),
        (r#"{"id":2147483648,"method":"A.b"}"#, INVALID_REQUEST, None),
        (r#"{"id":1.5,"method":"A.b"}"#, INVALID_REQUEST, None),
        (r#"{"id":9}"#, INVALID_REQUEST, Some(9)),
        (r#"{"id":9,"method":7}"#, INVALID_REQUEST, Some(9)),
        (
            r#"{"id":9,"method":"A.b","sessionId":1}"#,
            INVALID_REQUEST,
            Some(9),
        ),
        (
            r#"{"id":9,"method":"A.b","more":1}"#,
            INVALID_REQUEST,
            Some(9),
        ),
        (
            r#"{"id":9,"method":"A.b","method":"C.d"}"#,
            INVALID_REQUEST,
            None,
        ),
        (
            r#"{"id":9,"method":"A.b","params":{},"params":{}}"#,
            INVALID_REQUEST,
            Some(9),
        ),
        (
            r#"{"id":9,"method":"A.b","params":{"x":1e999}}"#,
            INVALID_REQUEST,
            Some(9),
        ),
        (&deep, INVALID_REQUEST, Some(9)),
    ] {
        client.send(message).await;
        let reply = client.received().await;
        assert_eq!(reply["error"]["code"], code, "{message}: {reply}");
        assert_eq!(reply["id"].as_i64(), id, "{message}: {reply}");
    }
    client.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn command_is_the_same_in_every_spelling() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let client = Client::connect(&multiplexer, &mut chromium).await;
    for message in [
        r#"{"id":9,"method":"A.b","params":{"x":"\u0000\"}]"}}"#,
        "\n{ \"params\" : {\"x\":\"\\u0000\\\"}]\"} ,\t\"method\":\"\\u0041.b\", \"i\\u0064\":9 }",
    ] {
        client.send(message).await;
        let call = chromium.next().await.unwrap();
        assert_eq!(call["method"], "A.b");
        assert_eq!(call["params"], json!({"x": "\0\"}]"}));
        assert_eq!(call["sessionId"], client.root);
        assert_eq!(call.as_object().unwrap().len(), 4);
    }
}

#[tokio::test]
async fn targets_are_filtered_like_those_of_a_websocket() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let client = Client::connect(&multiplexer, &mut chromium).await;
    let exclude = |kind: &str| json!({"type": kind, "exclude": true});
    let default = json!(
        [exclude("browser_ui"), exclude("browser"), exclude("tab"), {
        }]
    );
    for (method, params, filter) in [
        ("getTargets", json!(null), default.clone()),
        ("getTargets", json!({}), default.clone()),
        (
            "setDiscoverTargets",
            json!({"discover": true}),
            default.clone(),
        ),
        (
            "setDiscoverTargets",
            json!({"discover": false}),
            json!(null),
        ),
        (
            "setAutoAttach",
            json!({"autoAttach": true, "flatten": true}),
            default,
        ),
        ("setAutoAttach", json!({"autoAttach": false}), json!(null)),
        (
            "autoAttachRelated",
            json!({"filter": [{"type": "page"}]}),
            json!([exclude("browser_ui"), {"type": "page"}]),
        ),
        ("getTargets", json!({"filter": 7}), json!(7)),
        ("attachToTarget", json!({"targetId": "T"}), json!(null)),
    ] {
        let mut message = json!({"id": 1, "method": format!("Target.{method}"), "params": params});
        if params.is_null() {
            message.as_object_mut().unwrap().remove("params");
        }
        client.send(message.to_string()).await;
        let call = chromium.next().await.unwrap();
        assert_eq!(call["params"]["filter"], filter, "{message}");
        for (name, value) in params
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "filter")
        {
            assert_eq!(call["params"][name], *value, "{message}");
        }
    }
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected_alone() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut slow = Client::connect(&multiplexer, &mut chromium).await;
    let mut other = Client::connect(&multiplexer, &mut chromium).await;
    let text = "x".repeat(1 << 20);
    let event = format!(
        r#"{{"method":"E.e","params":{{"x":"{text}"}},"sessionId":"{}"}}"#,
        slow.root
    );
    let too_slow = slow.receiver.too_slow();
    let mut sent = 0;
    while !too_slow.is_cancelled() {
        chromium.send(&event).await;
        sent += 1;
        assert!(sent < 1000, "the client is still connected");
        other.assert_quiet(&mut chromium).await;
    }
    assert_eq!(slow.end().await, End::TooSlow);
}

#[tokio::test]
async fn long_event_is_dropped_and_long_reply_is_not() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let options = ClientOptions {
        max_event: 1000,
        ..OPTIONS
    };
    let connecting = multiplexer.connect(Endpoint::Browser, options);
    let (connected, root) = tokio::join!(connecting, chromium.accept());
    let (sender, receiver) = connected.unwrap();
    let mut client = Client {
        sender,
        receiver,
        root,
    };
    let text = "x".repeat(1000);
    let event = format!(
        r#"{{"method":"E.e","params":{{"x":"{text}"}},"sessionId":"{}"}}"#,
        client.root
    );
    chromium.send(&event).await;
    client.assert_quiet(&mut chromium).await;
    client.send(r#"{"id":1,"method":"A.b"}"#).await;
    let call = chromium.next().await.unwrap();
    chromium.reply(&call, json!({ "x": text })).await;
    let reply = client.received().await;
    assert_eq!(reply["result"]["x"], text);
}

#[tokio::test]
async fn sender_waits_while_chromium_does_not_read() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let text = "x".repeat(BUDGET / 4);
    let command = json!({"id": 1, "method": "A.b", "params": {"x": text}}).to_string();
    let mut sent = 0;
    // The budget is used up while nothing is read.
    while let Ok(result) = timeout(Duration::from_millis(200), client.sender.send(&command)).await {
        result.unwrap();
        sent += 1;
        assert!(sent < 100, "nothing bounds the commands");
    }
    // Messages that are only answered wait as well.
    let mut rejected = 0;
    while let Ok(result) = timeout(Duration::from_millis(200), client.sender.send("x")).await {
        result.unwrap();
        rejected += 1;
        assert!(rejected < 100_000, "nothing bounds the answers");
    }
    for _ in 0..sent {
        let call = chromium.next().await.unwrap();
        assert_eq!(call["params"]["x"].as_str().map(str::len), Some(text.len()));
        chromium.reply(&call, json!({})).await;
    }
    for _ in 0..sent + rejected {
        client.received().await;
    }
    client.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn long_messages_pass_both_ways() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let text = "x\"\\".repeat(3 << 20);
    let command = json!({"id": 77, "method": "A.b", "params": {"x": text}}).to_string();
    let send = client.sender.send(&command);
    let (sent, call) = tokio::join!(send, chromium.next());
    sent.unwrap();
    let call = call.unwrap();
    assert!(call["params"]["x"] == text.as_str());
    let reply = chromium.reply(&call, json!({ "x": text }));
    let next = client.receiver.next();
    let ((), received) = tokio::join!(reply, next);
    assert!(received.unwrap() == json!({"id": 77, "result": {"x": text}}).to_string());
}

#[tokio::test]
async fn command_that_the_caller_may_not_send_is_refused() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let own = Multiplexer::connect(
        &multiplexer,
        Endpoint::Browser,
        ClientOptions {
            caller: None,
            ..OPTIONS
        },
    );
    let (own, root) = tokio::join!(own, chromium.accept());
    let command =
        json!({"id": 3, "method": "Tethering.bind", "params": {"port": 1}, "sessionId": root});
    client.send(command.to_string()).await;
    let reply = client.received().await;
    assert_eq!(reply["id"], 3);
    assert_eq!(reply["sessionId"], root);
    assert_eq!(reply["error"]["code"], -32000);
    let own = own.unwrap();
    own.0.send(&command.to_string()).await.unwrap();
    assert_eq!(chromium.next().await.unwrap()["method"], "Tethering.bind");
    client.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn connection_that_nobody_receives_is_detached() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut other = Client::connect(&multiplexer, &mut chromium).await;
    let mut connecting = Box::pin(multiplexer.connect(Endpoint::Browser, OPTIONS));
    assert!(futures::poll!(&mut connecting).is_pending());
    chromium.accept().await;
    // The connection is complete, but the future has not returned it.
    other.assert_quiet(&mut chromium).await;
    drop(connecting);
    let detach = chromium.next().await.unwrap();
    assert_eq!(detach["method"], "Target.detachFromTarget");
}

#[tokio::test]
async fn errors_name_the_session_of_the_command() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let child = "F".repeat(32);
    chromium
        .announce("attachedToTarget", &client.root, &child)
        .await;
    client.received().await;
    for params in [
        "1e999".to_owned(),
        format!("{}{}", "[".repeat(301), "]".repeat(301)),
    ] {
        let command =
            format!(r#"{{"id":4,"method":"A.b","params":{{"x":{params}}},"sessionId":"{child}"}}"#);
        client.send(command).await;
        let reply = client.received().await;
        assert_eq!(reply["sessionId"], child.as_str());
        assert_eq!(reply["error"]["code"], INVALID_REQUEST);
    }
    // Chromium's reply is replaced where it is too long to be read.
    client
        .send(json!({"id": 5, "method": "A.b", "sessionId": child}).to_string())
        .await;
    let call = chromium.next().await.unwrap();
    let mut long = value_to_cbor(&json!({"id": call["id"], "result": {}}).to_string());
    long[3] = 0xff;
    chromium.send_bytes(long).await;
    let error = json!({"code": SERVER_ERROR, "message": "the reply is over 256 MiB"});
    assert_eq!(
        client.received().await,
        json!({"id": 5, "error": error, "sessionId": child})
    );
}

#[tokio::test]
async fn invalid_reply_is_replaced_and_invalid_event_dropped() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    // Makes the value of the member `x` an end mark.
    let invalid = |message: Value| {
        let mut message = value_to_cbor(&message.to_string());
        let name = message.windows(3).position(|bytes| bytes == b"\x61x\x60");
        message[name.unwrap() + 2] = 0xff;
        message
    };
    client.send(r#"{"id":1,"method":"A.b"}"#).await;
    let call = chromium.next().await.unwrap();
    let reply = json!({"id": call["id"], "result": {"x": ""}, "sessionId": client.root});
    chromium.send_bytes(invalid(reply)).await;
    let error = json!({"code": SERVER_ERROR, "message": "the reply is invalid"});
    assert_eq!(client.received().await, json!({"id": 1, "error": error}));
    let event = json!({"method": "E.e", "params": {"x": ""}, "sessionId": client.root});
    chromium.send_bytes(invalid(event)).await;
    for message in [r#"{"id":"x"}"#, r#"{"method":1}"#, "[]"] {
        chromium.send(message).await;
    }
    client.assert_quiet(&mut chromium).await;
}

/// Returns a command that carries another one to a session that is not flat.
fn carrier(id: i32, session: &str, message: &Value) -> Value {
    let params = json!({"sessionId": session, "message": message.to_string()});
    json!({"id": id, "method": "Target.sendMessageToTarget", "params": params})
}

/// Returns the message of a session that is not flat.
fn carried(event: &Value, session: &str) -> Value {
    let method = &event["method"];
    assert_eq!(method, "Target.receivedMessageFromTarget", "{event}");
    assert_eq!(event["params"]["sessionId"], session);
    serde_json::from_str(event["params"]["message"].as_str().unwrap()).unwrap()
}

/// Attaches the client to a target, without `flatten`.
async fn attach_not_flat(client: &mut Client, chromium: &mut FakeChromium, session: &str) {
    let params = json!({"targetId": "T"});
    let attach = json!({"id": 1, "method": "Target.attachToTarget", "params": params});
    client.send(attach.to_string()).await;
    let call = chromium.next().await.unwrap();
    chromium
        .announce("attachedToTarget", &client.root, session)
        .await;
    chromium.reply(&call, json!({ "sessionId": session })).await;
    assert_eq!(client.received().await["method"], "Target.attachedToTarget");
    assert_eq!(client.received().await["id"], 1);
}

#[tokio::test]
async fn session_that_is_not_flat_is_carried_by_its_parent() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let page = "A".repeat(32);
    attach_not_flat(&mut client, &mut chromium, &page).await;
    let inner = json!({"id": 7, "method": "A.b", "params": {"x": 1}});
    client.send(carrier(2, &page, &inner).to_string()).await;
    assert_eq!(client.received().await, json!({"id": 2, "result": {}}));
    let call = chromium.next().await.unwrap();
    assert_eq!(call["method"], inner["method"]);
    assert_eq!(call["params"], inner["params"]);
    assert_eq!(call["sessionId"], page.as_str());
    chromium.reply(&call, json!({"y": 2})).await;
    let reply = carried(&client.received().await, &page);
    assert_eq!(reply, json!({"id": 7, "result": {"y": 2}}));
    let event = json!({"method": "E.e", "params": {}, "sessionId": page});
    chromium.send(event.to_string()).await;
    let event = carried(&client.received().await, &page);
    assert_eq!(event, json!({"method": "E.e", "params": {}}));
    // What is no command is rejected in the session. Another session is left to Chromium.
    let invalid = json!({"id": 1.5, "method": "A.b"});
    client.send(carrier(5, &page, &invalid).to_string()).await;
    assert_eq!(client.received().await["id"], 5);
    let error = carried(&client.received().await, &page);
    assert_eq!(error["error"]["code"], INVALID_REQUEST);
    let other = carrier(6, &"B".repeat(32), &inner);
    client.send(other.to_string()).await;
    assert_eq!(chromium.next().await.unwrap()["method"], other["method"]);
}

#[tokio::test]
async fn sessions_that_are_not_flat_nest() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    let (page, worker) = ("A".repeat(32), "B".repeat(32));
    attach_not_flat(&mut client, &mut chromium, &page).await;
    let auto = json!({"id": 8, "method": "Target.setAutoAttach", "params": {"autoAttach": true}});
    client.send(carrier(3, &page, &auto).to_string()).await;
    client.received().await;
    let call = chromium.next().await.unwrap();
    chromium.announce("attachedToTarget", &page, &worker).await;
    chromium.reply(&call, json!({})).await;
    for _ in 0..2 {
        carried(&client.received().await, &page);
    }
    let nested = carrier(9, &worker, &json!({"id": 10, "method": "A.b"}));
    client.send(carrier(4, &page, &nested).to_string()).await;
    assert_eq!(client.received().await["id"], 4);
    assert_eq!(carried(&client.received().await, &page)["id"], 9);
    let call = chromium.next().await.unwrap();
    assert_eq!(call["sessionId"], worker.as_str());
    chromium.reply(&call, json!({})).await;
    let event = carried(&client.received().await, &page);
    assert_eq!(carried(&event, &worker), json!({"id": 10, "result": {}}));
}

#[tokio::test]
async fn ids_and_sessions_are_read_like_chromium_does() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let mut client = Client::connect(&multiplexer, &mut chromium).await;
    for command in [
        r#"{"id":12.0,"method":"A.b","sessionId":""}"#,
        r#"{"id":1.2e1,"method":"A.b"}"#,
    ] {
        client.send(command).await;
        let call = chromium.next().await.unwrap();
        assert_eq!(call["sessionId"], client.root);
        chromium.reply(&call, json!({})).await;
        assert_eq!(client.received().await, json!({"id": 12, "result": {}}));
    }
}

#[test]
fn command_over_100_mib_is_rejected() {
    let command = |length: usize| {
        let text = "x".repeat(length);
        format!(r#"{{"id":1,"method":"A.b","params":{{"x":"{text}"}}}}"#)
    };
    assert!(Command::parse(&command(99 << 20), None).is_ok());
    let reply = Command::parse(&command(100 << 20), None).unwrap_err();
    let reply: Value = serde_json::from_slice(&reply).unwrap();
    let code = &reply["error"]["code"];
    assert_eq!((&reply["id"], code), (&json!(1), &json!(SERVER_ERROR)));
}
