//! Hosts that control launches and destroys with commands.

use std::{fs, os::unix::fs::symlink};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, BERTH, Dev, State, command_of},
    engine::TestEngine,
    fleet_agent::{fleet_control_in, host_when},
    printed::print,
    wait::until,
};

async fn start(state: State, engine: &TestEngine, options: &[&str]) -> Dev {
    let options = engine.options(options);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    fleet_control_in(state, &options).await
}

/// Starts control again at the same address.
async fn start_again(state: State, url: &str, engine: &TestEngine, options: &[&str]) -> Dev {
    let address = url.trim_start_matches("http://");
    start(state, engine, &[&["--listen", address], options].concat()).await
}

/// Creates a browser, which is refused for want of a host.
async fn refused(dev: &Dev) {
    let answer = dev.post("/browsers", json!({"headless": true})).await;
    answer.assert_error(503, "unavailable");
}

/// Creates a browser, for which a host is launched, and again when that is ready.
async fn browser(dev: &Dev) -> Value {
    refused(dev).await;
    host_when(dev, "a ready host", |host| host["state"] == "ready").await;
    dev.browser(json!({})).await
}

async fn delete(dev: &Dev, browser: &Value) {
    let path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let deleted = dev.delete(&path).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
}

/// Waits until the launches are in these states.
async fn launches_are(dev: &Dev, states: &[&str]) {
    until("launches", async || {
        let rows = dev
            .rows("SELECT state FROM host_launches ORDER BY id")
            .await;
        let found: Vec<String> = rows
            .iter()
            .map(|row| row.try_get("", "state").unwrap())
            .collect();
        (found == states).then_some(())
    })
    .await;
}

/// Returns the number of launches that a metric counts.
async fn counted(dev: &Dev, event: &str) -> u64 {
    let text = dev.request(Method::GET, "/metrics").send().await.unwrap();
    let text = text.text().await.unwrap();
    let name = format!("berth_host_launches_total{{event=\"{event}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().unwrap())
}

/// Waits until the audit log has the registration of a launch, and returns it.
async fn audit_log(dev: &Dev, launch: &str) -> String {
    let path = "/audit-logs?start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z&limit=100";
    until("the registration in the audit log", async || {
        let found = dev.get(path).await.body.to_string();
        (found.contains("register_host") && found.contains(launch)).then_some(found)
    })
    .await
}

#[tokio::test]
async fn browser_without_a_host_gets_a_launched_one_that_is_destroyed_when_idle() {
    let engine = TestEngine::new();
    let options = [
        "--max-launched-hosts",
        "1",
        "--launched-host-idle-seconds",
        "5",
        "--log",
        "trace,hyper=info,sqlx=debug",
    ];
    let dev = start(State::new(), &engine, &options).await;
    let created = browser(&dev).await;
    let [launch] = &engine.lines("launched")[..] else {
        panic!("{:?}", engine.lines("launched"));
    };
    let host = host_when(&dev, "a leased host", |host| host["state"] == "leased").await;
    assert_eq!(host["labels"], json!({ "launch_id": launch }));
    let execute = format!(
        "/browsers/{}/automation/execute",
        created["session_id"].as_str().unwrap()
    );
    let run = dev.post(&execute, json!({"code": "return 1"})).await;
    assert_eq!(run.body["result"], 1, "{}", run.body);
    // The limit is reached.
    refused(&dev).await;
    assert_eq!(dev.get("/fleet/join_tokens").await.body, json!([]));
    delete(&dev, &created).await;
    engine.has_destroyed(1).await;
    launches_are(&dev, &[]).await;
    assert_eq!(
        engine.lines("destroyed"),
        [format!("{launch} engine-{launch}")]
    );
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    for (event, expected) in [("started", 1), ("destroyed", 1), ("failed", 0)] {
        assert_eq!(counted(&dev, event).await, expected, "{event}");
    }

    // The command has printed its input on standard error.
    let token = engine.lines("tokens").remove(0);
    assert!(token.starts_with("berth_join_"), "{token}");
    let audit = audit_log(&dev, launch).await;
    let argv = engine.lines("argv").join("\n");
    let state = dev.finish().await;
    let log = fs::read_to_string(state.log()).unwrap();
    assert!(log.contains("[join token]"), "{log}");
    for output in [argv, audit, log] {
        assert!(!output.contains(&token), "{output}");
    }
}

#[tokio::test]
async fn launch_that_fails_hangs_or_never_joins_is_destroyed_and_repeated() {
    let engine = TestEngine::new();
    let options = [
        "--max-launched-hosts",
        "1",
        "--launch-seconds",
        "4",
        // A loaded machine needs some seconds for a browser.
        "--launched-host-join-seconds",
        "15",
        "--launched-host-idle-seconds",
        "600",
    ];
    let dev = start(State::new(), &engine, &options).await;
    for (count, mode) in ["fail", "hang", "absent"].into_iter().enumerate() {
        engine.set_mode(mode);
        // Launched after the pause that follows a failure.
        refused(&dev).await;
        until("its end", async || {
            (engine.lines("destroyed").len() > count).then_some(())
        })
        .await;
        launches_are(&dev, &[]).await;
        assert!(engine.machines().is_empty());
    }
    let launched = engine.lines("launched");
    let expected = [
        format!("{} none", launched[0]),
        format!("{} none", launched[1]),
        format!("{0} engine-{0}", launched[2]),
    ];
    assert_eq!(engine.lines("destroyed"), expected);
    assert_eq!(counted(&dev, "started").await, 3);
    assert_eq!(counted(&dev, "failed").await, 2);
    assert_eq!(counted(&dev, "destroyed").await, 3);
    let log = dev.log();
    assert!(log.contains("exit status: 7"), "{log}");
    assert!(log.contains("within 4 s"), "{log}");
    // The tokens of launches that have ended open nothing.
    for token in engine.lines("tokens") {
        let request = dev.anonymous(Method::POST, "/fleet/hosts").json(&json!({}));
        let answer = Answer::of(request.bearer_auth(token)).await;
        answer.assert_error(401, "unauthorized");
    }
    engine.set_mode("join");
    let created = browser(&dev).await;
    delete(&dev, &created).await;
    dev.finish().await;
}

#[tokio::test]
async fn launched_host_that_is_retired_lost_or_deleted_is_destroyed() {
    let engine = TestEngine::new();
    let dev = start(State::new(), &engine, &["--max-launched-hosts", "1"]).await;
    for (count, end) in ["tainted", "lost", "deleted"].into_iter().enumerate() {
        let created = browser(&dev).await;
        match end {
            "tainted" => {
                let id = created["session_id"].as_str().unwrap();
                let as_root = nix::unistd::geteuid().is_root();
                let program = json!({"command": "true", "as_root": as_root});
                let path = format!("/browsers/{id}/process/exec");
                let done = dev.post(&path, program).await;
                assert_eq!(done.status, StatusCode::OK, "{}", done.body);
                delete(&dev, &created).await;
            }
            "lost" => {
                let group = engine.machine().await;
                killpg(Pid::from_raw(group), Signal::SIGKILL).unwrap();
            }
            _ => {
                let host = host_when(&dev, "a host", |host| host["state"] == "leased").await;
                let path = format!("/fleet/hosts/{}", host["id"].as_str().unwrap());
                assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
            }
        }
        engine.has_destroyed(count + 1).await;
        launches_are(&dev, &[]).await;
        assert_eq!(dev.get("/fleet/hosts").await.body, json!([]), "{end}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn launch_that_a_crash_has_interrupted_is_destroyed_by_the_next_process() {
    let engine = TestEngine::new();
    let options = ["--max-launched-hosts", "1", "--launch-seconds", "1"];
    engine.set_mode("hang");
    let long = ["--max-launched-hosts", "1", "--launch-seconds", "600"];
    let dev = start(State::new(), &engine, &long).await;
    refused(&dev).await;
    engine.machine().await;
    launches_are(&dev, &["launching"]).await;
    let (url, state) = (dev.base_url.clone(), dev.crash().await);
    assert_eq!(engine.machines().len(), 1);

    let dev = start_again(state, &url, &engine, &options).await;
    engine.has_destroyed(1).await;
    launches_are(&dev, &[]).await;
    let launch = &engine.lines("launched")[0];
    assert_eq!(engine.lines("destroyed"), [format!("{launch} none")]);

    // An orderly shutdown does not wait for the command.
    refused(&dev).await;
    engine.machine().await;
    let state = dev.finish().await;
    let dev = start_again(state, &url, &engine, &options).await;
    engine.has_destroyed(2).await;
    launches_are(&dev, &[]).await;
    dev.finish().await;
}

#[tokio::test]
async fn host_that_joins_after_a_crash_is_used_and_destroyed_after_another_crash() {
    let engine = TestEngine::new();
    let options = ["--max-launched-hosts", "1"];
    fs::write(engine.path("off"), "").unwrap();
    let dev = start(State::new(), &engine, &options).await;
    refused(&dev).await;
    launches_are(&dev, &["launched"]).await;
    let (url, state) = (dev.base_url.clone(), dev.crash().await);
    let dev = start_again(state, &url, &engine, &options).await;
    fs::remove_file(engine.path("off")).unwrap();
    host_when(&dev, "a ready host", |host| host["state"] == "ready").await;
    let created = dev.browser(json!({})).await;
    assert_eq!(engine.lines("launched").len(), 1);

    fs::write(engine.path("hold"), "").unwrap();
    let host = host_when(&dev, "a host", |host| host["state"] == "leased").await;
    let path = format!("/fleet/hosts/{}", host["id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
    let launch = engine.lines("launched").remove(0);
    let marker = engine.path(&format!("destroying-{launch}"));
    until("the destroy command", async || {
        marker.exists().then_some(())
    })
    .await;
    let state = dev.crash().await;
    assert_eq!(engine.machines().len(), 1);
    fs::remove_file(engine.path("hold")).unwrap();
    let dev = start_again(state, &url, &engine, &options).await;
    engine.has_destroyed(1).await;
    launches_are(&dev, &[]).await;
    let path = format!("/browsers/{}", created["session_id"].as_str().unwrap());
    dev.get(&path).await.assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn commands_without_each_other_the_fleet_or_a_url_are_refused() {
    let engine = TestEngine::new();
    let (launch, destroy) = (engine.path("launch"), engine.path("destroy"));
    let launch = ["--launch-command", launch.to_str().unwrap()];
    let destroy = ["--destroy-command", destroy.to_str().unwrap()];
    let fleet = ["--fleet", "registered"];
    let both = [launch, destroy].concat();
    for (options, message) in [
        ([&launch[..], &fleet].concat(), "one needs the other"),
        ([&destroy[..], &fleet].concat(), "one needs the other"),
        (both.clone(), "need --fleet registered"),
        (
            [&both[..], &fleet, &["--listen", "0.0.0.0:0"]].concat(),
            "need --public-url",
        ),
        (
            [&launch[..], &["--destroy-command", "/nowhere"], &fleet].concat(),
            "/nowhere is not a file",
        ),
    ] {
        let state = State::new();
        let command = state.command(&[&["control"], &options[..]].concat());
        let printed = print(command).await;
        assert_eq!(printed.status.code(), Some(1), "{}", printed.stderr);
        assert!(
            printed.stderr.contains(message),
            "{options:?}: {}",
            printed.stderr
        );
    }
}

#[tokio::test]
async fn dev_launches_machines_with_the_commands_beside_it() {
    let engine = TestEngine::new();
    let installation = tempfile::tempdir().unwrap();
    let program = installation.path().join("bin/berth");
    let library = installation.path().join("lib/berth");
    for directory in [program.parent().unwrap(), &library] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::copy(BERTH, &program).unwrap();
    let state = State::new();
    let start = || {
        command_of(
            &program,
            &state.path(),
            &["--vm", "--heartbeat-seconds", "1"],
        )
    };
    let missing = print(start()).await;
    assert_eq!(missing.status.code(), Some(1));
    let expected = "--vm needs the package berth-vm";
    assert!(missing.stderr.contains(expected), "{}", missing.stderr);

    for name in ["launch", "destroy"] {
        symlink(engine.path(name), library.join(format!("vm-{name}"))).unwrap();
    }
    let command = start();
    let dev = Dev::run(state, command).await;
    let created = browser(&dev).await;
    assert_eq!(engine.machines().len(), 1);
    delete(&dev, &created).await;
    dev.finish().await;
}
