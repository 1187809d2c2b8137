//! The process that forks client programs for the agent.

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    processes::{children, is_alive, signal, status_field, stop},
    requests::wrong_fields,
    spawned::{exec, exec_shell},
    wait::until,
};

fn fork_servers(agent: &TestAgent) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command == b"berth\0fork-server\0"
    };
    let mut found = children(agent.pid());
    found.retain(is_server);
    found
}

/// Waits: a process that is being executed closes descriptors, by which its parent knows, before it
/// has its command line.
async fn fork_server(agent: &TestAgent) -> u32 {
    until("one fork server", async || match fork_servers(agent)[..] {
        [server] => Some(server),
        _ => None,
    })
    .await
}

async fn until_ended(server: u32) {
    until("the end of the fork server", async || {
        (!is_alive(server)).then_some(())
    })
    .await;
}

/// Runs a program and asserts that it is a child of the agent.
async fn run_program(agent: &TestAgent) {
    let output = exec_shell(agent, "echo $PPID; read line || echo no input").await;
    let expected = format!("{}\nno input\n", agent.pid());
    assert_eq!((output.stdout, output.exit_code), (expected, 0));
}

#[tokio::test]
async fn programs_are_children_of_the_agent_and_have_nothing_of_the_fork_server() {
    let agent = Start::without_browser().listening().await;
    let server = fork_server(&agent).await;
    run_program(&agent).await;
    let own = exec_shell(&agent, "ls /proc/self/fd; ulimit -c").await;
    // The fourth is the directory that `ls` reads.
    assert_eq!(own.stdout, "0\n1\n2\n3\n0\n");
    let status = exec_shell(&agent, "cat /proc/self/status").await.stdout;
    let of_program = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("a field").trim_matches([':', '\t']).to_owned()
    };
    for name in ["SigBlk", "SigIgn", "SigCgt"] {
        assert_eq!(of_program(name), "0000000000000000", "{name}");
    }
    for name in ["Umask", "CapEff", "Groups"] {
        assert_eq!(
            of_program(name).trim(),
            status_field(agent.pid(), name),
            "{name}"
        );
    }
    let (status, answer) = exec(&agent, json!({"command": "/no/such"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(wrong_fields(&answer), ["command"]);
    assert_eq!(fork_server(&agent).await, server);
    agent.stop().await;
    until_ended(server).await;
}

#[tokio::test]
async fn fork_server_that_has_ended_is_replaced() {
    let agent = Start::without_browser().listening().await;
    let server = fork_server(&agent).await;
    signal(server, Signal::SIGKILL);
    until_ended(server).await;
    run_program(&agent).await;
    assert_ne!(fork_server(&agent).await, server);
    agent.stop().await;
}

#[tokio::test]
async fn agent_forks_itself_if_the_fork_server_does_not_answer() {
    let agent = Start::without_browser().listening().await;
    let server = fork_server(&agent).await;
    stop(server).await;
    run_program(&agent).await;
    until_ended(server).await;
    assert!(fork_servers(&agent).is_empty());
    run_program(&agent).await;
    assert_ne!(fork_server(&agent).await, server);
    agent.stop().await;
}

#[tokio::test]
async fn fork_server_ends_with_a_killed_agent() {
    let agent = Start::without_browser().listening().await;
    let server = fork_server(&agent).await;
    let directory = agent.kill().await;
    until_ended(server).await;
    drop(directory);
}
