//! Client processes in cgroups. Systems that allow none need `BERTH_TEST_CGROUPS=skip`.

use std::{collections::HashSet, fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    cgroups::directory_of,
    events::Events,
    processes::is_alive,
    spawned::{Spawned, decode, exec, executed, shell, spawn},
    wait::until,
};

/// Starts a daemon that no scan of `/proc` can attribute to its process: it has a session of its
/// own, no parents and an empty environment. It prints its pid, and `ready` once it is orphaned.
const START_DAEMON: &str = "setsid -f env -i sh -c 'echo $$; exec sleep 1000'; echo ready";

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

/// Reads the pid of the daemon from the output.
async fn daemon_pid(events: &mut Events) -> u32 {
    let mut text = String::new();
    while text.lines().count() < 2 || !text.contains("ready\n") {
        let (_, event) = events.next().await.expect("more output");
        text.push_str(&String::from_utf8_lossy(&decode(&event)));
    }
    let pid = text.lines().find_map(|line| line.parse().ok());
    pid.unwrap_or_else(|| panic!("no pid in {text}"))
}

async fn process_with_daemon(agent: &TestAgent) -> (Spawned<'_>, u32) {
    let process = shell(agent, &format!("{START_DAEMON}; exec sleep 1001")).await;
    let daemon = daemon_pid(&mut process.events().await).await;
    assert!(is_alive(daemon));
    (process, daemon)
}

/// Returns the number of the cgroup that a file like `/proc/<pid>/cgroup` names, below that of the
/// run.
fn number_of(cgroups: &str, run: &Path) -> String {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    let (parent, number) = path.and_then(|path| path.rsplit_once('/')).unwrap();
    assert_eq!(Path::new(parent).file_name(), run.file_name(), "{cgroups}");
    number.to_owned()
}

async fn until_removed(path: &Path) {
    until("the removal of the cgroup", async || {
        (!path.exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn process_starts_in_its_own_cgroup() {
    let agent = agent().await;
    let Some(directory) = directory_of(&agent) else {
        return agent.stop().await;
    };
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut numbers = HashSet::new();
    for body in [
        json!({}),
        json!({"allocate_tty": true}),
        json!({"as_user": "nobody"}),
    ] {
        let mut launch = json!({"command": "sh", "args": ["-c", "cat /proc/self/cgroup"]});
        launch
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let process = spawn(&agent, launch).await;
        let number = number_of(&process.output().await.stdout, &directory);
        until_removed(&directory.join(&number)).await;
        assert!(numbers.insert(number), "each has one of its own");
    }
    agent.stop().await;
    assert!(!directory.exists());
}

#[tokio::test]
async fn kill_ends_a_daemon_that_cleared_its_environment() {
    let agent = agent().await;
    let Some(directory) = directory_of(&agent) else {
        return agent.stop().await;
    };
    let (process, daemon) = process_with_daemon(&agent).await;
    let cgroups = fs::read_to_string(format!("/proc/{daemon}/cgroup")).unwrap();
    process.kill("KILL").await;
    assert!(!is_alive(daemon), "the response comes after its end");
    until_removed(&directory.join(number_of(&cgroups, &directory))).await;
    agent.stop().await;
}

#[tokio::test]
async fn term_reaches_a_daemon_that_cleared_its_environment() {
    let agent = agent().await;
    if directory_of(&agent).is_none() {
        return agent.stop().await;
    }
    let (process, daemon) = process_with_daemon(&agent).await;
    process.kill("TERM").await;
    until("the daemon to end", async || {
        (!is_alive(daemon)).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn exec_ends_a_daemon_that_cleared_its_environment() {
    let agent = agent().await;
    let Some(directory) = directory_of(&agent) else {
        return agent.stop().await;
    };
    let line = format!("cat /proc/self/cgroup; {START_DAEMON}; exit 6");
    let (_, response) = exec(&agent, json!({"command": "sh", "args": ["-c", line]})).await;
    let output = executed(&response);
    assert_eq!(output.exit_code, 6);
    assert_eq!(response["output_open"], false, "{response}");
    let daemon = output.stdout.lines().find_map(|line| line.parse().ok());
    assert!(!is_alive(daemon.expect("the pid of the daemon")));
    until_removed(&directory.join(number_of(&output.stdout, &directory))).await;
    agent.stop().await;
}

#[tokio::test]
async fn daemon_outlives_its_process_and_ends_with_the_agent() {
    let agent = agent().await;
    let Some(directory) = directory_of(&agent) else {
        return agent.stop().await;
    };
    let process = shell(&agent, &format!("{START_DAEMON}; exit 0")).await;
    let daemon = daemon_pid(&mut process.events().await).await;
    assert_eq!(process.exited().await, 0);
    assert!(is_alive(daemon));
    agent.stop().await;
    assert!(!is_alive(daemon));
    assert!(!directory.exists());
}

#[tokio::test]
async fn daemon_of_a_killed_agent_ends_at_the_next_start() {
    let agent = agent().await;
    let Some(directory) = directory_of(&agent) else {
        return agent.stop().await;
    };
    let (_, daemon) = process_with_daemon(&agent).await;
    let state_dir = agent.kill().await;
    let agent = TestAgent::again(state_dir)
        .with(["--headless", "--chromium", "/bin/true"])
        .listening()
        .await;
    assert!(!is_alive(daemon));
    assert!(!directory.exists());
    assert_ne!(directory_of(&agent), Some(directory));
    agent.stop().await;
}
