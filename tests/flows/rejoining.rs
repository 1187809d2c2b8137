//! Agents that join control again, or may not.

use std::fs;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    dev::Dev,
    fleet_agent::{fleet_control, host_when, joining, ready},
    fleet_host::join_token,
    replays,
    spawned::exec_shell,
    wait::until,
};

const REFUSAL: &str = "this machine cannot join as another host";

/// Waits until the agent has logged a line with `part` more often than `before`.
async fn logs(agent: &TestAgent, part: &str, before: usize) {
    until(part, async || (count(agent, part) > before).then_some(())).await;
}

fn count(agent: &TestAgent, part: &str) -> usize {
    agent.log().matches(part).count()
}

fn generation(agent: &TestAgent) -> String {
    fs::read_to_string(agent.state_dir().join("run/session")).unwrap()
}

fn again_without_browser(directory: TempDir) -> Start {
    TestAgent::again(directory).with(["--headless", "--chromium", "/bin/true"])
}

async fn delete_host(dev: &Dev, host: &Value) {
    let path = format!("/fleet/hosts/{}", host["id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn machine_that_a_session_has_tainted_joins_again_with_a_new_state_directory_only() {
    let dev = fleet_control().await;
    let token = join_token(&dev, json!({"uses": 2})).await;
    let agent = joining(Start::headless(), &dev, &token).listening().await;
    let host = ready(&dev, &agent).await;
    let browser = dev.browser(json!({})).await;
    let exec = format!(
        "/browsers/{}/process/exec",
        browser["session_id"].as_str().unwrap()
    );
    let as_root = nix::unistd::geteuid().is_root();
    let program = json!({"command": "true", "as_root": as_root});
    let done = dev.post(&exec, program).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.body);
    delete_host(&dev, &host).await;
    logs(&agent, REFUSAL, 1).await;

    let before = count(&agent, REFUSAL);
    let start = TestAgent::again(agent.kill().await).with(["--headless"]);
    let agent = joining(start, &dev, &token).listening().await;
    logs(&agent, REFUSAL, before + 1).await;
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    let tokens = dev.get("/fleet/join_tokens").await.body;
    assert_eq!(tokens[0]["remaining_uses"], 1, "{tokens}");
    agent.stop().await;

    let agent = joining(Start::headless(), &dev, &token).listening().await;
    ready(&dev, &agent).await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn machine_whose_session_has_ended_without_a_receipt_does_not_join() {
    let dev = fleet_control().await;
    let token = join_token(&dev, json!({})).await;
    let agent = Start::without_browser().listening().await;
    let end = agent.post("/session/end").json(&json!({"generation": 1}));
    assert_eq!(agent.ok(end).await["clean"], true);
    // As if the agent had been killed while it removed the session.
    fs::create_dir(agent.state_dir().join("sessions/1")).unwrap();
    let start = again_without_browser(agent.kill().await);
    let agent = joining(start, &dev, &token).listening().await;
    logs(&agent, REFUSAL, 0).await;
    assert!(!agent.state_dir().join("sessions/1").exists());
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn taint_of_an_agent_without_control_is_remembered_when_it_joins() {
    let dev = fleet_control().await;
    let token = join_token(&dev, json!({})).await;
    let agent = Start::without_browser().listening().await;
    exec_shell(&agent, "true").await;
    let start = again_without_browser(agent.stop_keeping().await);
    let agent = joining(start, &dev, &token).listening().await;
    logs(&agent, REFUSAL, 0).await;
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn new_identity_has_neither_session_nor_recordings_of_the_state_directory() {
    let dev = fleet_control().await;
    let token = join_token(&dev, json!({})).await;
    let agent = Start::without_browser().listening().await;
    let file = agent.session_dir().join("downloads/planted");
    fs::write(&file, "planted").unwrap();
    let recordings = agent.state_dir().join("replays/1");
    replays::add_finished_in(&recordings, b"recording");
    let directory = agent.stop_keeping().await;
    assert!(file.exists());

    let agent = joining(again_without_browser(directory), &dev, &token);
    let agent = agent.listening().await;
    host_when(&dev, "the host", |_| true).await;
    assert_eq!(generation(&agent), "2");
    assert!(!file.exists() && !recordings.exists());
    agent.stop().await;
    dev.finish().await;
}
