//! Tests that no process inherits the operator's secrets, and that Chromium leaves nothing behind.

use std::{fs, path::Path};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TOKEN, TestAgent},
    dev::Dev,
    processes,
    scripts::result_of,
    spawned::{exec_shell, executed},
    wait::until,
    websocket::Client,
};

/// A variable of the operator.
const VARIABLE: &str = "OPERATOR_SECRET";
const VALUE: &str = "canary-of-the-operator";

/// Asserts that an environment holds no secret.
fn assert_clean(environment: &str, of: &str) {
    for secret in [VALUE, TOKEN, "BERTH_"] {
        assert!(!environment.contains(secret), "{of}: {environment}");
    }
}

fn environment_of(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', "\n")
}

#[tokio::test]
async fn client_programs_and_chromium_find_no_variable_of_the_operator() {
    let agent = Start::on_screen()
        .with_variable(VARIABLE, VALUE)
        .ready()
        .await;
    let line = "tr '\\0' '\\n' < /proc/$PPID/environ";
    let read = exec_shell(&agent, line).await.stdout;
    assert!(read.contains("PATH="), "{read}");
    assert_clean(&read, "the agent, read by a client's program");
    for process in processes::naming(&agent.state_dir()) {
        assert_clean(&environment_of(process.pid), &process.command);
    }
    agent.stop().await;
}

#[tokio::test]
async fn agents_of_control_get_no_variable_of_the_operator() {
    let dev = Dev::start_with_variable(VARIABLE, VALUE).await;
    let url = "about:blank#canary";
    let browser = dev.browser(json!({"start_url": url})).await;
    let id = browser["session_id"].as_str().unwrap();
    let line = format!(
        "cat /proc/$PPID/environ /proc/{}/environ | tr '\\0' '\\n'",
        dev.pid()
    );
    let body = json!({"command": "sh", "args": ["-c", line]});
    let answer = dev
        .post(&format!("/browsers/{id}/process/exec"), body)
        .await;
    let read = executed(&answer.body).stdout;
    assert_eq!(read.matches("\nPATH=").count(), 2, "{read}");
    assert_clean(&read, "the agent and control");
    assert!(!read.contains(url), "{read}");
    dev.finish().await;
}

/// Returns the files below a directory whose name has this end.
fn files_ending_with(directory: &Path, end: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

async fn crash_tab(agent: &TestAgent) {
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let crash = json!({"url": "chrome://crash"});
    client.call("Target.createTarget", crash).await;
}

#[tokio::test]
async fn crash_leaves_no_dump_and_nothing_in_the_home_of_the_operator() {
    let home = TempDir::new().unwrap();
    let start = Start::headless().with_variable("HOME", home.path().to_str().unwrap());
    let agent = start.ready().await;
    crash_tab(&agent).await;
    let dumps = || files_ending_with(&agent.state_dir(), ".dmp");
    until("a dump of the tab", async || {
        (!dumps().is_empty()).then_some(())
    })
    .await;
    let pid = agent.chromium_number("pid").await;
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    agent
        .chromium_when("the second start", |status| status["generation"] == 2)
        .await;
    assert_eq!(dumps(), Vec::<String>::new());
    result_of(&agent, "await page.goto('about:blank'); return 1").await;
    assert_eq!(files_ending_with(home.path(), ""), Vec::<String>::new());
    let directory = agent.stop_keeping().await;
    assert_eq!(
        files_ending_with(directory.path(), ".dmp"),
        Vec::<String>::new()
    );
    assert!(!directory.path().join("state/home/tmp").exists());
}
