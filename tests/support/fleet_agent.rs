//! Real agents that register themselves as hosts.

use std::fs;

use berth::system::identity::Authority;
use chrono::Utc;
use rustls::ClientConfig;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{
    agent::{Start, TestAgent},
    dev::{Dev, State},
    fleet_host::join_token,
    wait::until,
};

const JOIN_TOKEN: &str = "BERTH_AGENT_JOIN_TOKEN";

/// The options of control with sessions on registered hosts, which report every second.
pub const FLEET: [&str; 6] = [
    "--fleet",
    "registered",
    "--agents",
    "0",
    "--heartbeat-seconds",
    "1",
];

/// Returns the TLS settings of control itself.
pub fn control_tls(dev: &Dev) -> ClientConfig {
    let authority = fs::read_to_string(dev.state_dir().join("fleet-ca.pem")).unwrap();
    let authority = Authority::from_pem(&SecretString::from(authority)).unwrap();
    authority.client_config(Utc::now()).unwrap()
}

/// Returns the variables of a further control process of the fleet.
pub fn control_variables(dev: &Dev) -> Vec<(&'static str, String)> {
    let file = |name: &str| dev.state_dir().join(name).display().to_string();
    vec![
        ("BERTH_FLEET_CA_FILE", file("fleet-ca.pem")),
        ("BERTH_SESSION_SECRET_FILE", file("session-secret")),
        ("BERTH_SECRETS_KEY_FILE", file("secrets-key")),
    ]
}

/// Makes an agent register itself with a join token.
pub fn joining(start: Start, dev: &Dev, token: &str) -> Start {
    start
        .without_token()
        .with(["--control-url", &dev.base_url])
        .with_variable(JOIN_TOKEN, token)
}

/// Waits until a registered host fulfils a condition, and returns it.
pub async fn host_when(dev: &Dev, description: &str, condition: impl Fn(&Value) -> bool) -> Value {
    until(description, async || {
        let listed = dev.get("/fleet/hosts").await.body;
        let mut hosts = listed.as_array().unwrap().iter();
        hosts.find(|host| condition(host)).cloned()
    })
    .await
}

/// Waits until the agent is registered and its browser responds.
pub async fn ready(dev: &Dev, agent: &TestAgent) -> Value {
    let address = agent.base_url.trim_start_matches("https://").to_owned();
    let is_ready = |host: &Value| host["address"] == address && host["state"] == "ready";
    host_when(dev, "a ready host", is_ready).await
}

/// Waits until the host is in the state.
pub async fn host_is(dev: &Dev, host: &Value, state: &str) -> Value {
    let id = &host["id"];
    host_when(dev, state, |host| {
        host["id"] == *id && host["state"] == state
    })
    .await
}

/// Starts control with sessions on registered hosts, which report every second.
pub async fn fleet_control() -> Dev {
    fleet_control_in(State::new(), &[]).await
}

pub async fn fleet_control_in(state: State, options: &[&str]) -> Dev {
    Dev::start_in(state, &[&FLEET[..], options].concat()).await
}

/// Starts control again at the same address after [`Dev::crash`] or [`Dev::finish`].
pub async fn fleet_control_again(state: State, base_url: &str) -> Dev {
    let address = base_url.trim_start_matches("http://");
    fleet_control_in(state, &["--listen", address]).await
}

/// Starts a headless agent that joins the fleet, and waits until its host is ready.
pub async fn join(dev: &Dev, start: Start) -> (TestAgent, Value) {
    let token = join_token(dev, json!({})).await;
    let agent = joining(start, dev, &token).listening().await;
    let host = ready(dev, &agent).await;
    (agent, host)
}

/// Waits until the browser has ended, without using it.
pub async fn browser_ends(dev: &Dev, browser: &Value) {
    until("the end of the browser", async || {
        let active = dev.get("/browsers").await.body;
        let mut active = active.as_array().unwrap().iter();
        let is_active = active.any(|found| found["session_id"] == browser["session_id"]);
        (!is_active).then_some(())
    })
    .await;
}
