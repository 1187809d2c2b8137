//! The web console in a browser. The scenarios are programs in `tests/clients/console`.

use tokio::process::Command;

use crate::support::{
    agent::Start,
    dev::Dev,
    python::{clients, output_of},
};

/// Runs a scenario to its end, in the browser of an agent. It fails if one of its checks does.
async fn run(scenario: &str) {
    let dev = Dev::start().await;
    let agent = Start::headless().ready().await;
    // Files of a killed client are removed with the directory.
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new("node");
    command
        .env("TMPDIR", temporary.path())
        .arg(clients().join("console").join(scenario))
        .args([
            agent.ws_url("/cdp"),
            format!("{}/", dev.base_url),
            dev.api_key.clone(),
        ]);
    output_of(&mut command).await;
    assert!(!dev.log().contains(&dev.api_key), "the key is in the log");
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn user_creates_uses_and_deletes_resources() {
    run("work.mjs").await;
}

#[tokio::test]
async fn pools_profiles_and_hosts_are_shown_and_changed() {
    run("pools_and_profiles.mjs").await;
}

#[tokio::test]
async fn keyboard_alone_reaches_everything() {
    run("keyboard.mjs").await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_any_theme_and_width() {
    run("accessibility.mjs").await;
}

#[tokio::test]
async fn ended_and_bound_keys_are_handled() {
    run("sessions.mjs").await;
}
