//! Logs of a browser's host, through the control plane, and of the control plane itself.

use std::{
    fs::{self, OpenOptions},
    io::{self, PipeWriter, Write},
    net::SocketAddr,
    process::Stdio,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::support::{
    agent::Start,
    dev::{Answer, Dev, berth},
    events::Events,
    wait::{in_time, until},
};

/// Sends the same request `count` times on one connection, and reads the statuses of the responses.
async fn send_pipelined(dev: &Dev, head: &str, count: usize) -> Vec<String> {
    let address: SocketAddr = dev.base_url["http://".len()..].parse().unwrap();
    let (from_server, mut to_server) = TcpStream::connect(address).await.unwrap().into_split();
    let requests = head.repeat(count);
    let sending = tokio::spawn(async move {
        to_server.write_all(requests.as_bytes()).await.unwrap();
        // Still open: the server closes a connection whose client has closed its side.
        to_server
    });
    let mut lines = BufReader::new(from_server).lines();
    let mut statuses = Vec::new();
    while statuses.len() < count {
        let line = lines.next_line().await.unwrap().expect("a response");
        // A body without a line break is followed by the next status line.
        if let Some((_, status)) = line.split_once("HTTP/1.1 ") {
            statuses.push(status[..3].to_owned());
        }
    }
    drop(sending.await.unwrap());
    statuses
}

/// Returns the value of a counter without labels.
async fn counter(dev: &Dev, name: &str) -> u64 {
    let response = dev.request(Method::GET, "/metrics").send().await.unwrap();
    let metrics = response.text().await.unwrap();
    let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name));
    values
        .next()
        .map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn unread_standard_error_does_not_stop_the_server() {
    let (dev, _unread) = Dev::with_unread_stderr().await;
    let head = format!(
        "GET /browsers?limit=x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        dev.api_key
    );
    // More than the pipe and the queue have room for.
    let statuses = in_time("the responses", send_pipelined(&dev, &head, 8000)).await;
    assert!(statuses.iter().all(|status| status == "400"));
    until("the dropped lines in the metrics", async || {
        (counter(&dev, "berth_log_lines_dropped_total").await > 1000).then_some(())
    })
    .await;
    in_time("the end", dev.finish()).await;
}

#[tokio::test]
async fn error_at_the_start_does_not_wait_for_standard_error_to_be_read() {
    let (_unread, writer) = io::pipe().unwrap();
    fill(&writer);
    let mut command = berth(&["control", "--public-url", "ftp://host"]);
    command.stderr(Stdio::from(writer));
    let status = tokio::process::Command::from(command).status();
    let status = in_time("the exit", status).await.unwrap();
    assert_eq!(status.code(), Some(1));
}

/// Writes to a pipe until there is no room.
fn fill(mut pipe: &PipeWriter) {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while pipe.write(&[b'x'; 512]).is_ok() {}
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
}

#[tokio::test]
async fn requests_without_a_key_log_a_bounded_number_of_lines() {
    const COUNT: usize = 5000;
    let dev = Dev::start().await;
    let method = Method::from_bytes(&[b'M'; 60_000]).unwrap();
    Answer::of(dev.request(method, "/browsers"))
        .await
        .assert_error(405, "method_not_allowed");
    let head = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let statuses = in_time("the responses", send_pipelined(&dev, head, COUNT)).await;
    assert!(statuses.iter().all(|status| status == "404"));
    let suppressed = counter(&dev, "berth_log_lines_suppressed_total").await;
    dev.get("/browsers").await;
    let log = until("the last line", async || {
        let log = dev.log();
        log.contains("status=200").then_some(log)
    })
    .await;
    assert!(log.len() < 100_000, "{} bytes of log", log.len());
    assert!(!log.contains("MMMM"));
    let logged = log.matches("status=404").count();
    assert_eq!(suppressed as usize + logged, COUNT);
    dev.finish().await;
}

#[tokio::test]
async fn log_is_followed_through_control() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let route = |query: &str| {
        let id = browser["session_id"].as_str().unwrap();
        format!("/browsers/{id}/logs/stream?{query}")
    };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    let query = route(&format!("source=path&path={}", path.display()));
    let mut events = Events::open(dev.request(Method::GET, &query)).await;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .unwrap();
    for n in 0..10 {
        writeln!(file, "line {n}").unwrap();
        let (_, event) = events.next().await.expect("an event");
        assert_eq!(event["event"], "log");
        assert_eq!(event["message"], format!("line {n}"));
    }

    let query = route("source=supervisor&supervisor_process=agent&follow=false");
    let mut agent_log = Events::open(dev.request(Method::GET, &query)).await;
    let mut lines = Vec::new();
    while let Some((_, event)) = agent_log.next().await {
        lines.push(event);
    }
    let is_ready_message = |line: &&serde_json::Value| {
        let message = line["message"].as_str().unwrap();
        message.contains("Chromium is ready")
    };
    assert_eq!(
        lines.iter().filter(is_ready_message).count(),
        1,
        "{lines:#?}"
    );
    assert_eq!(lines.last().unwrap()["event"], "end");

    let response = dev
        .get(&route("source=supervisor&supervisor_process=x&path=/y"))
        .await;
    response.assert_error(400, "bad_request");
    assert_eq!(response.bad_fields(), ["path", "supervisor_process"]);

    // The stream ends when the browser is deleted.
    let id = browser["session_id"].as_str().unwrap();
    dev.delete(&format!("/browsers/{id}")).await;
    while events.next().await.is_some() {}
    dev.finish().await;
}

#[tokio::test]
async fn forwarded_request_has_one_line() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let execute = format!("/browsers/{id}/automation/execute");
    // A client that says that control has forwarded its request is not believed.
    let requests = [("one-1", "1.0 other"), ("one-2", "1.1 berth")];
    for (request, via) in requests {
        let response = dev
            .request(Method::GET, &execute)
            .header("x-request-id", request)
            .header("via", via);
        assert_eq!(response.send().await.unwrap().status(), 405);
    }
    let state = dev.finish().await;
    let log = fs::read_to_string(state.log()).unwrap();
    for (request, _) in requests {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(request)).collect();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("request completed"), "{lines:#?}");
        assert!(!lines[0].contains("berth_agent"), "{lines:#?}");
    }
    // Requests of control itself have one at the agent.
    let is_own = |line: &&str| line.contains("berth_agent") && line.contains("request completed");
    assert!(log.lines().any(|line| is_own(&line)), "{log}");
}

#[tokio::test]
async fn request_of_a_client_that_disconnects_has_a_line() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let directory = TempDir::new().unwrap();
    let started = directory.path().join("started");
    let line = format!("touch {}; exec sleep 1000", started.display());
    let request = dev
        .request(Method::POST, &format!("/browsers/{id}/process/exec"))
        .header("x-request-id", "gone-1")
        .json(&json!({"command": "sh", "args": ["-c", line]}));
    let client = tokio::spawn(request.send());
    until("the program", async || started.exists().then_some(())).await;
    client.abort();
    until("the line", async || {
        let log = dev.log();
        let is_line = |line: &str| {
            line.contains("gone-1") && line.contains("request dropped before its response")
        };
        log.lines().any(is_line).then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn agent_logs_requests_unless_control_does() {
    for (start, is_logged) in [
        (Start::without_browser().logging("info"), true),
        (
            Start::without_browser()
                .logging("info")
                .with(["--behind-control"]),
            false,
        ),
    ] {
        let agent = start.listening().await;
        for (id, via) in [("one-1", "1.1 berth"), ("one-2", "1.1 other")] {
            let request = agent.get("/process/none/status");
            let request = request.header("x-request-id", id).header("via", via);
            assert_eq!(request.send().await.unwrap().status(), 404);
        }
        let log = until("the last line", async || {
            Some(agent.log()).filter(|log| log.contains("one-2"))
        })
        .await;
        assert_eq!(log.contains("one-1"), is_logged, "{log}");
        agent.stop().await;
    }
}
