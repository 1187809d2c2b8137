//! `GET /process/{process_id}/stdout/stream` of the agent.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    spawned::{Output, Spawned, decode, rest_of, shell, spawn, until_line},
    wait::until,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

/// Returns the exit, which must be the last event.
async fn exit_of(process: &Spawned<'_>) -> Value {
    let (mut events, mut last) = (process.events().await, Value::Null);
    while let Some((_, event)) = events.next().await {
        last = event;
    }
    assert_eq!(last["event"], "exit");
    last
}

#[tokio::test]
async fn reader_resumes_after_the_last_event_id() {
    let agent = agent().await;
    let process = shell(&agent, "echo one; read a; echo $a; read b; echo $b").await;
    let mut events = process.events().await;
    until_line(&mut events, "one").await;
    process.write("two\n", false).await;
    let (id, event) = events.next().await.unwrap();
    assert_eq!(decode(&event), b"two\n");
    drop(events);
    process.write("three\n", false).await;
    let expected = Output {
        stdout: "three\n".into(),
        stderr: String::new(),
        exit_code: 0,
    };
    assert_eq!(rest_of(&mut process.events_after(id).await).await, expected);
    let all = process.output().await;
    assert_eq!(all.stdout, "one\ntwo\nthree\n");
    // A reader that has read the exit must not reconnect.
    let mut events = process.events().await;
    let mut last = 0;
    while let Some((id, _)) = events.next().await {
        last = id;
    }
    let stream = agent.get(&format!("/process/{}/stdout/stream", process.id));
    let again = stream.header("Last-Event-ID", last).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NO_CONTENT);

    let path = format!("/process/{}/stdout/stream", process.id);
    let request = agent.get(&path).header("Last-Event-ID", "x");
    assert_eq!(agent.answer(request).await.0, StatusCode::BAD_REQUEST);
    agent.stop().await;
}

#[tokio::test]
async fn unread_process_is_not_slowed_down_and_its_tail_is_retained() {
    const BYTES: u64 = 1 << 30;
    let agent = agent().await;
    let line = format!("head -c {BYTES} /dev/zero; echo the end");
    let process = shell(&agent, &line).await;
    assert_eq!(process.exited().await, 0);
    let mut events = process.events().await;
    let (mut bytes, mut tail) = (0, Vec::new());
    loop {
        let (_, event) = events.next().await.expect("an exit");
        if event["event"] == "exit" {
            break;
        }
        assert_eq!(
            event["stream"], "stdout",
            "a late reader gets no overflow event"
        );
        tail = decode(&event);
        bytes += tail.len();
    }
    assert!(tail.ends_with(b"the end\n"));
    // The retained size is close to its limit.
    assert!((3 << 20..=4 << 20).contains(&bytes), "{bytes}");
    agent.stop().await;
}

#[tokio::test]
async fn readers_that_start_at_different_times_get_all_retained_output() {
    let agent = agent().await;
    // The total of 2 MB is below the retention limit.
    let line = "for i in 1 2 3 4 5 6 7 8 9 10; do read go; seq $i 30000; done; exit 7";
    let process = shell(&agent, line).await;
    // A reader that reads nothing must not block the others.
    let stopped = agent
        .get(&format!("/process/{}/stdout/stream", process.id))
        .send()
        .await
        .unwrap();
    let mut readers = Vec::new();
    for _ in 0..10 {
        let mut events = process.events().await;
        readers.push(tokio::spawn(async move { rest_of(&mut events).await }));
        process.write("go\n", false).await;
    }
    let mut expected = String::new();
    for from in 1..=10 {
        for number in from..=30_000 {
            expected.push_str(&format!("{number}\n"));
        }
    }
    for reader in readers {
        let output = reader.await.unwrap();
        assert!(output.stdout == expected, "{} bytes", output.stdout.len());
        assert_eq!(output.exit_code, 7);
    }
    drop(stopped);
    agent.stop().await;
}

#[tokio::test]
async fn slow_reader_gets_an_overflow_event_and_does_not_block_the_process() {
    let agent = Start::without_browser()
        .with(["--process-output-mb", "1"])
        .listening()
        .await;
    let process = shell(&agent, "echo started; read go; head -c 100000000 /dev/zero").await;
    let mut slow = process.events().await;
    until_line(&mut slow, "started").await;
    process.write("go\n", false).await;
    assert_eq!(process.exited().await, 0);
    let (mut missed, mut exit) = (0, None);
    while let Some((_, event)) = slow.next().await {
        match event["event"].as_str() {
            Some("overflow") => missed += event["missed"].as_u64().unwrap(),
            Some("exit") => exit = event["exit_code"].as_i64(),
            _ => {}
        }
    }
    assert!(missed > 0);
    assert_eq!(exit, Some(0));
    agent.stop().await;
}

#[tokio::test]
async fn exit_is_the_last_event_and_does_not_wait_for_background_processes() {
    let agent = agent().await;
    let process = shell(&agent, "(sleep 1000; echo late) & echo early; exit 4").await;
    let output = process.output().await;
    assert_eq!((output.stdout.as_str(), output.exit_code), ("early\n", 4));
    assert_eq!(process.exited().await, 4);
    assert_eq!(exit_of(&process).await["output_open"], true);
    let alone = shell(&agent, "echo early; exit 4").await;
    assert_eq!(exit_of(&alone).await.get("output_open"), None);
    // The background process still belongs to the process.
    process.kill("KILL").await;
    until("no process to be left", async || {
        let status = process.status().await;
        (status["mem_bytes"] == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn tail_of_the_output_is_never_lost() {
    let agent = agent().await;
    for round in 0..20 {
        let tty = round % 2 == 0;
        let body = json!({"command": "seq", "args": ["20000"], "allocate_tty": tty});
        let output = spawn(&agent, body).await.output().await;
        assert_eq!(output.stdout.lines().count(), 20_000);
        assert_eq!(output.stdout.lines().last(), Some("20000"));
    }
    agent.stop().await;
}

#[tokio::test]
async fn unknown_process_id_is_404() {
    let agent = agent().await;
    let process = shell(&agent, "sleep 1000").await;
    let other = uuid::Uuid::new_v4().to_string();
    for id in [other.as_str(), "x", "0", "%00"] {
        for (method, action, body) in [
            (Method::GET, "status", json!({})),
            (Method::GET, "stdout/stream", json!({})),
            (Method::GET, "attach", json!({})),
            (Method::POST, "stdin", json!({"data_b64": "eA=="})),
            (Method::POST, "kill", json!({"signal": "KILL"})),
            (Method::POST, "resize", json!({"rows": 1, "cols": 1})),
        ] {
            let request = agent
                .request(method, &format!("/process/{id}/{action}"))
                .json(&body);
            let (status, response) = agent.answer(request).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{action}: {response}");
        }
    }
    assert_eq!(process.status().await["state"], "running");
    agent.stop().await;
}

#[tokio::test]
async fn stream_ends_when_the_agent_stops() {
    let agent = agent().await;
    let process = shell(&agent, "exec sleep 1000").await;
    let mut events = process.events().await;
    agent.stop().await;
    while events.next().await.is_some() {}
}
