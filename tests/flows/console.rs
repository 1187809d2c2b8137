//! The web console in a browser. The scenarios are programs in `tests/clients/console`.

use serde_json::json;
use tokio::process::Command;

use crate::support::{
    dev::Dev,
    python::{clients, output_of},
};

/// Runs a scenario to its end, in the browser of another server. Fails if one of its checks does.
async fn run(scenario: &str, options: &[&str]) {
    let dev = Dev::start().await;
    let user = Dev::start().await;
    let browser = user.browser(json!({})).await;
    // Files of a killed client are removed with the directory.
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new("node");
    command
        .env("TMPDIR", temporary.path())
        .arg(clients().join("console").join(scenario))
        .arg(browser["cdp_ws_url"].as_str().unwrap())
        .args([&format!("{}/", dev.base_url), &dev.api_key])
        .args(options);
    output_of(&mut command).await;
    assert!(!dev.log().contains(&dev.api_key), "the key is in the log");
    user.finish().await;
    dev.finish().await;
}

#[tokio::test]
async fn user_creates_uses_and_deletes_resources() {
    run("work.mjs", &[]).await;
}

#[tokio::test]
async fn pools_profiles_and_hosts_are_shown_and_changed() {
    run("pools_and_profiles.mjs", &[]).await;
}

#[tokio::test]
async fn leases_and_saves_of_other_clients_are_shown() {
    run("leases_and_saves.mjs", &[]).await;
}

#[tokio::test]
async fn keyboard_alone_reaches_everything() {
    run("keyboard.mjs", &[]).await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_either_theme() {
    run("accessibility.mjs", &["desktop"]).await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_either_theme_on_a_phone() {
    run("accessibility.mjs", &["phone"]).await;
}

#[tokio::test]
async fn selected_theme_precedes_that_of_the_system() {
    run("themes.mjs", &[]).await;
}

#[tokio::test]
async fn ended_and_bound_keys_are_handled() {
    run("sessions.mjs", &[]).await;
}
