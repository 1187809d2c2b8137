//! `GET /cdp`, `/devtools/browser/{id}`, `/devtools/page/{id}`

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use crate::support::{agent::Start, processes, wait::until, websocket::Client};

#[tokio::test]
async fn messages_on_concurrent_connections_are_unchanged() {
    const CONNECTIONS: usize = 10;
    const MESSAGES: u64 = 1000;
    let agent = Start::headless().ready().await;
    let list = agent.ok(agent.get("/json/list")).await;
    let page = list[0]["webSocketDebuggerUrl"].as_str().unwrap();
    let port_file = agent.state_dir().join("user-data/DevToolsActivePort");
    let port_file = std::fs::read_to_string(port_file).unwrap();
    let (port, _) = port_file.split_once('\n').unwrap();
    let direct_url = format!(
        "ws://127.0.0.1:{port}/devtools/page/{}",
        list[0]["id"].as_str().unwrap()
    );
    let clients = join_all((0..CONNECTIONS).map(async |connection| {
        let mut proxied = Client::connect(page).await;
        let mut direct = Client::connect(&direct_url).await;
        for id in 1..=MESSAGES {
            // From a few bytes to more than any buffer.
            let size = if id % 250 == 0 {
                30_000
            } else {
                usize::try_from(id % 7).unwrap() * 200
            };
            let value = format!("{connection}-{id}-{}", "é😀".repeat(size));
            let call = json!({
                "id": id,
                "method": "Runtime.evaluate",
                "params": {"expression": format!("{value:?}")},
            });
            proxied.send_text(call.to_string()).await;
            let answer = proxied.next_text().await;
            let seen: Value = serde_json::from_str(&answer).unwrap();
            assert!(
                seen["result"]["result"]["value"] == value,
                "{connection}-{id}: {:.200}",
                answer
            );
            if id % 50 == 0 {
                // Equal to Chromium's message byte for byte, not only as JSON.
                direct.send_text(call.to_string()).await;
                assert!(
                    direct.next_text().await == answer,
                    "{connection}-{id} was changed"
                );
            }
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
