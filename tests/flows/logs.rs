//! Logs of a browser's host, through the control plane.

use std::{fs::OpenOptions, io::Write};

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{dev::Dev, events::Events};

#[tokio::test]
async fn log_is_followed_through_control() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let route = |query: &str| {
        let id = browser["session_id"].as_str().unwrap();
        format!("/browsers/{id}/logs/stream?{query}")
    };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    let query = route(&format!("source=path&path={}", path.display()));
    let mut events = Events::open(dev.request(Method::GET, &query)).await;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .unwrap();
    for n in 0..10 {
        writeln!(file, "line {n}").unwrap();
        let (_, event) = events.next().await.expect("an event");
        assert_eq!(event["event"], "log");
        assert_eq!(event["message"], format!("line {n}"));
    }

    let query = route("source=supervisor&supervisor_process=agent&follow=false");
    let mut agent_log = Events::open(dev.request(Method::GET, &query)).await;
    let mut lines = Vec::new();
    while let Some((_, event)) = agent_log.next().await {
        lines.push(event);
    }
    let is_ready_message = |line: &&serde_json::Value| {
        let message = line["message"].as_str().unwrap();
        message.contains("Chromium is ready")
    };
    assert_eq!(
        lines.iter().filter(is_ready_message).count(),
        1,
        "{lines:#?}"
    );
    assert_eq!(lines.last().unwrap()["event"], "end");

    let response = dev
        .get(&route("source=supervisor&supervisor_process=x&path=/y"))
        .await;
    response.assert_error(400, "bad_request");
    assert_eq!(response.bad_fields(), ["path", "supervisor_process"]);

    // The stream ends when the browser is deleted.
    let id = browser["session_id"].as_str().unwrap();
    dev.delete(&format!("/browsers/{id}")).await;
    while events.next().await.is_some() {}
    dev.finish().await;
}
