//! `POST /process/{process_id}/stdin` of the agent.

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    spawned::{rest_of, shell, spawn, until_line},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

#[tokio::test]
async fn stdin_is_read_in_order_until_its_end() {
    let agent = agent().await;
    let process = spawn(&agent, json!({"command": "cat"})).await;
    let mut expected = Vec::new();
    for round in 0..5_u8 {
        let data: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_add(round)).collect();
        let data = data.repeat(1000);
        assert_eq!(process.write(&data, false).await, data.len() as u64);
        expected.extend(data);
    }
    assert_eq!(process.write("", true).await, 0);
    let output = process.output().await;
    assert_eq!(output.exit_code, 0);
    assert!(output.stdout == String::from_utf8_lossy(&expected));

    let (status, response) = process.post("stdin", json!({"data_b64": "eA=="})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{response}");
    agent.stop().await;
}

#[tokio::test]
async fn closed_stdin_is_409() {
    let agent = agent().await;
    let process = shell(&agent, "cat; echo eof; exec <&-; exec sleep 1000").await;
    let mut events = process.events().await;
    assert_eq!(process.write("last\n", true).await, 5);
    until_line(&mut events, "eof").await;
    let request = agent
        .post(&format!("/process/{}/stdin", process.id))
        .json(&json!({"data_b64": "eA=="}));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert_eq!(response.headers()["x-should-retry"], "false");
    assert_eq!(process.status().await["state"], "running");
    agent.stop().await;
}

#[tokio::test]
async fn write_to_a_process_that_does_not_read_is_partial() {
    let agent = agent().await;
    let process = shell(&agent, "exec sleep 1000").await;
    let data = vec![b'x'; 1 << 20];
    // The response counts only what fits into the pipe.
    let written = process.write(&data, true).await;
    assert!((1..1 << 20).contains(&written), "{written}");
    assert_eq!(process.write("more", false).await, 0);
    process.kill("KILL").await;
    let (status, _) = process.post("stdin", json!({"data_b64": "eA=="})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    agent.stop().await;
}

#[tokio::test]
async fn end_of_terminal_input_is_control_d() {
    let agent = agent().await;
    let body = json!({"command": "cat", "allocate_tty": true});
    let process = spawn(&agent, body).await;
    assert_eq!(process.write("word\n", true).await, 5);
    let output = rest_of(&mut process.events().await).await;
    assert_eq!(output.stdout, "word\r\nword\r\n");
    assert_eq!(output.exit_code, 0);
    agent.stop().await;
}

#[tokio::test]
async fn end_is_typed_once_a_full_terminal_accepts_input() {
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let go = directory.path().join("go");
    let line = format!(
        "stty -echo; echo ready; until [ -e {} ]; do sleep 0.1; done; wc -l; echo ended",
        go.display()
    );
    let body = json!({"command": "sh", "args": ["-c", line], "allocate_tty": true});
    let process = spawn(&agent, body).await;
    let mut events = process.events().await;
    until_line(&mut events, "ready").await;
    let lines = process.write("\n".repeat(1 << 20), false).await;
    assert!((1..1 << 20).contains(&lines), "{lines}");
    assert_eq!(process.write("", true).await, 0);
    std::fs::write(go, "").unwrap();
    let expected = format!("{lines}\r\nended\r\n");
    assert_eq!(rest_of(&mut events).await.stdout, expected);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_input_is_rejected_and_not_written() {
    let agent = agent().await;
    let process = spawn(&agent, json!({"command": "cat"})).await;
    for body in [
        json!({}),
        json!({"data_b64": null}),
        json!({"data_b64": "?"}),
        json!({"data_b64": "eA"}),
        json!({"data_b64": 1}),
        json!({"data_b64": STANDARD.encode(vec![0; (1 << 20) + 1])}),
    ] {
        let (status, response) = process.post("stdin", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
        assert_eq!(response["details"][0]["code"], "data_b64", "{response}");
    }
    let (status, response) = process
        .post("stdin", json!({"data_b64": "", "end": 1}))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(response["details"][0]["code"], "end");
    process.write("all", true).await;
    assert_eq!(process.output().await.stdout, "all");
    agent.stop().await;
}
