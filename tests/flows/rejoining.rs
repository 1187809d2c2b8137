//! Agents that join control again, or may not.

use std::fs;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::support::{
    agent::{Start, TestAgent},
    dev::Dev,
    fleet_agent::{fleet_control, host_when, join, joining, ready},
    fleet_host::join_token,
    replays,
    spawned::exec_shell,
    wait::until,
};

const REFUSAL: &str = "this machine cannot join as another host";
/// The response of a proxy, which is not in the API's format.
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\
    connection: close\r\n\r\n";

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
async fn taint_of_an_agent_without_control_is_known_when_it_joins() {
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

#[tokio::test]
async fn unauthorized_response_of_a_proxy_ends_no_session() {
    let dev = fleet_control().await;
    let token = join_token(&dev, json!({"uses": 2})).await;
    let proxy = Proxy::start(&dev).await;
    let through_proxy = |start: Start| {
        let start = start
            .with(["--control-url", &proxy.base_url])
            .without_token();
        start.with_variable("BERTH_AGENT_JOIN_TOKEN", &token)
    };
    let agent = through_proxy(Start::without_browser()).listening().await;
    let host = host_when(&dev, "the host", |_| true).await;
    // Not only control knows that.
    logs(&agent, "registered at control", 0).await;
    proxy.refuse(true);
    let refused = "cannot send a heartbeat: control responded 401";
    logs(&agent, refused, 1).await;
    assert_eq!(generation(&agent), "1");

    let start = again_without_browser(agent.kill().await);
    let agent = through_proxy(start).listening().await;
    let refused = "cannot register at control: control responded 401";
    logs(&agent, refused, 1).await;
    proxy.refuse(false);
    let registered = format!(
        "registered at control host={}",
        host["id"].as_str().unwrap()
    );
    logs(&agent, &registered, 1).await;
    assert_eq!(generation(&agent), "1");
    assert_eq!(
        dev.get("/fleet/join_tokens").await.body[0]["remaining_uses"],
        1
    );
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn agent_of_a_deleted_host_ends_its_session_and_joins_again() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let token = join_token(&dev, json!({})).await;
    let start = TestAgent::again(agent.kill().await).with(["--headless"]);
    delete_host(&dev, &host).await;
    let agent = joining(start, &dev, &token).listening().await;
    let other = ready(&dev, &agent).await;
    assert_ne!(other["id"], host["id"]);
    assert_eq!(other["generation"], 2);
    agent.stop().await;
    dev.finish().await;
}

/// A proxy between an agent and control, which can refuse all requests.
struct Proxy {
    base_url: String,
    refuses: watch::Sender<bool>,
}

impl Proxy {
    async fn start(dev: &Dev) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let control = dev.base_url.trim_start_matches("http://").to_owned();
        let (refuses, receiver) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(client, control.clone(), receiver.clone()));
            }
        });
        Proxy { base_url, refuses }
    }

    /// Refuses requests from now on, or forwards them. Closes all connections.
    fn refuse(&self, refuse: bool) {
        self.refuses.send(refuse).unwrap();
    }
}

async fn serve(mut client: TcpStream, control: String, mut refuses: watch::Receiver<bool>) {
    if *refuses.borrow_and_update() {
        // The request fits into one segment.
        let _ = client.read(&mut [0; 1 << 16]).await;
        let _ = client.write_all(UNAUTHORIZED).await;
        return;
    }
    let mut upstream = TcpStream::connect(control).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut upstream) => {}
        _ = refuses.changed() => {}
    }
}
