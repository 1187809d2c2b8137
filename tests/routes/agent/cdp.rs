//! `GET /cdp`, `/devtools/browser/{id}`, `/devtools/page/{id}`

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use crate::support::{
    agent::{Start, TestAgent},
    processes,
    scripts::metric,
    wait::until,
    websocket::Client,
};

const CONNECTIONS: usize = 10;
const MESSAGES: usize = 1000;

/// Returns a value that only this call has, from a few bytes to more than any buffer.
fn value(connection: usize, id: usize) -> String {
    let size = if id.is_multiple_of(250) {
        30_000
    } else {
        id % 7 * 200
    };
    format!("{connection}-{id}-{}", "é😀".repeat(size))
}

#[tokio::test]
async fn messages_on_concurrent_connections_are_unchanged() {
    let agent = Start::headless().ready().await;
    let list = agent.ok(agent.get("/json/list")).await;
    let page = list[0]["webSocketDebuggerUrl"].as_str().unwrap();
    let clients = join_all((0..CONNECTIONS).map(async |connection| {
        let mut client = Client::connect(page).await;
        for id in 1..=MESSAGES {
            let value = value(connection, id);
            let params = json!({"expression": format!("{value:?}")});
            let call = json!({"id": id, "method": "Runtime.evaluate", "params": params});
            client.send_text(call.to_string()).await;
            let answer: Value = serde_json::from_str(&client.next_text().await).unwrap();
            // No field more: clients of one tab know no sessions.
            let result = json!({"result": {"type": "string", "value": value}});
            let expected = json!({"id": id, "result": result});
            assert!(
                answer == expected,
                "{connection}-{id}: {:.200}",
                answer.to_string()
            );
        }
    }));
    clients.await;
    agent.stop().await;
}

/// Opens a tab, and attaches to it over a connection to the browser or over one of its own. Returns
/// the connection and the session.
async fn attach_to_own_tab(agent: &TestAgent, as_session: bool) -> (Client, Option<Value>) {
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let params = json!({"url": "about:blank"});
    let created = client.call("Target.createTarget", params).await;
    let tab = &created["result"]["targetId"];
    if as_session {
        let params = json!({"targetId": tab, "flatten": true});
        let mut attached = client.call("Target.attachToTarget", params).await;
        return (client, Some(attached["result"]["sessionId"].take()));
    }
    let path = format!("/devtools/page/{}", tab.as_str().unwrap());
    (Client::connect(&agent.ws_url(&path)).await, None)
}

#[tokio::test]
async fn concurrent_connections_receive_their_own_answers_and_events_in_order() {
    let agent = Start::headless().ready().await;
    let clients = join_all((0..CONNECTIONS).map(async |connection| {
        let (mut client, session) = attach_to_own_tab(&agent, connection.is_multiple_of(2)).await;
        let mut send = async |id: usize, method: &str, params: Value| {
            let mut call = json!({"id": id, "method": method, "params": params});
            if let Some(session) = &session {
                call["sessionId"] = session.clone();
            }
            client.send_text(call.to_string()).await;
        };
        // All are sent before the first answer is read.
        send(1_000_000, "Runtime.enable", json!({})).await;
        for id in 0..MESSAGES {
            let value = value(connection, id);
            let expression = format!("console.log({value:?}); {value:?}");
            send(id, "Runtime.evaluate", json!({"expression": expression})).await;
        }
        let (mut answers, mut events) = (0, 0);
        while (answers, events) != (MESSAGES, MESSAGES) {
            let text = client.next_text().await;
            let message: Value = serde_json::from_str(&text).unwrap();
            let of_session = message.get("sessionId");
            assert_eq!(of_session, session.as_ref(), "{connection}: {text:.200}");
            let found = if message["method"] == "Runtime.consoleAPICalled" {
                events += 1;
                (events - 1, &message["params"]["args"][0]["value"])
            } else if message["id"] == answers {
                answers += 1;
                (answers - 1, &message["result"]["result"]["value"])
            } else {
                let is_other = message["id"] == 1_000_000 || message["id"].is_null();
                assert!(is_other, "{connection}-{answers}: {text:.200}");
                continue;
            };
            let (id, received) = found;
            assert!(
                *received == value(connection, id),
                "{connection}-{id}: {text:.200}"
            );
        }
    }));
    clients.await;
    agent.stop().await;
}

#[tokio::test]
async fn urls_of_json_connect_to_the_browser_and_its_tabs() {
    let agent = Start::headless().ready().await;
    let version = agent.ready().await;
    let mut browser = Client::connect(version["webSocketDebuggerUrl"].as_str().unwrap()).await;
    let answer = browser.call("Browser.getVersion", json!({})).await;
    assert_eq!(answer["result"]["product"], version["Browser"]);
    let list = agent.ok(agent.get("/json/list")).await;
    let mut page = Client::connect(list[0]["webSocketDebuggerUrl"].as_str().unwrap()).await;
    let answer = page
        .call("Runtime.evaluate", json!({"expression": "6*7"}))
        .await;
    assert_eq!(answer["result"]["result"]["value"], 42);
    agent.stop().await;
}

#[tokio::test]
async fn closed_tab_ends_its_connections_as_done() {
    let agent = Start::headless().ready().await;
    let mut browser = Client::connect(&agent.ws_url("/cdp")).await;
    let created = browser
        .call("Target.createTarget", json!({"url": "about:blank"}))
        .await;
    let target = created["result"]["targetId"].as_str().unwrap().to_owned();
    let tab = Client::connect(&agent.ws_url(&format!("/devtools/page/{target}"))).await;
    browser
        .call("Target.closeTarget", json!({"targetId": target}))
        .await;
    let close = tab.closed().await.expect("a Close frame");
    assert_eq!(u16::from(close.code), 1000, "{close:?}");
    agent.stop().await;
}

#[tokio::test]
async fn missing_handshake_is_400_and_unknown_target_is_404() {
    let agent = Start::headless().ready().await;
    for path in ["/cdp", "/devtools/browser/x", "/devtools/page/x"] {
        let (status, body) = agent.answer(agent.get(path)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
    }
    for path in ["/devtools/page/nothing-of-that-id", "/devtools/page/a%2Fb"] {
        match Client::try_connect(&agent.ws_url(path)).await.err() {
            Some(Error::Http(response)) => {
                assert_eq!(response.status(), StatusCode::NOT_FOUND.as_u16(), "{path}")
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn killed_chromium_closes_its_clients_and_is_restarted() {
    let agent = Start::on_screen().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let pid = u32::try_from(agent.chromium_number("pid").await).unwrap();
    processes::signal(pid, Signal::SIGKILL);
    let close = client.closed().await.expect("a Close frame");
    assert_eq!(u16::from(close.code), 4001);
    assert!(close.reason.contains("Chromium"), "{close:?}");
    // A client that connects now is held until the next Chromium answers.
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let status = agent
        .chromium_when("running again", |status| status["state"] == "running")
        .await;
    assert_eq!(status["generation"], 2);
    assert_eq!(status["restarts"], 1);
    agent.stop().await;
}

#[tokio::test]
async fn requested_restart_closes_clients_with_its_reason() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let (_, close) = tokio::join!(agent.ok(agent.post("/chromium/restart")), client.closed());
    let close = close.expect("a Close frame");
    assert_eq!(u16::from(close.code), 4001);
    assert!(close.reason.contains("requested"), "{close:?}");
    agent.stop().await;
}

#[tokio::test]
async fn shutdown_of_the_agent_closes_clients() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let (_, close) = tokio::join!(agent.stop(), client.closed());
    assert_eq!(u16::from(close.expect("a Close frame").code), 1001);
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected_as_too_slow() {
    /// Together more than may wait for a client.
    const REPLIES: usize = 300;
    let agent = Start::headless().ready().await;
    let list = agent.ok(agent.get("/json/list")).await;
    let page = list[0]["webSocketDebuggerUrl"].as_str().unwrap();
    let mut slow = Client::connect_with_small_buffer(page).await;
    let clients = async |count| (metric(&agent, "berth_cdp_clients").await == count).then_some(());
    assert!(clients(1.0).await.is_some());
    for id in 1..=REPLIES {
        let params = json!({"expression": "'x'.repeat(1 << 20)"});
        let call = json!({"id": id, "method": "Runtime.evaluate", "params": params});
        slow.send_text(call.to_string()).await;
    }
    until("the end of the client", async || clients(0.0).await).await;
    let close = loop {
        if let Err(close) = slow.next_message().await {
            break close;
        }
    };
    assert_eq!(close.0, 4008, "{close:?}");
    let mut other = Client::connect(page).await;
    other
        .call("Runtime.evaluate", json!({"expression": "1"}))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn client_over_the_limit_is_429_until_one_disconnects() {
    let agent = Start::headless()
        .with(["--max-cdp-clients", "2"])
        .ready()
        .await;
    let url = agent.ws_url("/cdp");
    let first = Client::connect(&url).await;
    let _second = Client::connect(&url).await;
    match Client::try_connect(&url).await.err() {
        Some(Error::Http(response)) => {
            assert_eq!(response.status().as_u16(), 429);
            assert!(response.headers().contains_key("retry-after"));
        }
        other => panic!("{other:?}"),
    }
    drop(first);
    until("a free slot", async || Client::try_connect(&url).await.ok()).await;
    agent.stop().await;
}

#[tokio::test]
async fn held_client_is_503_when_chromium_does_not_start() {
    let agent = Start::headless()
        .with(["--chromium", "/bin/false", "--cdp-hold-seconds", "1"])
        .listening()
        .await;
    match Client::try_connect(&agent.ws_url("/cdp")).await.err() {
        Some(Error::Http(response)) => {
            assert_eq!(response.status().as_u16(), 503);
            assert!(response.headers().contains_key("retry-after"));
        }
        other => panic!("{other:?}"),
    }
    agent.stop().await;
}
