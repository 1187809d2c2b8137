//! `berth dev`: start, restart, and recovery after crashes of it or of an agent.

use std::fs;

use berth::api::ids::ReplayId;
use nix::sys::signal::{Signal, kill};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    dev::{Answer, Dev, State, command},
    printed::print,
    processes,
    wait::until,
};

#[tokio::test]
async fn restart_keeps_state() {
    let dev = Dev::start().await;
    let key = dev.api_key.clone();
    let browser = dev.browser(json!({"name": "n"})).await;
    let state = dev.finish().await;

    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.api_key, key);
    let listed = dev.get("/browsers?status=all").await.body;
    assert_eq!(listed[0]["session_id"], browser["session_id"]);
    assert!(listed[0]["deleted_at"].is_string());
    dev.browser(json!({"name": "n"})).await;
    dev.finish().await;
}

#[tokio::test]
async fn empty_database_beside_replays_is_refused() {
    let state = State::new();
    let replays = state.path().join("blobs/replays");
    fs::create_dir_all(&replays).unwrap();
    let replay = replays.join("rep_01jd0000000000000000000000.mp4");
    fs::write(&replay, "video").unwrap();
    fs::write(state.path().join("lock"), "").unwrap();
    for _ in 0..2 {
        let output = print(command(&state.path(), &[])).await;
        assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
        assert!(output.stderr.contains("is empty, but"), "{}", output.stderr);
        assert_eq!(fs::read_to_string(&replay).unwrap(), "video");
    }
    fs::rename(&replays, state.path().join("moved")).unwrap();
    Dev::start_in(state, &[]).await.finish().await;
}

#[tokio::test]
async fn session_secret_of_another_length_is_refused() {
    let state = Dev::start().await.finish().await;
    let secret = state.path().join("session-secret");
    fs::write(&secret, "a").unwrap();
    let output = print(command(&state.path(), &[])).await;
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let expected = "session-secret must contain 64 hexadecimal digits; it has 1 characters";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "a");
}

#[tokio::test]
async fn damaged_database_log_loses_no_key_and_no_replay() {
    let dev = Dev::start().await;
    let key = dev.api_key.clone();
    let replays = dev.state_dir().join("blobs/replays");
    fs::create_dir_all(&replays).unwrap();
    let replay = replays.join("rep_01jd0000000000000000000000.mp4");
    fs::write(&replay, "video").unwrap();
    let state = dev.crash().await;
    let log = state.path().join("berth.db-wal");
    let mut damaged = fs::read(&log).unwrap();
    // In the header of the first frame, so that SQLite ignores all of them.
    damaged[40] ^= 1;
    fs::write(&log, damaged).unwrap();

    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.api_key, key);
    assert_eq!(dev.get("/browsers").await.status, StatusCode::OK);
    assert_eq!(fs::read_to_string(&replay).unwrap(), "video");
    dev.finish().await;
}

#[tokio::test]
async fn frozen_agent_is_killed_within_the_grace_period_of_a_shutdown() {
    let dev = Dev::with(&["--stop-seconds", "10"]).await;
    let browser = dev.browser(json!({})).await;
    // A recording that the agent does not transfer.
    let (id, replay) = (
        browser["session_id"].as_str().unwrap(),
        ReplayId::generate(),
    );
    dev.sql(&format!(
        "INSERT INTO replays (id, project_id, browser_id, state, started_at) \
         SELECT '{replay}', project_id, id, 'recording', 0 FROM browsers WHERE id = '{id}'"
    ))
    .await;
    let agent = dev.only_agent().await;
    processes::stop(agent.as_raw().cast_unsigned()).await;
    dev.finish().await;
}

#[tokio::test]
async fn deleted_dev_key_is_replaced_on_restart() {
    let dev = Dev::start().await;
    let key = dev.api_key.clone();
    let own = dev.get("/auth/context").await.body["principal"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    dev.delete(&format!("/org/api_keys/{own}")).await;
    dev.get("/browsers").await.assert_error(401, "unauthorized");
    let dev = Dev::start_in(dev.finish().await, &[]).await;
    assert_ne!(dev.api_key, key);
    assert_eq!(dev.get("/browsers").await.status, StatusCode::OK);
    dev.finish().await;
}

#[tokio::test]
async fn second_process_on_state_directory_is_refused() {
    let dev = Dev::start().await;
    let second = print(command(&dev.state_dir(), &["--json"])).await;
    assert_eq!(
        (second.status.code(), second.stdout.as_str()),
        (Some(1), "")
    );
    let message = format!("is in use by process {}", dev.pid());
    assert!(second.stderr.contains(&message), "{}", second.stderr);
    assert_eq!(dev.get("/browsers").await.status, StatusCode::OK);
    dev.finish().await;
}

#[tokio::test]
async fn invalid_start_reports_the_error() {
    let state = State::new();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap().to_string();
    for (options, message) in [
        (
            &["--agent-program", "/nowhere"][..],
            "--agent-program: /nowhere is not a file",
        ),
        (
            &["--public-url", "ftp://x"],
            "--public-url: must be an http or https URL",
        ),
        (&["--max-browsers", "0"], "--max-browsers"),
    ] {
        let output = print(command(&state.path(), options)).await;
        assert!(
            !output.status.success() && output.stderr.contains(message),
            "{}",
            output.stderr
        );
    }
    let mut command = crate::support::dev::berth(&["dev", "--listen", &address, "--state-dir"]);
    command.arg(state.path());
    let output = print(command).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output
            .stderr
            .contains(&format!("cannot listen on {address}")),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn start_prints_instructions() {
    let state = State::new();
    let child = tokio::process::Command::from(command(&state.path(), &[]))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().unwrap().cast_signed());
    let lock = state.path().join("dev-key");
    until("the start", async || lock.exists().then_some(())).await;
    kill(pid, Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "http://127.0.0.1:",
        "berth_",
        "Console",
        "/docs/",
        "curl -X POST",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn crash_leaves_no_process_and_no_active_browser() {
    let dev = Dev::start().await;
    let headless = dev.browser(json!({"name": "a"})).await;
    let headful = dev.post("/browsers", json!({"name": "b"})).await;
    assert_eq!(headful.status, StatusCode::CREATED, "{}", headful.body);
    assert!(!dev.descendants_with("Xvfb").is_empty());
    // Waits until no process is left.
    let state = dev.crash().await;
    assert_ne!(
        std::fs::read_dir(state.path().join("hosts"))
            .unwrap()
            .count(),
        0
    );

    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.get("/browsers").await.body, json!([]));
    let gone = dev
        .get(&format!(
            "/browsers/{}?status=deleted",
            headless["session_id"].as_str().unwrap()
        ))
        .await;
    assert!(gone.body["deleted_at"].is_string(), "{}", gone.body);
    let directory = dev.state_dir().join("hosts");
    until("the removal of the hosts' directories", async || {
        let mut entries = std::fs::read_dir(&directory).unwrap();
        entries.next().is_none().then_some(())
    })
    .await;
    dev.browser(json!({"name": "a"})).await;
    dev.finish().await;
}

#[tokio::test]
async fn crash_during_browser_start_leaves_nothing() {
    let dev = Dev::start().await;
    let request = dev
        .request(reqwest::Method::POST, "/browsers")
        .json(&json!({"name": "a"}));
    let starting = tokio::spawn(request.send());
    until("the start of an agent", async || {
        (!dev.descendants_with(" agent ").is_empty()).then_some(())
    })
    .await;
    let state = dev.crash().await;
    assert!(starting.await.unwrap().is_err());
    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn shutdown_during_browser_start_is_503_and_leaves_nothing() {
    let dev = Dev::start().await;
    let request = dev
        .request(reqwest::Method::POST, "/browsers")
        .json(&json!({"name": "a"}));
    let starting = tokio::spawn(Answer::of(request));
    until("the start of an agent", async || {
        (!dev.descendants_with(" agent ").is_empty()).then_some(())
    })
    .await;
    // Waits until no process is left.
    let state = dev.finish().await;
    let refused = starting.await.unwrap();
    refused.assert_error(503, "unavailable");
    assert_ne!(refused.header("retry-after"), "");
    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn killed_agent_is_restarted_with_its_data() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let agent = dev.only_agent().await;
    let marker = dev.state_dir().join("hosts");
    let directory = std::fs::read_dir(&marker)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let data = directory.join("state/sessions/1/user-data/kept");
    std::fs::write(&data, "x").unwrap();

    kill(agent, Signal::SIGKILL).unwrap();
    until("another agent", async || {
        let agents = dev.descendants_with(" agent ");
        (agents.len() == 1 && agents[0] != agent).then_some(())
    })
    .await;
    // A call may still reach the dead agent: it gets an error and does not hang.
    let version = until("a response of the new agent", async || {
        let response = dev.get(&format!("{path}/json/version")).await;
        if response.status != StatusCode::OK {
            assert!(
                matches!(response.status.as_u16(), 502 | 503),
                "{}",
                response.body
            );
        }
        (response.status == StatusCode::OK).then_some(response.body)
    })
    .await;
    assert!(version["Browser"].is_string());
    assert!(data.exists());
    dev.finish().await;
}

#[tokio::test]
async fn browser_of_repeatedly_dying_agent_is_deleted() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let path = format!(
        "/browsers/{}?status=deleted",
        browser["session_id"].as_str().unwrap()
    );
    until("the deletion of the browser", async || {
        for agent in dev.descendants_with(" agent ") {
            let _ = kill(agent, Signal::SIGKILL);
        }
        (dev.get(&path).await.status == StatusCode::OK).then_some(())
    })
    .await;
    until("the end of the processes", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn check_command_validates_settings_without_starting() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let config = directory.path().join("berth.toml");
    std::fs::write(&config, "[dev]\nmax-browsers = 0\n").unwrap();
    let check = |arguments: &[&str]| {
        let mut command = crate::support::dev::berth(&["check"]);
        command.args(arguments).arg("--state-dir").arg(&state);
        print(command)
    };
    for server in ["control", "dev"] {
        let valid = check(&[server, "--listen", "127.0.0.1:0"]).await;
        assert!(valid.status.success(), "{}", valid.stderr);
        let invalid = check(&[server, "--chromium", "/nowhere"]).await;
        assert_eq!(invalid.status.code(), Some(1));
        assert!(
            invalid
                .stderr
                .contains("--chromium: /nowhere is not a file"),
            "{}",
            invalid.stderr
        );
        for (option, is_valid) in [
            ("--allow-http-logins", true),
            ("--allow-http-logins=false", true),
            ("--allow-http-logins=sometimes", false),
        ] {
            let checked = check(&[server, option]).await;
            let (valid, error) = (checked.status.success(), checked.stderr);
            assert_eq!(valid, is_valid, "{option}: {error}");
        }
    }
    let file = check(&["dev", "--config", config.to_str().unwrap()]).await;
    assert!(
        !file.status.success() && file.stderr.contains("max-browsers"),
        "{}",
        file.stderr
    );
    assert!(!state.exists());
}

#[tokio::test]
async fn incomplete_requests_do_not_delay_shutdown() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let address = dev.base_url.trim_start_matches("http://");
    let key = &dev.api_key;
    let head_without_body = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 9\r\n\r\n{{"
        )
    };
    let mut connections = Vec::new();
    for part in [
        "GET /health HTT".to_owned(),
        head_without_body("/browsers"),
        // The agent must abort this one.
        head_without_body(&format!("/browsers/{id}/automation/execute")),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(part.as_bytes()).await.unwrap();
        connections.push(stream);
    }
    // Connections are accepted in order.
    assert_eq!(dev.get("/browsers").await.status, 200);
    dev.finish().await;
    let mut response = String::new();
    let _ = connections[2].read_to_string(&mut response).await;
    // 502 if the agent was stopped before it read the head.
    let refused = ["HTTP/1.1 503 ", "HTTP/1.1 502 "];
    // Requests end with their browser, which control may have ended before.
    let has_ended =
        response.starts_with("HTTP/1.1 404 ") && response.contains(r#""code":"not_found""#);
    assert!(
        has_ended || refused.iter().any(|status| response.starts_with(status)),
        "{response}"
    );
}

#[tokio::test]
async fn agent_logs_are_included_with_request_and_browser() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let dev = Dev::with(&["--script-worker", "/bin/false"]).await;
    let create = dev.request(Method::POST, "/browsers");
    let create = create.header("x-request-id", "making-1");
    let browser = Answer::of(create.json(&json!({"headless": true}))).await;
    let id = browser.body["session_id"].as_str().unwrap();
    let execute = dev.request(Method::POST, &format!("/browsers/{id}/automation/execute"));
    let execute = execute
        .header("x-request-id", "running-1")
        .header("traceparent", traceparent);
    let response = Answer::of(execute.json(&json!({"code": "return 'typed-secret'"}))).await;
    response.assert_error(503, "unavailable");
    let find_line = |parts: &[&str]| {
        let log = dev.log();
        let is_found = log
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        is_found.then_some(())
    };
    let trace = format!("trace=\"{TRACE}\"");
    for parts in [
        // With its own level and message.
        &[
            "ERROR",
            "cannot start a script worker",
            "request=\"running-1\"",
            &trace,
        ][..],
        // A request of the control plane itself.
        &[
            "INFO",
            "request completed",
            "request=\"making-1\"",
            "/json/version",
        ],
        // Not part of a request.
        &["WARN", "script worker did not start"],
    ] {
        let parts = [&["berth_agent", id], parts].concat();
        until(&format!("a line with {parts:?}"), async || {
            find_line(&parts)
        })
        .await;
    }
    let log = dev.log();
    assert!(!log.contains("typed-secret") && !log.contains(&dev.api_key));
    dev.finish().await;
}

#[tokio::test]
async fn agents_use_configuration_file_and_request_overrides_it() {
    let state = State::new();
    std::fs::create_dir(state.path()).unwrap();
    let file = state.path().with_file_name("berth.toml");
    std::fs::write(
        &file,
        "[dev]\nmax-browsers = 3\n[control]\nkeep-days = 1\n[agent]\nheadless = true\n\
         chromium-flag = [\"--user-agent=From the file\"]\n",
    )
    .unwrap();
    let dev = Dev::start_in(state, &["--config", file.to_str().unwrap()]).await;
    let created = dev.post("/browsers", json!({"name": "a"})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    assert!(!dev.descendants_with("Xvfb").is_empty());
    let version = dev.get("/browsers/a/json/version").await.body;
    assert_eq!(version["User-Agent"], "From the file");
    dev.finish().await;
}

#[tokio::test]
async fn chromium_flags_are_validated_at_start() {
    let check_flag = |flag: &str| {
        let option = format!("--chromium-flag={flag}");
        print(crate::support::dev::berth(&["check", "control", &option]))
    };
    let valid = check_flag("--user-agent=My Agent").await;
    assert!(valid.status.success(), "{}", valid.stderr);
    let invalid = check_flag("--user-data-dir=/tmp").await;
    assert_eq!(invalid.status.code(), Some(1));
    assert!(
        invalid
            .stderr
            .contains("--chromium-flag: --user-data-dir is set by the agent itself"),
        "{}",
        invalid.stderr
    );
}
