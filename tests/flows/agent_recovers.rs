//! Recovery of the agent: crashed processes are restarted, leftovers of a crash prevent no start,
//! and no process outlives the agent.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::PathBuf,
};

use nix::{
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    processes,
    scripts::{result_of, start},
    wait::until,
    websocket::Client,
};

#[tokio::test]
async fn killed_agent_leaves_no_processes_and_the_next_one_starts() {
    let agent = Start::on_screen().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    // A tab in an endless loop: its process cannot notice that its browser has gone.
    let busy = json!({"url": "data:text/html,<script>for(;;);</script>"});
    client.call("Target.createTarget", busy).await;
    let running = processes::naming(&agent.state_dir());
    assert!(
        running
            .iter()
            .any(|process| process.command.contains("Xvfb"))
    );
    assert!(
        running
            .iter()
            .any(|process| process.command.contains("--type=zygote"))
    );
    let directory = agent.kill().await;
    assert!(
        directory
            .path()
            .join("state/sessions/1/user-data/SingletonLock")
            .is_symlink()
    );
    let agent = TestAgent::again(directory).ready().await;
    agent.stop().await;
}

#[tokio::test]
async fn killed_x_server_is_restarted_together_with_chromium() {
    let agent = Start::on_screen().ready().await;
    let client = Client::connect(&agent.ws_url("/cdp")).await;
    let killed = agent.display_pid().await;
    processes::signal(killed, Signal::SIGKILL);
    let close = client.closed().await.expect("a Close frame");
    assert_eq!(u16::from(close.code), 4001, "{close:?}");
    let status = agent
        .chromium_when("the second start", |status| status["generation"] == 2)
        .await;
    assert_eq!(status["state"], "running");
    assert_ne!(agent.display_pid().await, killed);
    agent.stop().await;
}

#[tokio::test]
async fn leftovers_of_a_crash_prevent_no_start() {
    let start = Start::on_screen();
    let user_data = start.state_dir().join("sessions/1").join("user-data");
    fs::create_dir_all(user_data.join("Default")).unwrap();
    // A lock of a host with another name, whose process cannot be examined.
    symlink("elsewhere-1", user_data.join("SingletonLock")).unwrap();
    symlink(
        "/nowhere/SingletonSocket",
        user_data.join("SingletonSocket"),
    )
    .unwrap();
    // A stale port, on which no process or another one may listen.
    let stale = "1\n/devtools/browser/00000000-0000-0000-0000-000000000000";
    fs::write(user_data.join("DevToolsActivePort"), stale).unwrap();
    fs::write(user_data.join("Local State"), "{\"browser\":{\"ena").unwrap();
    fs::write(
        user_data.join("Default/Preferences"),
        "{\"profile\":{\"exit_ty",
    )
    .unwrap();
    let agent = start.ready().await;
    assert_eq!(agent.chromium_number("generation").await, 1);
    agent.stop().await;
}

/// Files with the names of X servers' locks, as any user of the machine may create them. They are
/// removed on drop.
struct ForeignXLocks(Vec<PathBuf>);

impl ForeignXLocks {
    fn create() -> Self {
        // No X server has such a high number.
        let first = 1_000_000 + 10 * u64::from(std::process::id());
        let path = |index: u64| PathBuf::from(format!("/tmp/.X{}-lock", first + index));
        let locks: Vec<PathBuf> = (0..5).map(path).collect();
        for lock in &locks {
            let _ = fs::remove_file(lock);
        }
        mkfifo(&locks[0], Mode::S_IRWXU).unwrap();
        symlink(&locks[0], &locks[1]).unwrap();
        drop(UnixListener::bind(&locks[2]).unwrap());
        let huge = fs::File::create(&locks[3]).unwrap();
        huge.set_len(1 << 40).unwrap();
        fs::write(&locks[4], format!("{:>10}\n", std::process::id())).unwrap();
        ForeignXLocks(locks)
    }
}

impl Drop for ForeignXLocks {
    fn drop(&mut self) {
        for lock in &self.0 {
            let _ = fs::remove_file(lock);
        }
    }
}

#[tokio::test]
async fn x_locks_of_other_users_are_neither_read_nor_removed() {
    let locks = ForeignXLocks::create();
    let agent = Start::screen_alone().await;
    assert!(locks.0.iter().all(|lock| lock.symlink_metadata().is_ok()));
    agent.stop().await;
}

#[tokio::test]
async fn chromium_with_much_output_is_not_blocked() {
    use std::os::unix::fs::PermissionsExt;
    let start = Start::headless();
    fs::create_dir_all(start.state_dir()).unwrap();
    let wrapper = start.state_dir().join("chatty-chromium");
    let script = "#!/bin/sh\n\
        head -c 10000000 /dev/zero | tr '\\0' x >&2\n\
        head -c 10000000 /dev/zero | tr '\\0' x\n\
        exec /usr/lib/chromium/chromium \"$@\"\n";
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = start
        .with(["--chromium", wrapper.to_str().unwrap()])
        .ready()
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn chromium_that_does_not_start_is_retried_and_the_status_has_the_reason() {
    let agent = Start::headless()
        .with(["--chromium", "/bin/false"])
        .listening()
        .await;
    let status = agent
        .chromium_when("the reason", |status| status["reason"].is_string())
        .await;
    assert_eq!(status["state"], "restarting");
    assert!(
        status["reason"]
            .as_str()
            .unwrap()
            .contains("ended while starting"),
        "{status}"
    );
    agent.stop().await;
}

#[tokio::test]
async fn state_directory_in_use_is_refused() {
    let agent = Start::headless().listening().await;
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["agent", "--listen", "127.0.0.1:0", "--state-dir"])
        .arg(agent.state_dir())
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("another agent uses"), "{stderr}");
    agent.stop().await;
}

#[tokio::test]
async fn all_errors_in_the_settings_are_reported_at_once() {
    let state_dir = Start::on_screen().state_dir();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["agent", "--state-dir"])
        .arg(&state_dir)
        .args(["--listen", "0.0.0.0:0"])
        .args(["--viewport", "9x9"])
        .args(["--start-url", "javascript:alert(1)"])
        .args(["--chromium", "/nowhere/chromium"])
        .args(["--chromium-flag=--remote-debugging-port=1"])
        .args(["--xvfb", "/nowhere/Xvfb"])
        .args(["--max-cdp-clients", "0"])
        .args(["--cdp-hold-seconds", "soon"])
        .args(["--token-file", "/nowhere/token"])
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for option in [
        "--listen:",
        "--viewport:",
        "--start-url:",
        "--chromium:",
        "--chromium-flag:",
        "--xvfb:",
        "--max-cdp-clients:",
        "--cdp-hold-seconds:",
        "--token-file:",
    ] {
        assert!(stderr.contains(option), "{option} is not in {stderr}");
    }
    assert!(!state_dir.exists(), "nothing was started");
}

#[tokio::test]
async fn token_file_readable_by_others_is_refused_and_a_private_one_accepted() {
    use std::os::unix::fs::PermissionsExt;
    let start = Start::headless().without_token();
    fs::create_dir_all(start.state_dir()).unwrap();
    let file = start.state_dir().join("token");
    fs::write(&file, format!("{}\n", crate::support::agent::TOKEN)).unwrap();
    let start = start.with(["--token-file", file.to_str().unwrap()]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = start.command().output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("can be read by others"), "{stderr}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let agent = start.listening().await;
    agent.ok(agent.get("/chromium")).await;
    agent.stop().await;
}

#[tokio::test]
async fn child_processes_do_not_get_the_token() {
    let agent = Start::on_screen().ready().await;
    for process in processes::naming(&agent.state_dir()) {
        if process.pid == agent.pid() {
            continue;
        }
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        assert!(
            !environment.contains(crate::support::agent::TOKEN)
                && !process.command.contains(crate::support::agent::TOKEN),
            "{}",
            process.command
        );
    }
    agent.stop().await;
}

#[tokio::test]
async fn x_server_killed_during_a_script_is_reported_and_the_next_call_succeeds() {
    let agent = Start::on_screen().ready().await;
    let running = start(
        &agent,
        "await new Promise(() => {})",
        json!({"timeout_sec": 300}),
    )
    .await;
    processes::signal(agent.display_pid().await, Signal::SIGKILL);
    let answer = running.await.unwrap();
    assert_eq!(answer["success"], false, "{answer}");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("browser went away"), "{error}");
    let code = "await page.goto('data:text/html,<title>right</title>'); return await page.title()";
    assert_eq!(result_of(&agent, code).await, "right");
    agent.stop().await;
}

#[tokio::test]
async fn agent_that_is_started_again_keeps_the_screen_size_and_start_page_of_the_session() {
    const PAGE: &str = "data:text/html,<title>kept</title>";
    let agent = Start::headless().ready().await;
    let viewport = json!({"width": 640, "height": 480, "refresh_rate": 30});
    agent.ok(agent.put("/display").json(&viewport)).await;
    let url = json!({"url": PAGE});
    agent.ok(agent.put("/chromium/start_url").json(&url)).await;
    let directory = agent.kill().await;
    let agent = TestAgent::again(directory).ready().await;
    let health = agent.ok(agent.get("/health")).await;
    assert_eq!(health["display"]["viewport"], viewport, "{health}");
    until("the start page", async || {
        let pages = agent.ok(agent.get("/json/list")).await;
        (pages[0]["url"] == PAGE).then_some(())
    })
    .await;

    // The next session begins as the agent is configured.
    let end = json!({"generation": 1});
    agent.ok(agent.post("/session/end").json(&end)).await;
    agent.ready().await;
    let health = agent.ok(agent.get("/health")).await;
    assert_ne!(health["display"]["viewport"], viewport, "{health}");
    let pages = agent.ok(agent.get("/json/list")).await;
    assert_eq!(pages[0]["url"], "about:blank", "{pages}");
    agent.stop().await;
}
