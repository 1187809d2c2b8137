//! `GET /cdp`, `/devtools/browser/{id}`, `/devtools/page/{id}`

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use crate::support::{agent::Start, processes, wait::until, websocket::Client};

#[tokio::test]
async fn a_thousand_messages_each_way_on_ten_connections_arrive_as_sent() {
    const CONNECTIONS: usize = 10;
    const MESSAGES: u64 = 1000;
    let agent = Start::headless().ready().await;
    let list = agent.ok(agent.get("/json/list")).await;
    let page = list[0]["webSocketDebuggerUrl"].as_str().unwrap();
    let port_file = agent.state_dir().join("user-data/DevToolsActivePort");
    let port_file = std::fs::read_to_string(port_file).unwrap();
    let (port, _) = port_file.split_once('\n').unwrap();
    let directly = format!(
        "ws://127.0.0.1:{port}/devtools/page/{}",
        list[0]["id"].as_str().unwrap()
    );
    let clients = join_all((0..CONNECTIONS).map(async |connection| {
        let mut through_us = Client::connect(page).await;
        let mut direct = Client::connect(&directly).await;
        for id in 1..=MESSAGES {
            // From a few bytes to more than any buffer on the way.
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
            through_us.send_text(call.to_string()).await;
            let answer = through_us.next_text().await;
            let seen: Value = serde_json::from_str(&answer).unwrap();
            assert!(
                seen["result"]["result"]["value"] == value,
                "{connection}-{id}: {:.200}",
                answer
            );
            if id % 50 == 0 {
                // Not only equal as JSON: byte for byte what Chromium writes.
                direct.send_text(call.to_string()).await;
                assert!(
                    direct.next_text().await == answer,
                    "{connection}-{id} was changed on its way"
                );
            }
        }
    }));
    clients.await;
    agent.stop().await;
}

#[tokio::test]
async fn the_paths_of_json_lead_to_the_browser_and_its_tabs() {
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
async fn what_is_no_handshake_or_no_target_is_refused() {
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
async fn a_killed_chromium_is_told_to_its_clients_and_comes_back() {
    let agent = Start::on_screen().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let pid = u32::try_from(agent.chromium_number("pid").await).unwrap();
    processes::signal(pid, Signal::SIGKILL);
    let close = client.closed().await.expect("a Close frame");
    assert_eq!(u16::from(close.code), 1012);
    assert!(close.reason.contains("Chromium"), "{close:?}");
    // A client that comes now is held until the next one answers.
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
async fn a_restart_on_demand_is_told_before_chromium_goes() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let (_, close) = tokio::join!(agent.ok(agent.post("/chromium/restart")), client.closed());
    let close = close.expect("a Close frame");
    assert_eq!(u16::from(close.code), 1012);
    assert!(close.reason.contains("asked for"), "{close:?}");
    agent.stop().await;
}

#[tokio::test]
async fn the_end_of_the_agent_is_told() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    client.call("Browser.getVersion", json!({})).await;
    let (_, close) = tokio::join!(agent.stop(), client.closed());
    assert_eq!(u16::from(close.expect("a Close frame").code), 1001);
}

#[tokio::test]
async fn clients_over_the_limit_are_refused_until_one_leaves() {
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
    until("a free place", async || {
        Client::try_connect(&url).await.ok()
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_held_client_is_refused_when_chromium_stays_away() {
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
