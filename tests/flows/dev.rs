//! `berth dev`: starting, starting again, and what is left when it or a part of it dies.

use nix::sys::signal::{Signal, kill};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::dev::{Answer, Dev, State, command, print};
use crate::support::wait::until;

#[tokio::test]
async fn a_second_start_finds_its_state() {
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
async fn a_key_that_was_deleted_is_replaced_at_the_next_start() {
    let dev = Dev::start().await;
    let key = dev.api_key.clone();
    let own = dev.get("/auth/context").await.body["api_key"]["id"]
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
async fn one_state_directory_has_one_user() {
    let dev = Dev::start().await;
    let second = print(command(&dev.state_dir(), &["--json"])).await;
    assert_eq!(
        (second.status.code(), second.stdout.as_str()),
        (Some(1), "")
    );
    let told = format!("is in use by process {}", dev.pid());
    assert!(second.stderr.contains(&told), "{}", second.stderr);
    assert_eq!(dev.get("/browsers").await.status, StatusCode::OK);
    dev.finish().await;
}

#[tokio::test]
async fn what_cannot_be_started_says_so_in_one_line() {
    let state = State::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (options, told) in [
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
        let printed = print(command(&state.path(), options)).await;
        assert!(
            !printed.status.success() && printed.stderr.contains(told),
            "{}",
            printed.stderr
        );
    }
    let mut command = crate::support::dev::berth(&["dev", "--listen", &address, "--state-dir"]);
    command.arg(state.path());
    let printed = print(command).await;
    assert_eq!(printed.status.code(), Some(1));
    assert!(
        printed
            .stderr
            .contains(&format!("cannot listen on {address}")),
        "{}",
        printed.stderr
    );
}

#[tokio::test]
async fn it_tells_people_how_to_begin() {
    let state = State::new();
    let child = tokio::process::Command::from(command(&state.path(), &[]))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().unwrap().cast_signed());
    let lock = state.path().join("dev-key");
    until("it has started", async || lock.exists().then_some(())).await;
    kill(pid, Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().await.unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    for part in ["http://127.0.0.1:", "berth_", "/docs/", "curl -X POST"] {
        assert!(told.contains(part), "{told}");
    }
}

#[tokio::test]
async fn a_crash_leaves_no_process_and_its_browsers_are_gone() {
    let dev = Dev::start().await;
    let headless = dev.browser(json!({"name": "a"})).await;
    let headful = dev.post("/browsers", json!({"name": "b"})).await;
    assert_eq!(headful.status, StatusCode::CREATED, "{}", headful.body);
    assert!(!dev.descendants_with("Xvfb").is_empty());
    // Waits until nothing of it is left.
    let state = dev.crash().await;
    assert_ne!(
        std::fs::read_dir(state.path().join("browsers"))
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
    assert!(!dev.state_dir().join("browsers").exists());
    dev.browser(json!({"name": "a"})).await;
    dev.finish().await;
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_start_leaves_nothing() {
    let dev = Dev::start().await;
    let request = dev
        .request(reqwest::Method::POST, "/browsers")
        .json(&json!({"name": "a"}));
    let starting = tokio::spawn(request.send());
    until("an agent is starting", async || {
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
async fn a_stop_in_the_middle_of_a_start_is_told_and_leaves_nothing() {
    let dev = Dev::start().await;
    let request = dev
        .request(reqwest::Method::POST, "/browsers")
        .json(&json!({"name": "a"}));
    let starting = tokio::spawn(Answer::of(request));
    until("an agent is starting", async || {
        (!dev.descendants_with(" agent ").is_empty()).then_some(())
    })
    .await;
    // Waits until nothing of it is left.
    let state = dev.finish().await;
    let told = starting.await.unwrap();
    told.assert_error(503, "unavailable");
    assert_ne!(told.header("retry-after"), "");
    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn an_agent_that_is_killed_comes_back_with_its_data() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let [agent] = dev.descendants_with(" agent ")[..] else {
        panic!("one agent");
    };
    let marker = dev.state_dir().join("browsers");
    let folder = std::fs::read_dir(&marker)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let data = folder.join("state/user-data/kept");
    std::fs::write(&data, "x").unwrap();

    kill(agent, Signal::SIGKILL).unwrap();
    until("another agent runs", async || {
        let agents = dev.descendants_with(" agent ");
        (agents.len() == 1 && agents[0] != agent).then_some(())
    })
    .await;
    // The first call may still meet the dead one: it is told so, and never waits for ever.
    let version = until("it answers again", async || {
        let answer = dev.get(&format!("{path}/json/version")).await;
        if answer.status != StatusCode::OK {
            assert!(
                matches!(answer.status.as_u16(), 502 | 503),
                "{}",
                answer.body
            );
        }
        (answer.status == StatusCode::OK).then_some(answer.body)
    })
    .await;
    assert!(version["Browser"].is_string());
    assert!(data.exists());
    dev.finish().await;
}

#[tokio::test]
async fn an_agent_that_dies_again_and_again_is_given_up() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let path = format!(
        "/browsers/{}?status=deleted",
        browser["session_id"].as_str().unwrap()
    );
    until("it is given up", async || {
        for agent in dev.descendants_with(" agent ") {
            let _ = kill(agent, Signal::SIGKILL);
        }
        (dev.get(&path).await.status == StatusCode::OK).then_some(())
    })
    .await;
    until("its processes are gone", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn settings_are_checked_without_starting_anything() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let config = folder.path().join("berth.toml");
    std::fs::write(&config, "[dev]\nmax-browsers = 0\n").unwrap();
    let check = |arguments: &[&str]| {
        let mut command = crate::support::dev::berth(&["check"]);
        command.args(arguments).arg("--state-dir").arg(&state);
        print(command)
    };
    for server in ["control", "dev"] {
        let good = check(&[server, "--listen", "127.0.0.1:0"]).await;
        assert!(good.status.success(), "{}", good.stderr);
        let bad = check(&[server, "--chromium", "/nowhere"]).await;
        assert_eq!(bad.status.code(), Some(1));
        assert!(
            bad.stderr.contains("--chromium: /nowhere is not a file"),
            "{}",
            bad.stderr
        );
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
async fn half_sent_requests_do_not_keep_it_from_stopping() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let address = dev.base_url.trim_start_matches("http://");
    let key = &dev.api_key;
    let body_to_come = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 9\r\n\r\n{{"
        )
    };
    let mut held = Vec::new();
    for part in [
        "GET /health HTT".to_owned(),
        body_to_come("/browsers"),
        // This one is the agent's to give up.
        body_to_come(&format!("/browsers/{id}/automation/execute")),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(part.as_bytes()).await.unwrap();
        held.push(stream);
    }
    // Connections are taken in their order.
    assert_eq!(dev.get("/browsers").await.status, 200);
    dev.finish().await;
    let mut answer = String::new();
    let _ = held[2].read_to_string(&mut answer).await;
    // 502 where the agent was stopped before it had read the head.
    let refused = ["HTTP/1.1 503 ", "HTTP/1.1 502 "];
    assert!(
        refused.iter().any(|status| answer.starts_with(status)),
        "{answer}"
    );
}

#[tokio::test]
async fn what_agents_log_is_in_its_log_by_request_and_browser() {
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
    let answer = Answer::of(execute.json(&json!({"code": "return 'typed-secret'"}))).await;
    answer.assert_error(503, "unavailable");
    let told = |parts: &[&str]| {
        let log = dev.log();
        let found = log
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        found.then_some(())
    };
    let trace = format!("trace=\"{TRACE}\"");
    for parts in [
        // Its own level, and what it says.
        &["ERROR", "cannot start a script worker", "request=\"running-1\"", &trace][..],
        // What control itself asked of it.
        &["INFO", "answered", "request=\"making-1\"", "/json/version"],
        // Outside of any request.
        &["WARN", "a script worker did not start"],
    ] {
        let parts = [&["berth_agent", id], parts].concat();
        until(&format!("a line with {parts:?}"), async || told(&parts)).await;
    }
    let log = dev.log();
    assert!(!log.contains("typed-secret") && !log.contains(&dev.api_key));
    dev.finish().await;
}

#[tokio::test]
async fn agents_follow_their_table_of_the_configuration_file_and_requests_win_over_it() {
    let state = State::new();
    std::fs::create_dir(state.path()).unwrap();
    let file = state.path().with_file_name("berth.toml");
    std::fs::write(
        &file,
        "[dev]\nmax-browsers = 3\n[control]\nkeep-days = 1\n[agent]\nheadless = true\n\
         chromium-flag = [\"--user-agent=Told by the file\"]\n",
    )
    .unwrap();
    let dev = Dev::start_in(state, &["--config", file.to_str().unwrap()]).await;
    let made = dev.post("/browsers", json!({"name": "a"})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert!(!dev.descendants_with("Xvfb").is_empty());
    let version = dev.get("/browsers/a/json/version").await.body;
    assert_eq!(version["User-Agent"], "Told by the file");
    dev.finish().await;
}

#[tokio::test]
async fn flags_for_chromium_are_checked_before_it_starts() {
    let checked = |flag: &str| {
        let option = format!("--chromium-flag={flag}");
        print(crate::support::dev::berth(&["check", "control", &option]))
    };
    let good = checked("--user-agent=My Agent").await;
    assert!(good.status.success(), "{}", good.stderr);
    let bad = checked("--user-data-dir=/tmp").await;
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        bad.stderr
            .contains("--chromium-flag: --user-data-dir is set by the agent itself"),
        "{}",
        bad.stderr
    );
}
