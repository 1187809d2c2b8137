use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    events::Events,
    processes::is_alive,
    spawned::{decode, rest_of, shell, spawn, until_line},
    wait::until,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

/// The numbers that stand alone on the next so many lines.
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

async fn all_end(pids: &[u32]) {
    until("the end of all", async || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_signal_reaches_the_group_and_is_the_exit_code() {
    let agent = agent().await;
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("HUP", 129)] {
        let process = shell(&agent, "sleep 1000 & echo $!; wait").await;
        let mut events = process.events().await;
        let pids = numbers(&mut events, 1).await;
        process.kill(signal).await;
        let exit = rest_of(&mut events).await.exit_code;
        assert_eq!(exit, code, "{signal}");
        // A shell's children in the background take no notice of an interrupt.
        process.kill("KILL").await;
        all_end(&pids).await;
        // As often as one likes.
        process.kill(signal).await;
    }
    let process = shell(&agent, "exec sleep 1000").await;
    let (status, answer) = process.post("kill", json!({})).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"ok": true})));
    assert_eq!(process.output().await.exit_code, 143, "TERM is the default");
    agent.stop().await;
}

#[tokio::test]
async fn another_signal_is_refused_and_nothing_is_sent() {
    let agent = agent().await;
    let process = shell(&agent, "exec sleep 1000").await;
    for signal in [json!("USR1"), json!("kill"), json!(9), json!("")] {
        let (status, answer) = process.post("kill", json!({"signal": signal})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{signal}: {answer}");
        assert_eq!(answer["details"][0]["code"], "signal");
    }
    assert_eq!(process.status().await["state"], "running");
    agent.stop().await;
}

#[tokio::test]
async fn what_a_process_has_left_behind_can_still_be_killed() {
    let agent = agent().await;
    let process = shell(&agent, "sleep 1000 & echo $!; exit 0").await;
    let pids = numbers(&mut process.events().await, 1).await;
    assert_eq!(process.output().await.exit_code, 0);
    assert!(is_alive(pids[0]));
    process.kill("TERM").await;
    all_end(&pids).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_kill_finds_what_has_gone_elsewhere() {
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
        "all is over with the answer"
    );
    assert_eq!(rest_of(&mut events).await.exit_code, 137);
    agent.stop().await;
}

#[tokio::test]
async fn a_kill_finds_what_has_a_name_that_is_no_text() {
    let agent = agent().await;
    let folder = tempfile::TempDir::new().unwrap();
    let name = folder.path().join(OsStr::from_bytes(b"\xff\xfe) \xfd"));
    fs::copy("/bin/sleep", &name).unwrap();
    let line = format!(
        "cd {}; for f in *; do (setsid ./\"$f\" 1000 & echo $!); done; wait",
        folder.path().display()
    );
    let process = shell(&agent, &line).await;
    let mut events = process.events().await;
    let pids = numbers(&mut events, 1).await;
    until("its name", async || {
        let name = fs::read(format!("/proc/{}/comm", pids[0])).ok()?;
        name.starts_with(b"\xff\xfe").then_some(())
    })
    .await;
    assert!(is_alive(pids[0]));
    process.kill("KILL").await;
    assert!(!is_alive(pids[0]), "all is over with the answer");
    agent.stop().await;
}

#[tokio::test]
async fn a_kill_finds_what_has_cleared_its_environment_and_still_has_parents() {
    let agent = agent().await;
    let line = "setsid env -i sh -c 'echo $$; sleep 1000; sleep 1000' & wait";
    let process = shell(&agent, line).await;
    let pids = numbers(&mut process.events().await, 1).await;
    process.kill("KILL").await;
    assert!(!is_alive(pids[0]), "all is over with the answer");
    agent.stop().await;
}

#[tokio::test]
async fn a_kill_spares_the_session_that_a_marked_process_is_in() {
    let agent = agent().await;
    let process = shell(&agent, "echo $SPAWNED_PROCESS; exec sleep 1000").await;
    let (_, event) = process.events().await.next().await.expect("output");
    let mark = String::from_utf8(decode(&event)).unwrap().trim().to_owned();
    // Somebody else's session, with one in it that bears the mark.
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

#[tokio::test]
async fn what_is_stopped_can_end() {
    let agent = agent().await;
    let process = shell(&agent, "trap 'exit 7' TERM; echo up; kill -STOP $$; exit 8").await;
    until("a stop", async || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).ok()?;
        stat.contains(") T ").then_some(())
    })
    .await;
    process.kill("TERM").await;
    assert_eq!(process.output().await.exit_code, 7);
    agent.stop().await;
}

#[tokio::test]
async fn a_terminals_jobs_are_signalled_each_in_its_group() {
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
    all_end(&pids).await;
    agent.stop().await;
}
