//! `GET /process/{process_id}/attach` of the agent.

use reqwest::StatusCode;
use serde_json::json;
use tokio_tungstenite::tungstenite::Error;

use crate::support::{
    agent::{Start, TestAgent},
    spawned::{Spawned, shell, spawn},
    websocket::Client,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

async fn bash(agent: &TestAgent) -> Spawned<'_> {
    let body = json!({
        "command": "bash", "args": ["--norc", "--noprofile", "-i"],
        "allocate_tty": true, "env": {"PS1": "prompt> ", "HISTFILE": ""},
    });
    spawn(agent, body).await
}

#[tokio::test]
async fn bash_works_over_attach_and_follows_resizes() {
    let agent = agent().await;
    let process = bash(&agent).await;
    let mut terminal = Client::connect(&process.attach_url()).await;
    terminal.bytes_until("prompt> ").await;
    terminal
        .send_bytes(b"echo $((6 * 7)) and more\r".to_vec())
        .await;
    terminal.bytes_until("42 and more\r\n").await;
    process.resize(50, 123).await;
    terminal.send_text("stty size\r".into()).await;
    terminal.bytes_until("50 123\r\n").await;
    // Ctrl-C interrupts the foreground job and bash continues. The job prints a line first,
    // because before it is in the foreground the interrupt would reach the shell.
    terminal
        .send_bytes(b"sh -c \"echo sle''eps; exec sleep 1000\"\r".to_vec())
        .await;
    terminal.bytes_until("sleeps\r\n").await;
    terminal.send_bytes(vec![3]).await;
    terminal.bytes_until("prompt> ").await;
    terminal.send_bytes(b"exit 9\r".to_vec()).await;
    let close = loop {
        if let Err(close) = terminal.next_bytes().await {
            break close;
        }
    };
    assert_eq!(close, (1000, "exited with 9".to_owned()));
    assert_eq!(process.exited().await, 9);
    agent.stop().await;
}

#[tokio::test]
async fn full_screen_programs_work() {
    let agent = agent().await;
    let process = bash(&agent).await;
    let mut terminal = Client::connect(&process.attach_url()).await;
    process.resize(12, 60).await;
    terminal.send_bytes(b"top -d 1000\r".to_vec()).await;
    terminal.bytes_until("PID").await;
    // The program redraws for the new size.
    process.resize(20, 70).await;
    terminal.bytes_until("PID").await;
    terminal.send_bytes(b"q".to_vec()).await;
    terminal.bytes_until("prompt> ").await;

    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("text");
    terminal
        .send_bytes(format!("vi {}\r", file.display()).into_bytes())
        .await;
    terminal.bytes_until("~").await;
    terminal.send_bytes(b"ithe words\x1b:wq\r".to_vec()).await;
    terminal.bytes_until("prompt> ").await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "the words\n");
    process.kill("KILL").await;
    agent.stop().await;
}

#[tokio::test]
async fn clients_see_the_same_output_and_a_stalled_one_does_not_block_others() {
    let agent = Start::without_browser()
        .with(["--process-output-mb", "1"])
        .listening()
        .await;
    let process = bash(&agent).await;
    let mut first = Client::connect(&process.attach_url()).await;
    first.bytes_until("prompt> ").await;
    // This client reads nothing from here on.
    let mut stopped = Client::connect_with_small_buffer(&process.attach_url()).await;
    first
        .send_bytes(b"seq 3000000; echo e''nd\r".to_vec())
        .await;
    let mut tail = String::new();
    while !tail.contains("end\r\n") {
        tail = match first.next_bytes().await {
            Ok(bytes) => {
                tail.split_off(tail.len().saturating_sub(10)) + &String::from_utf8_lossy(&bytes)
            }
            // This client was too slow as well. The next one gets the retained output.
            Err((code, _)) => {
                assert!([4008, 1006].contains(&code), "{code}");
                first = Client::connect(&process.attach_url()).await;
                String::new()
            }
        };
    }
    let mut second = Client::connect(&process.attach_url()).await;
    let shown = second.bytes_until("end\r\n").await;
    assert!(
        shown.contains("\r\n3000000\r\nend"),
        "the retained output includes its end"
    );
    let close = loop {
        if let Err(close) = stopped.next_bytes().await {
            break close;
        }
    };
    // A client that stalls for longer than the close timeout gets no Close frame.
    assert!([4008, 1006].contains(&close.0), "{close:?}");
    second
        .send_bytes(b"echo typed by the second\r".to_vec())
        .await;
    first.bytes_until("typed by the second\r\n").await;
    process.kill("KILL").await;
    agent.stop().await;
}

#[tokio::test]
async fn disconnect_is_noticed_while_the_terminal_accepts_no_input() {
    let agent = agent().await;
    let body = json!({"command": "sleep", "args": ["1000"], "allocate_tty": true});
    let process = spawn(&agent, body).await;
    let mut terminal = Client::connect(&process.attach_url()).await;
    terminal.send_bytes(vec![b'\n'; 500_000]).await;
    terminal.close().await;
    process.kill("KILL").await;
    agent.stop().await;
}

#[tokio::test]
async fn input_sent_before_a_disconnect_is_typed() {
    let agent = agent().await;
    for code in 1..20 {
        let process = bash(&agent).await;
        let mut terminal = Client::connect(&process.attach_url()).await;
        let typed = format!("echo {code}; exit {code}\r");
        terminal.send_bytes(typed.into_bytes()).await;
        terminal.close().await;
        assert_eq!(process.exited().await, code);
    }
    agent.stop().await;
}

#[tokio::test]
async fn message_is_typed_without_interleaving() {
    const MESSAGE_BYTES: usize = 100_000;
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let (go, typed) = (directory.path().join("go"), directory.path().join("typed"));
    let line = format!(
        "stty raw -echo; echo ready; until [ -e {} ]; do sleep 0.1; done; head -c {} > {}",
        go.display(),
        2 * MESSAGE_BYTES,
        typed.display()
    );
    let body = json!({"command": "sh", "args": ["-c", line], "allocate_tty": true});
    let process = spawn(&agent, body).await;
    let mut one = Client::connect(&process.attach_url()).await;
    let mut other = Client::connect(&process.attach_url()).await;
    one.bytes_until("ready").await;
    // Both messages are sent before the program reads anything.
    one.send_bytes(vec![b'a'; MESSAGE_BYTES]).await;
    other.send_bytes(vec![b'b'; MESSAGE_BYTES]).await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(process.exited().await, 0);
    let typed = std::fs::read(&typed).unwrap();
    let messages: Vec<_> = typed.chunk_by(|one, next| one == next).collect();
    assert_eq!(typed.len(), 2 * MESSAGE_BYTES);
    assert_eq!(messages.len(), 2, "each message in one piece");
    agent.stop().await;
}

#[tokio::test]
async fn attaching_after_the_exit_shows_the_output_and_the_exit() {
    let agent = agent().await;
    let body = json!({"command": "echo", "args": ["the end"], "allocate_tty": true});
    let process = spawn(&agent, body).await;
    assert_eq!(process.exited().await, 0);
    let mut terminal = Client::connect(&process.attach_url()).await;
    assert_eq!(terminal.next_bytes().await, Ok(b"the end\r\n".to_vec()));
    let close = terminal.next_bytes().await;
    assert_eq!(close, Err((1000, "exited with 0".to_owned())));
    agent.stop().await;
}

#[tokio::test]
async fn attach_requires_a_terminal_and_a_websocket() {
    let agent = agent().await;
    let plain = shell(&agent, "exec sleep 1000").await;
    match Client::try_connect(&plain.attach_url()).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 400),
        other => panic!("{:?}", other.err()),
    }
    let process = bash(&agent).await;
    let request = agent.get(&format!("/process/{}/attach", process.id));
    let (status, response) = agent.answer(request).await;
    assert_eq!(
        (status, &response["code"]),
        (StatusCode::BAD_REQUEST, &json!("bad_request"))
    );
    agent.stop().await;
}

#[tokio::test]
async fn attached_clients_are_closed_when_the_agent_stops() {
    let agent = agent().await;
    let process = bash(&agent).await;
    let mut terminal = Client::connect(&process.attach_url()).await;
    terminal.bytes_until("prompt> ").await;
    agent.stop().await;
    let close = loop {
        if let Err(close) = terminal.next_bytes().await {
            break close;
        }
    };
    assert!([1000, 1001].contains(&close.0), "{close:?}");
}
