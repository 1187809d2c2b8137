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
async fn bash_works_over_attach_and_follows_the_window() {
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
    // A job in front is interrupted from the keyboard, and bash goes on.
    // It speaks once it is in front: before, the interrupt would be the shell's.
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
async fn programs_of_the_whole_screen_work() {
    let agent = agent().await;
    let process = bash(&agent).await;
    let mut terminal = Client::connect(&process.attach_url()).await;
    process.resize(12, 60).await;
    terminal.send_bytes(b"top -d 1000\r".to_vec()).await;
    terminal.bytes_until("PID").await;
    // It draws again, as wide as the window is now.
    process.resize(20, 70).await;
    terminal.bytes_until("PID").await;
    terminal.send_bytes(b"q".to_vec()).await;
    terminal.bytes_until("prompt> ").await;

    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("text");
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
async fn all_who_are_attached_see_the_same_and_one_who_stops_holds_nobody_up() {
    let agent = Start::without_browser()
        .with(["--process-output-mb", "1"])
        .listening()
        .await;
    let process = bash(&agent).await;
    let mut first = Client::connect(&process.attach_url()).await;
    first.bytes_until("prompt> ").await;
    // It takes nothing from here on.
    let mut stopped = Client::connect_with_small_buffer(&process.attach_url()).await;
    first
        .send_bytes(b"seq 3000000; echo e''nd\r".to_vec())
        .await;
    let mut come = String::new();
    while !come.contains("end\r\n") {
        come = match first.next_bytes().await {
            Ok(bytes) => {
                come.split_off(come.len().saturating_sub(10)) + &String::from_utf8_lossy(&bytes)
            }
            // It was too slow itself: what is kept is there for the next.
            Err((code, _)) => {
                assert!([1013, 1006].contains(&code), "{code}");
                first = Client::connect(&process.attach_url()).await;
                String::new()
            }
        };
    }
    let mut late = Client::connect(&process.attach_url()).await;
    let seen = late.bytes_until("end\r\n").await;
    assert!(
        seen.contains("\r\n3000000\r\nend"),
        "what is kept, and its end"
    );
    let close = loop {
        if let Err(close) = stopped.next_bytes().await {
            break close;
        }
    };
    // One that stands still for longer than the Close frame waits for it finds the connection ended without.
    assert!([1013, 1006].contains(&close.0), "{close:?}");
    late.send_bytes(b"echo typed by the late\r".to_vec()).await;
    first.bytes_until("typed by the late\r\n").await;
    process.kill("KILL").await;
    agent.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_is_heard_while_the_terminal_takes_nothing() {
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
async fn what_was_typed_before_the_client_went_is_typed() {
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
async fn a_message_is_typed_as_one() {
    const EACH: usize = 100_000;
    let agent = agent().await;
    let folder = tempfile::TempDir::new().unwrap();
    let (go, typed) = (folder.path().join("go"), folder.path().join("typed"));
    let line = format!(
        "stty raw -echo; echo ready; until [ -e {} ]; do sleep 0.1; done; head -c {} > {}",
        go.display(),
        2 * EACH,
        typed.display()
    );
    let body = json!({"command": "sh", "args": ["-c", line], "allocate_tty": true});
    let process = spawn(&agent, body).await;
    let mut one = Client::connect(&process.attach_url()).await;
    let mut other = Client::connect(&process.attach_url()).await;
    one.bytes_until("ready").await;
    // Both are under way before anything is read.
    one.send_bytes(vec![b'a'; EACH]).await;
    other.send_bytes(vec![b'b'; EACH]).await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(process.exited().await, 0);
    let typed = std::fs::read(&typed).unwrap();
    let messages: Vec<_> = typed.chunk_by(|one, next| one == next).collect();
    assert_eq!(typed.len(), 2 * EACH);
    assert_eq!(messages.len(), 2, "each in one piece");
    agent.stop().await;
}

#[tokio::test]
async fn whoever_attaches_after_the_end_sees_it() {
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
async fn only_a_terminal_can_be_attached_to() {
    let agent = agent().await;
    let plain = shell(&agent, "exec sleep 1000").await;
    match Client::try_connect(&plain.attach_url()).await {
        Err(Error::Http(answer)) => assert_eq!(answer.status(), 400),
        other => panic!("{:?}", other.err()),
    }
    let process = bash(&agent).await;
    let request = agent.get(&format!("/process/{}/attach", process.id));
    let (status, answer) = agent.answer(request).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::BAD_REQUEST, &json!("bad_request"))
    );
    agent.stop().await;
}

#[tokio::test]
async fn the_attached_are_told_when_the_agent_stops() {
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
