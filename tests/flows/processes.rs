//! Processes on a browser's host, through control.

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{SinkExt, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use crate::support::{
    dev::Dev,
    events::Events,
    processes::is_alive,
    spawned::{decode, executed},
    wait::{in_time, until},
};

async fn spawn(dev: &Dev, browser: &str, body: Value) -> (String, u32) {
    let response = dev.post(&format!("{browser}/process/spawn"), body).await;
    assert_eq!(response.status, 201, "{}", response.body);
    let id = response.body["process_id"].as_str().unwrap();
    let pid = response.body["pid"].as_u64().unwrap();
    (format!("{browser}/process/{id}"), pid as u32)
}

#[tokio::test]
async fn control_proxies_process_routes_and_processes_end_with_their_browser() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let browser = format!("/browsers/{}", browser["session_id"].as_str().unwrap());

    let line = json!({"command": "sh", "args": ["-c", "echo out; echo err >&2; exit 3"]});
    let response = dev.post(&format!("{browser}/process/exec"), line).await;
    let output = executed(&response.body);
    assert_eq!(
        (
            output.stdout.as_str(),
            output.stderr.as_str(),
            output.exit_code
        ),
        ("out\n", "err\n", 3)
    );

    let (process, _) = spawn(&dev, &browser, json!({"command": "cat"})).await;
    let stream = format!("{process}/stdout/stream");
    let mut events = Events::open(dev.request(Method::GET, &stream)).await;
    let body = json!({"data_b64": STANDARD.encode("words"), "end": true});
    let response = dev.post(&format!("{process}/stdin"), body).await;
    assert_eq!(response.body["written_bytes"], 5, "{}", response.body);
    let [output, exit] = events.take(2).await.try_into().unwrap();
    assert_eq!(decode(&output), b"words");
    assert_eq!(exit, json!({"event": "exit", "exit_code": 0}));

    let body = json!({
        "command": "bash", "args": ["--norc", "--noprofile", "-i"],
        "allocate_tty": true, "env": {"PS1": "> ", "HISTFILE": ""},
    });
    let (terminal, _) = spawn(&dev, &browser, body).await;
    let url = format!(
        "{}{terminal}/attach",
        dev.base_url.replacen("http", "ws", 1)
    );
    let mut request = url.into_client_request().unwrap();
    let bearer = format!("Bearer {}", dev.api_key);
    request
        .headers_mut()
        .insert("authorization", bearer.parse().unwrap());
    let (mut socket, _) = in_time("the handshake", connect_async(request))
        .await
        .unwrap();
    let response = dev
        .post(
            &format!("{terminal}/resize"),
            json!({"rows": 33, "cols": 44}),
        )
        .await;
    assert_eq!(response.body, json!({"ok": true}));
    let typed = Message::Binary("stty size; exit\r".into());
    socket.send(typed).await.unwrap();
    let (mut shown, mut reason) = (String::new(), None);
    while let Some(Ok(message)) = in_time("a message", socket.next()).await {
        match message {
            Message::Binary(bytes) => shown.push_str(&String::from_utf8_lossy(&bytes)),
            Message::Close(frame) => reason = frame,
            _ => {}
        }
    }
    assert!(shown.contains("33 44\r\n"), "{shown}");
    let reason = reason.expect("a Close frame");
    assert_eq!(
        (u16::from(reason.code), reason.reason.as_str()),
        (1000, "exited with 0")
    );

    let rejected = dev
        .post(
            &format!("{terminal}/resize"),
            json!({"rows": 0, "cols": 65_536}),
        )
        .await;
    rejected.assert_error(400, "bad_request");
    assert_eq!(rejected.bad_fields(), ["cols", "rows"]);

    let ignores_signals =
        json!({"command": "sh", "args": ["-c", "trap '' TERM HUP; sleep 1000 & echo $!; wait"]});
    let (process, pid) = spawn(&dev, &browser, ignores_signals).await;
    let stream = format!("{process}/stdout/stream");
    let mut events = Events::open(dev.request(Method::GET, &stream)).await;
    let child = decode(&events.take(1).await[0]);
    let child: u32 = std::str::from_utf8(&child).unwrap().trim().parse().unwrap();
    assert_eq!(dev.delete(&browser).await.status, 204);
    until("the processes to end", async || {
        (!is_alive(pid) && !is_alive(child)).then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn exec_ends_when_the_client_of_control_disconnects() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let browser = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("pid");
    let line = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000",
        file.display()
    );
    let body = json!({"command": "sh", "args": ["-c", line]});
    let request = dev
        .request(Method::POST, &format!("{browser}/process/exec"))
        .json(&body);
    let client = tokio::spawn(request.send());
    let pid: u32 = until("the process to start", async || {
        std::fs::read_to_string(&file).ok()?.trim().parse().ok()
    })
    .await;
    assert!(is_alive(pid));
    client.abort();
    until("the process to end", async || {
        (!is_alive(pid)).then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn client_processes_end_after_control_and_agent_are_killed() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let browser = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let line = "sleep 1000 & echo $!; (setsid sleep 1001 & echo $!); wait";
    let body = json!({"command": "sh", "args": ["-c", line]});
    let (process, _) = spawn(&dev, &browser, body).await;
    let stream = format!("{process}/stdout/stream");
    let mut events = Events::open(dev.request(Method::GET, &stream)).await;
    let mut text = String::new();
    while text.lines().count() < 2 {
        let (_, event) = events.next().await.expect("more output");
        text.push_str(&String::from_utf8_lossy(&decode(&event)));
    }
    let pids: Vec<u32> = text.lines().map(|pid| pid.parse().unwrap()).collect();
    let state = dev.crash().await;
    let dev = Dev::start_in(state, &[]).await;
    until("the processes to end", async || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
    dev.finish().await;
}
