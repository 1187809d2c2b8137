//! `PUT /display`

use std::process::Stdio;

use nix::unistd::Uid;
use reqwest::StatusCode;
use serde_json::{Value, json};

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{
    agent::{Start, TestAgent},
    processes::command_as_nobody,
    requests::wrong_fields,
    spawned::exec,
    wait::{in_time, until},
    websocket::Client,
};

async fn page(agent: &TestAgent) -> Client {
    let list = agent.ok(agent.get("/json/list")).await;
    let page = list
        .as_array()
        .unwrap()
        .iter()
        .find(|target| target["type"] == "page")
        .unwrap();
    Client::connect(page["webSocketDebuggerUrl"].as_str().unwrap()).await
}

async fn evaluate(page: &mut Client, expression: &str) -> Value {
    let answer = page
        .call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true}),
        )
        .await;
    answer["result"]["result"]["value"].clone()
}

/// Returns whether the screen has this size and the window fills it. Chromium makes a window of the
/// screen's size a pixel smaller, so that it does not count as full-screen, but not if it gets its
/// size before Chromium notices that of the screen.
async fn fills_screen(page: &mut Client, width: u32, height: u32) -> bool {
    let sizes = evaluate(
        page,
        "[screen.width, screen.height, outerWidth, outerHeight]",
    )
    .await;
    [0, 1]
        .map(|gap| json!([width, height, width - gap, height - gap]))
        .contains(&sizes)
}

#[tokio::test]
async fn screen_and_window_are_resized() {
    let agent = Start::on_screen()
        .with(["--viewport", "1280x800@30"])
        .ready()
        .await;
    let mut before = page(&agent).await;
    assert!(fills_screen(&mut before, 1280, 800).await);
    for (width, height) in [(1024, 768), (1600, 1200), (1280, 800)] {
        let size = json!({"width": width, "height": height});
        let answer = agent.ok(agent.put("/display").json(&size)).await;
        assert_eq!(
            answer,
            json!({"width": width, "height": height, "refresh_rate": 30})
        );
        until("the new size", async || {
            let mut page = page(&agent).await;
            fills_screen(&mut page, width, height).await.then_some(())
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn screen_larger_than_the_frame_buffer_restarts_chromium() {
    let agent = Start::on_screen().ready().await;
    let size = json!({"width": 3840, "height": 2160, "refresh_rate": 10});
    assert_eq!(agent.ok(agent.put("/display").json(&size)).await, size);
    let status = agent.ok(agent.get("/chromium")).await;
    assert_eq!(
        (&status["state"], &status["generation"]),
        (&json!("running"), &json!(2))
    );
    let mut page = page(&agent).await;
    assert!(fills_screen(&mut page, 3840, 2160).await);
    agent.stop().await;
}

#[tokio::test]
async fn window_is_resized_without_a_display() {
    let agent = Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let size = json!({"width": 1024, "height": 768});
    agent.ok(agent.put("/display").json(&size)).await;
    until("the new size", async || {
        let mut page = page(&agent).await;
        let outer = evaluate(&mut page, "[outerWidth, outerHeight]").await;
        (outer == json!([1024, 768])).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn pages_are_drawn_at_the_refresh_rate() {
    const COUNT: &str = "new Promise(done => { let n = 0; const end = performance.now() + 1000; \
        const count = now => now < end ? (n++, requestAnimationFrame(count)) : done(n); requestAnimationFrame(count) })";
    let agent = Start::on_screen()
        .with(["--viewport", "1024x768@10"])
        .ready()
        .await;
    let mut page = page(&agent).await;
    // A busy machine may draw fewer frames, never more. Until Chromium knows the screen's rate, it
    // assumes 60 Hz.
    until("a second drawn at the refresh rate", async || {
        let params = json!({"expression": COUNT, "awaitPromise": true, "returnByValue": true});
        let answer = page.call("Runtime.evaluate", params).await;
        let frames = answer["result"]["result"]["value"].as_u64().unwrap();
        (1..=12).contains(&frames).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn sizes_out_of_bounds_are_400_with_each_field() {
    let agent = Start::without_browser().listening().await;
    for (body, fields) in [
        (json!({}), vec!["height", "width"]),
        (json!({"width": "1", "height": 800}), vec!["width"]),
        (
            json!({"width": 1, "height": 10000, "refresh_rate": 0}),
            vec!["height", "refresh_rate", "width"],
        ),
        (json!({"width": -1, "height": 800}), vec!["width"]),
        (json!({"width": "x", "height": 1}), vec!["height", "width"]),
        (
            json!({"width": 3840, "height": 3840, "refresh_rate": "x"}),
            vec!["refresh_rate", "width"],
        ),
        (json!({"width": 3840, "height": 3840}), vec!["width"]),
        (
            json!({"width": 5_000_000_000_u64, "height": 800}),
            vec!["width"],
        ),
    ] {
        let (status, answer) = agent.answer(agent.put("/display").json(&body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(wrong_fields(&answer), fields, "{body}");
    }
    agent.stop().await;
}

/// Opens idle connections to both sockets of a display, prints how many succeeded, and keeps them
/// until its standard input ends.
const HOLD_CONNECTIONS: &str = "import socket, sys\n\
    path = '/tmp/.X11-unix/X' + sys.argv[1][1:]\n\
    held, counts = [], []\n\
    for address in ('\\0' + path, path):\n\
    \x20   sockets = [socket.socket(socket.AF_UNIX) for _ in range(300)]\n\
    \x20   for one in sockets: one.settimeout(5)\n\
    \x20   counts.append(sum(one.connect_ex(address) == 0 for one in sockets))\n\
    \x20   held += sockets\n\
    print(*counts, flush=True)\n\
    sys.stdin.read()";

#[tokio::test]
async fn local_user_without_access_holds_no_connection_to_the_display() {
    if !Uid::effective().is_root() {
        return;
    }
    let agent = Start::screen_alone().await;
    let health = agent.ok(agent.get("/health")).await;
    let name = health["display"]["name"].as_str().unwrap();
    // Another user gets access, which gives `nobody` none.
    let (status, body) = exec(&agent, json!({"command": "true", "as_user": "daemon"})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let mut holder = command_as_nobody("python3")
        .args(["-c", HOLD_CONNECTIONS, name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = String::new();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    in_time("the connections", output.read_line(&mut held))
        .await
        .unwrap();
    let screenshot = agent.post("/computer/screenshot").json(&json!({}));
    let (status, body) = agent.answer(screenshot).await;
    assert_eq!((status, held.as_str()), (StatusCode::OK, "0 0\n"), "{body}");
    drop(holder.stdin.take());
    in_time("the holder's exit", holder.wait()).await.unwrap();
    agent.stop().await;
}
