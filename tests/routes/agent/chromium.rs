//! `GET /chromium`, `POST /chromium/restart`, `PUT /chromium/start_url`

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{agent::Start, wait::until, websocket::Client};

#[tokio::test]
async fn restart_starts_a_new_chromium_and_updates_the_status() {
    let agent = Start::headless().ready().await;
    let before = agent.ok(agent.get("/chromium")).await;
    assert_eq!(before["state"], "running");
    assert_eq!(
        (&before["restarts"], &before["generation"]),
        (&json!(0), &json!(1))
    );
    assert!(before["version"].as_str().unwrap().starts_with("Chrome/"));
    let after = agent.ok(agent.post("/chromium/restart")).await;
    // Only restarts after an unexpected end count.
    assert_eq!(
        (&after["restarts"], &after["generation"]),
        (&json!(0), &json!(2))
    );
    assert_ne!(after["pid"], before["pid"]);
    let metrics = agent.ok(agent.get("/metrics")).await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("berth_chromium_up 1"), "{metrics}");
    assert!(
        metrics.contains("berth_chromium_restarts_total 0"),
        "{metrics}"
    );
    agent.stop().await;
}

#[tokio::test]
async fn restart_keeps_the_profile() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let cookie = json!({"name": "kept", "value": "1", "url": "https://example.com/", "expires": 4_102_444_800_u64});
    let set = client
        .call("Storage.setCookies", json!({"cookies": [cookie]}))
        .await;
    assert!(set["error"].is_null(), "{set}");
    agent.ok(agent.post("/chromium/restart")).await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let answer = client.call("Storage.getCookies", json!({})).await;
    assert_eq!(answer["result"]["cookies"][0]["name"], "kept", "{answer}");
    agent.stop().await;
}

#[tokio::test]
async fn new_browser_has_one_tab_and_no_other_targets() {
    let agent = Start::on_screen().ready().await;
    let list = agent.ok(agent.get("/json/list")).await;
    let kinds: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|target| target["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["page"], "{list}");
    agent.stop().await;
}

#[tokio::test]
async fn start_page_opens_at_once_and_after_a_restart() {
    const PAGE: &str = "data:text/html,<title>start</title>";
    let agent = Start::headless().ready().await;
    agent
        .ok(agent.put("/chromium/start_url").json(&json!({"url": PAGE})))
        .await;
    let opened = async || {
        let list = agent.ok(agent.get("/json/list")).await;
        list.as_array()
            .unwrap()
            .iter()
            .any(|target| target["url"] == PAGE)
            .then_some(())
    };
    until("the start page", opened).await;
    agent.ok(agent.post("/chromium/restart")).await;
    until("the start page after a restart", opened).await;
    agent.stop().await;
}

#[tokio::test]
async fn invalid_start_url_is_400() {
    let agent = Start::without_browser().listening().await;
    let long = format!("data:,{}", "x".repeat(64 * 1024));
    for (body, field) in [
        (json!({}), "url"),
        (json!({"url": 1}), "url"),
        (json!({"url": ""}), "url"),
        (json!({"url": "example.com"}), "url"),
        (json!({"url": "javascript:alert(1)"}), "url"),
        (json!({"url": "chrome://settings"}), "url"),
        (json!({"url": long}), "url"),
        (json!([]), "body"),
    ] {
        let (status, answer) = agent
            .answer(agent.put("/chromium/start_url").json(&body))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(answer["details"][0]["code"], field, "{body}: {answer}");
    }
    agent.stop().await;
}
