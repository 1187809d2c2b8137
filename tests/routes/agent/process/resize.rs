//! `POST /process/{process_id}/resize` of the agent.

use reqwest::StatusCode;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::timeout,
};

use crate::support::{
    agent::{Start, TestAgent},
    spawned::{Spawned, rest_of, shell, spawn, until_line},
    wait::{WAIT_TIMEOUT, in_time},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

async fn terminal<'a>(agent: &'a TestAgent, line: &str) -> Spawned<'a> {
    let body = json!({
        "command": "bash", "args": ["-c", line],
        "allocate_tty": true, "rows": 65_535, "cols": 1,
    });
    spawn(agent, body).await
}

#[tokio::test]
async fn terminal_starts_with_the_requested_size() {
    let agent = agent().await;
    assert_eq!(
        terminal(&agent, "stty size").await.output().await.stdout,
        "65535 1\r\n"
    );
    let plain = json!({"command": "stty", "args": ["size"], "allocate_tty": true});
    assert_eq!(
        spawn(&agent, plain).await.output().await.stdout,
        "24 80\r\n"
    );
    agent.stop().await;
}

#[tokio::test]
async fn resizes_arrive_while_the_program_writes() {
    let agent = agent().await;
    // The sizes are queried over a socket, because the terminal is full of output. The child
    // starts a program for each reply and competes with that output, so a reply may be slow.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let line = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; nice -n 19 yes & \
         while read -u 3 ask; do stty size >&3; done; kill %1"
    );
    let process = terminal(&agent, &line).await;
    let (child, _) = in_time("the connection of the child", listener.accept())
        .await
        .unwrap();
    child.set_nodelay(true).unwrap();
    let (replies, mut queries) = child.into_split();
    let mut replies = BufReader::new(replies).lines();
    for round in 0..1000_u16 {
        let (rows, cols) = (1 + round % 200, 1 + round % 333);
        process.resize(rows, cols).await;
        queries.write_all(b"?\n").await.unwrap();
        let size = timeout(WAIT_TIMEOUT * 5, replies.next_line()).await;
        let size = size.expect("a reply in time").unwrap();
        assert_eq!(size, Some(format!("{rows} {cols}")));
    }
    process.kill("KILL").await;
    let written = process.output().await.stdout.len();
    assert!(written > 1 << 20, "{written}");
    agent.stop().await;
}

#[tokio::test]
async fn resize_requires_a_terminal_and_a_running_process() {
    let agent = agent().await;
    let process = terminal(&agent, "read line; stty size").await;
    for (body, field) in [
        (json!({"rows": 0, "cols": 80}), "rows"),
        (json!({"rows": 65_536, "cols": 80}), "rows"),
        (json!({"rows": 24, "cols": 0}), "cols"),
        (json!({"rows": 24, "cols": 65_536}), "cols"),
        (json!({"rows": 24, "cols": -1}), "cols"),
        (json!({"rows": 24, "cols": 80.5}), "cols"),
        (json!({"rows": 24}), "cols"),
        (json!({"rows": "24", "cols": 80}), "rows"),
    ] {
        let (status, response) = process.post("resize", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
        assert_eq!(response["details"][0]["code"], field, "{response}");
    }
    let without = shell(&agent, "exec sleep 1000").await;
    let (status, _) = without.post("resize", json!({"rows": 1, "cols": 1})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);

    process.write("\n", false).await;
    let output = rest_of(&mut process.events().await).await;
    assert_eq!(output.stdout, "\r\n65535 1\r\n", "the size is unchanged");
    assert_eq!(process.exited().await, 0);
    let (status, response) = process.post("resize", json!({"rows": 1, "cols": 1})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{response}");
    agent.stop().await;
}

#[tokio::test]
async fn foreground_program_gets_sigwinch() {
    let agent = agent().await;
    let line = "trap 'stty size' WINCH; echo ready; while :; do read -t 1; done";
    let process = terminal(&agent, line).await;
    let mut events = process.events().await;
    until_line(&mut events, "ready").await;
    process.resize(33, 44).await;
    until_line(&mut events, "33 44").await;
    process.kill("KILL").await;
    agent.stop().await;
}
