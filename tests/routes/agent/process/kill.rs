//! `POST /process/{process_id}/kill` of the agent.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    process::{Command, Stdio},
};

use nix::{fcntl::OFlag, sys::stat::Mode, unistd::mkfifo};
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    events::Events,
    processes::{is_alive, threads_named},
    spawned::{decode, rest_of, shell, spawn, until_line},
    wait::until,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

/// Reads events until `count` lines consist of a number only, and returns these numbers.
async fn numbers(events: &mut Events, count: usize) -> Vec<u32> {
    let mut text = String::new();
    loop {
        let found: Vec<u32> = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        if found.len() >= count {
            return found;
        }
        let (_, event) = events.next().await.expect("more output");
        text.push_str(&String::from_utf8_lossy(&decode(&event)));
    }
}

async fn until_ended(pids: &[u32]) {
    until("all processes to end", async || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
}

/// Client processes may later leave the agent no room for a thread.
#[tokio::test]
async fn threads_that_find_and_kill_processes_start_with_the_agent() {
    let agent = Start::without_browser().listening().await;
    for name in ["killer", "processes"] {
        assert_eq!(threads_named(agent.pid(), name), 1, "{name}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn signal_reaches_the_group_and_sets_the_exit_code() {
    let agent = agent().await;
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("HUP", 129)] {
        let process = shell(&agent, "sleep 1000 & echo $!; wait").await;
        let mut events = process.events().await;
        let pids = numbers(&mut events, 1).await;
        process.kill(signal).await;
        let exit = rest_of(&mut events).await.exit_code;
        assert_eq!(exit, code, "{signal}");
        // Background children of a shell ignore SIGINT.
        process.kill("KILL").await;
        until_ended(&pids).await;
        // Signalling an ended process is allowed.
        process.kill(signal).await;
    }
    let process = shell(&agent, "exec sleep 1000").await;
    let (status, response) = process.post("kill", json!({})).await;
    assert_eq!((status, response), (StatusCode::OK, json!({"ok": true})));
    assert_eq!(process.output().await.exit_code, 143, "TERM is the default");
    agent.stop().await;
}

#[tokio::test]
async fn unknown_signal_is_rejected_and_not_sent() {
    let agent = agent().await;
    let process = shell(&agent, "exec sleep 1000").await;
    for signal in [json!("USR1"), json!("kill"), json!(9), json!("")] {
        let (status, response) = process.post("kill", json!({"signal": signal})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{signal}: {response}");
        assert_eq!(response["details"][0]["code"], "signal");
    }
    assert_eq!(process.status().await["state"], "running");
    agent.stop().await;
}

#[tokio::test]
async fn background_process_can_be_killed_after_the_leader_exited() {
    let agent = agent().await;
    let process = shell(&agent, "sleep 1000 & echo $!; exit 0").await;
    let pids = numbers(&mut process.events().await, 1).await;
    assert_eq!(process.output().await.exit_code, 0);
    assert!(is_alive(pids[0]));
    process.kill("TERM").await;
    until_ended(&pids).await;
    agent.stop().await;
}

#[tokio::test]
async fn kill_finds_processes_in_other_sessions() {
    let agent = agent().await;
    let line = "sleep 1000 & echo $!; \
        setsid sh -c 'echo $$; sleep 1000 & wait' & \
        (setsid sh -c 'echo $$; exec sleep 1000' &) ; \
        wait";
    let process = shell(&agent, line).await;
    let mut events = process.events().await;
    let pids = numbers(&mut events, 3).await;
    process.kill("KILL").await;
    assert!(
        !pids.iter().any(|pid| is_alive(*pid)),
        "the response comes after the end of all processes"
    );
    assert_eq!(rest_of(&mut events).await.exit_code, 137);
    agent.stop().await;
}

#[tokio::test]
async fn kill_finds_a_process_with_a_name_that_is_not_utf8() {
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let name = directory.path().join(OsStr::from_bytes(b"\xff\xfe) \xfd"));
    fs::copy("/bin/sleep", &name).unwrap();
    let line = format!(
        "cd {}; for f in *; do (setsid ./\"$f\" 1000 & echo $!); done; wait",
        directory.path().display()
    );
    let process = shell(&agent, &line).await;
    let mut events = process.events().await;
    let pids = numbers(&mut events, 1).await;
    until("the process name", async || {
        let name = fs::read(format!("/proc/{}/comm", pids[0])).ok()?;
        name.starts_with(b"\xff\xfe").then_some(())
    })
    .await;
    assert!(is_alive(pids[0]));
    process.kill("KILL").await;
    assert!(
        !is_alive(pids[0]),
        "the response comes after the end of all processes"
    );
    agent.stop().await;
}

#[tokio::test]
async fn kill_finds_a_descendant_without_a_mark() {
    let agent = agent().await;
    let line = "setsid env -i sh -c 'echo $$; sleep 1000; sleep 1000' & wait";
    let process = shell(&agent, line).await;
    let pids = numbers(&mut process.events().await, 1).await;
    process.kill("KILL").await;
    assert!(
        !is_alive(pids[0]),
        "the response comes after the end of all processes"
    );
    agent.stop().await;
}

#[tokio::test]
async fn kill_spares_other_members_of_the_session_of_a_marked_process() {
    let agent = agent().await;
    let process = shell(&agent, "echo $SPAWNED_PROCESS; exec sleep 1000").await;
    let (_, event) = process.events().await.next().await.expect("output");
    let mark = String::from_utf8(decode(&event)).unwrap().trim().to_owned();
    // A foreign session with one process that has the mark.
    let mut other = Command::new("setsid")
        .args([
            "sh",
            "-c",
            "SPAWNED_PROCESS=$0 sleep 1000 & echo $!; wait $!; echo over; exec sleep 1000",
            &mark,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    let marked: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    let environ = format!("/proc/{marked}/environ");
    until("the mark", async || {
        let found = fs::read(&environ).unwrap_or_default();
        String::from_utf8_lossy(&found)
            .contains(&mark)
            .then_some(())
    })
    .await;
    process.kill("KILL").await;
    assert!(!is_alive(marked));
    let spared = lines.next();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(spared.unwrap().unwrap(), "over");
    agent.stop().await;
}

/// A program whose processes leave their session and lose their parent as soon as they start. It
/// holds a pipe open while any of them lives, and ends by itself.
const CHAIN: &str = "use POSIX; open(my $pipe, '>', $ARGV[0]);\n\
    for my $generation (1..3000) {\n\
        select(undef, undef, undef, 0.0007);\n\
        POSIX::setsid();\n\
        POSIX::_exit(0) if fork;\n\
        syswrite($pipe, 'x') if $generation == 50;\n\
    }";

#[tokio::test]
async fn successful_kill_leaves_no_process_of_a_program_that_keeps_forking() {
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let mut confirmed = 0;
    for round in 0..6 {
        let path = directory.path().join(round.to_string());
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let mut pipe = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&path)
            .unwrap();
        let body = json!({"command": "perl", "args": ["-e", CHAIN, path]});
        let process = spawn(&agent, body).await;
        until("the chain", async || {
            matches!(pipe.read(&mut [0]), Ok(1)).then_some(())
        })
        .await;
        let (status, _) = process.post("kill", json!({"signal": "KILL"})).await;
        // The end of the pipe: no process has it open for writing. Otherwise reading would block.
        let is_ended = matches!(pipe.read(&mut [0]), Ok(0));
        match status {
            StatusCode::OK => assert!(is_ended, "a process survived a successful kill"),
            _ => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE),
        }
        confirmed += usize::from(status == StatusCode::OK);
        until("the end of the program", async || {
            matches!(pipe.read(&mut [0]), Ok(0)).then_some(())
        })
        .await;
    }
    assert_ne!(confirmed, 0);
    agent.stop().await;
}

#[tokio::test]
async fn term_continues_a_stopped_process() {
    let agent = agent().await;
    let process = shell(&agent, "trap 'exit 7' TERM; echo up; kill -STOP $$; exit 8").await;
    until("the process to stop", async || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).ok()?;
        stat.contains(") T ").then_some(())
    })
    .await;
    process.kill("TERM").await;
    assert_eq!(process.output().await.exit_code, 7);
    agent.stop().await;
}

#[tokio::test]
async fn hangup_reaches_every_job_of_a_terminal() {
    let agent = agent().await;
    let body = json!({
        "command": "bash", "args": ["--norc", "--noprofile", "--noediting", "-i"],
        "allocate_tty": true, "env": {"PS1": "", "HISTFILE": ""},
    });
    let process = spawn(&agent, body).await;
    let mut events = process.events().await;
    process.write("stty -echo; echo quiet\n", false).await;
    until_line(&mut events, "quiet").await;
    process
        .write(
            "sleep 1001 & echo; echo $!; sleep 1002 & echo; echo $!; sleep 1003\n",
            false,
        )
        .await;
    let pids = numbers(&mut events, 2).await;
    process.kill("HUP").await;
    assert_eq!(rest_of(&mut events).await.exit_code, 129);
    until_ended(&pids).await;
    agent.stop().await;
}
