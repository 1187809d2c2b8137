//! `GET /session`, `POST /session/end`

use std::{fs, os::unix::fs::symlink};

use futures::StreamExt;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    processes,
    scripts::result_of,
    spawned::{exec_shell, shell},
    wait::{in_time, until},
    websocket::Client,
};

async fn end(agent: &TestAgent, generation: u64) -> (StatusCode, Value) {
    let body = json!({ "generation": generation });
    agent.answer(agent.post("/session/end").json(&body)).await
}

/// Ends the first session and returns its receipt.
async fn receipt(agent: &TestAgent) -> Value {
    let (status, receipt) = end(agent, 1).await;
    assert_eq!(status, StatusCode::OK, "{receipt}\n{}", agent.log());
    receipt
}

async fn spare_is_ready(agent: &TestAgent) {
    until("a spare session", async || {
        let status = agent.ok(agent.get("/session")).await;
        (status["spare"] == "ready").then_some(())
    })
    .await;
}

async fn running(agent: &TestAgent) {
    agent
        .chromium_when("running", |status| status["state"] == "running")
        .await;
}

#[tokio::test]
async fn next_session_has_a_new_chromium_profile_and_directories() {
    let agent = Start::on_screen().with(["--spare"]).ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let cookie = json!({"name": "planted", "value": "1", "url": "https://example.com/", "expires": 4_102_444_800_u64});
    client
        .call("Storage.setCookies", json!({"cookies": [cookie]}))
        .await;
    let file = agent.session_dir().join("downloads/planted");
    fs::write(&file, "planted").unwrap();
    spare_is_ready(&agent).await;
    assert!(!processes::naming(&agent.session_dir()).is_empty());

    let receipt = receipt(&agent).await;
    assert_eq!(receipt["clean"], true, "{receipt}");
    assert_eq!(receipt["next_generation"], 2);
    assert_eq!(receipt["terminated"]["chromium"], true);
    assert_eq!(receipt["terminated"]["devtools_clients"], 1);
    let close = client.closed().await.expect("a Close frame");
    assert_eq!(u16::from(close.code), 4004);
    assert!(!agent.session_dir().exists());
    assert!(processes::naming(&agent.session_dir()).is_empty());

    // The spare is ready at once.
    let status = agent.ok(agent.get("/chromium")).await;
    assert_eq!(status["state"], "running", "{status}");
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let cookies = client.call("Storage.getCookies", json!({})).await;
    assert_eq!(cookies["result"]["cookies"], json!([]), "{cookies}");
    spare_is_ready(&agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn session_without_a_spare_is_followed_by_one_that_starts() {
    let agent = Start::headless().ready().await;
    let status = agent.ok(agent.get("/session")).await;
    assert_eq!(
        status,
        json!({"generation": 1, "spare": "off", "tainted_by": [], "restarting": false})
    );
    let receipt = receipt(&agent).await;
    assert_eq!(receipt["clean"], true, "{receipt}");
    running(&agent).await;
    assert_eq!(result_of(&agent, "return 1 + 1").await, 2);
    let (status, next) = end(&agent, 2).await;
    assert_eq!(
        (status, &next["next_generation"]),
        (StatusCode::OK, &json!(3))
    );
    agent.stop().await;
}

async fn request_restart(agent: &TestAgent) {
    agent.request_restart();
    until("a requested restart", async || {
        let status = agent.ok(agent.get("/session")).await;
        (status["restarting"] == true).then_some(())
    })
    .await;
}

#[tokio::test]
async fn agent_ends_with_its_session_if_a_restart_was_requested() {
    let agent = Start::headless().with(["--spare"]).ready().await;
    let first = receipt(&agent).await;
    // Another program could not continue with this client.
    let _client = Client::connect(&agent.ws_url("/cdp")).await;
    request_restart(&agent).await;
    // The receipt of an earlier session ends nothing.
    assert_eq!(receipt(&agent).await, first);
    assert_eq!(result_of(&agent, "return 1 + 1").await, 2);
    // The next one never begins.
    let (status, second) = end(&agent, 2).await;
    assert_eq!(status, StatusCode::OK, "{second}");
    assert_eq!(second["clean"], true, "{second}");
    assert!(!agent.log().contains("generation=3"), "{}", agent.log());
    agent.exits().await;
}

#[tokio::test]
async fn only_the_current_session_is_ended_and_its_receipt_can_be_requested_again() {
    let agent = Start::without_browser().listening().await;
    for generation in [0, 2, u64::MAX] {
        let (status, error) = end(&agent, generation).await;
        assert_eq!(status, StatusCode::GONE);
        assert_eq!(error["code"], "session_ended", "{error}");
    }
    let first = receipt(&agent).await;
    assert_eq!(receipt(&agent).await, first);
    for invalid in [
        json!({}),
        json!({"generation": "1"}),
        json!({"generation": -1}),
        json!([]),
    ] {
        let (status, error) = agent
            .answer(agent.post("/session/end").json(&invalid))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{invalid}: {error}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn concurrent_ends_of_a_session_end_it_once() {
    let agent = Start::without_browser().listening().await;
    let ends = futures::future::join_all((0..8).map(|_| receipt(&agent))).await;
    assert!(ends.iter().all(|receipt| *receipt == ends[0]));
    let status = agent.ok(agent.get("/session")).await;
    assert_eq!(status["generation"], 2);
    agent.stop().await;
}

#[tokio::test]
async fn requests_for_an_ended_session_are_rejected() {
    let agent = Start::without_browser().listening().await;
    receipt(&agent).await;
    let spawn = json!({"command": "true"});
    for request in [
        agent.post("/process/spawn").json(&spawn),
        agent.get("/chromium"),
        agent.get("/cdp"),
        agent.get("/no/such/route"),
    ] {
        let request = request.header("berth-generation", "1");
        let response = in_time("an answer", request.send()).await.unwrap();
        assert!([410, 404].contains(&response.status().as_u16()));
    }
    let request = agent.get("/chromium").header("berth-generation", "1");
    let (status, error) = agent.answer(request).await;
    assert_eq!(
        (status, &error["code"]),
        (StatusCode::GONE, &json!("session_ended"))
    );
    for (generation, expected) in [("2", 200), ("3", 410), ("x", 400), ("", 400)] {
        let request = agent
            .get("/chromium")
            .header("berth-generation", generation);
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status.as_u16(), expected, "{generation}: {answer}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn requests_and_processes_in_progress_end_with_their_session() {
    let agent = Start::without_browser().listening().await;
    // It ignores SIGTERM, has left its session and holds its output open.
    let process = shell(
        &agent,
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo up; wait",
    )
    .await;
    let events = agent.get(&format!("/process/{}/stdout/stream", process.id));
    let events = in_time("a stream", events.send()).await.unwrap();
    let body = json!({"command": "sh", "args": ["-c", "trap '' TERM; while :; do sleep 1; done"]});
    let executing = agent.answer(agent.post("/process/exec").json(&body));
    let ending = async {
        until("two processes", async || {
            let text = agent.ok(agent.get("/metrics")).await;
            let text = text.as_str().unwrap();
            text.contains("berth_processes 2").then_some(())
        })
        .await;
        receipt(&agent).await
    };
    let ((status, error), receipt) = tokio::join!(executing, ending);
    assert_eq!(
        (status, &error["code"]),
        (StatusCode::GONE, &json!("session_ended"))
    );
    assert_eq!(receipt["terminated"]["processes"], 2);
    assert_eq!(receipt["remaining"], json!([]));
    // Programs run as the agent's user.
    assert_eq!(receipt["tainted_by"], json!(["program"]));
    assert_eq!(receipt["clean"], false);
    let rest: Vec<_> = in_time("the end of the stream", events.bytes_stream().collect()).await;
    assert!(!rest.is_empty());
    let missing = agent.get(&format!("/process/{}/status", process.id));
    assert_eq!(agent.answer(missing).await.0, StatusCode::NOT_FOUND);
    agent.stop().await;
}

#[tokio::test]
async fn program_and_file_outside_the_session_taint_it() {
    let agent = Start::without_browser().listening().await;
    let outside = tempfile::tempdir().unwrap();
    let tainted = async || agent.ok(agent.get("/session")).await["tainted_by"].clone();
    let write = async |path: &std::path::Path| {
        let route = format!("/fs/write_file?path={}", path.display());
        agent.ok(agent.put(&route).body("text")).await
    };
    write(&agent.session_dir().join("downloads/file")).await;
    assert_eq!(tainted().await, json!([]));
    write(&outside.path().join("file")).await;
    assert_eq!(tainted().await, json!(["file"]));
    exec_shell(&agent, "true").await;
    assert_eq!(tainted().await, json!(["program", "file"]));
    receipt(&agent).await;
    assert_eq!(tainted().await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn link_out_of_the_session_taints_it() {
    let agent = Start::without_browser().listening().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("existing"), "text").unwrap();
    for (generation, name) in [(1, "existing"), (2, "missing")] {
        let downloads = agent
            .state_dir()
            .join(format!("sessions/{generation}/downloads"));
        symlink(outside.path().join(name), downloads.join("link")).unwrap();
        symlink("file", downloads.join("inner")).unwrap();
        fs::write(downloads.join("file"), "text").unwrap();
        for (link, expected) in [("inner", json!([])), ("link", json!(["file"]))] {
            let route = format!("/fs/write_file?path={}", downloads.join(link).display());
            agent.ok(agent.put(&route).body("changed")).await;
            let status = agent.ok(agent.get("/session")).await;
            assert_eq!(status["tainted_by"], expected, "{name} {link}");
        }
        assert_eq!(fs::read(outside.path().join(name)).unwrap(), b"changed");
        let (_, receipt) = end(&agent, generation).await;
        assert_eq!(receipt["clean"], false, "{receipt}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn tainted_session_stays_so_when_its_agent_is_killed() {
    let agent = Start::without_browser().listening().await;
    exec_shell(&agent, "true").await;
    let agent = TestAgent::again(agent.kill().await);
    let agent = agent.with(["--headless", "--chromium", "/bin/true"]);
    let agent = agent.listening().await;
    let receipt = receipt(&agent).await;
    assert_eq!(receipt["tainted_by"], json!(["program"]));
    assert_eq!(receipt["clean"], false);
    let status = agent.ok(agent.get("/session")).await;
    assert_eq!(status["tainted_by"], json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn lines_of_the_agent_about_an_ended_session_are_hidden() {
    let agent = Start::without_browser().listening().await;
    let lines = async || {
        let route = "/logs/stream?source=supervisor&supervisor_process=agent&follow=false";
        let answer = agent.ok(agent.get(route)).await;
        answer.as_str().unwrap().to_owned()
    };
    assert!(lines().await.contains("listening"));
    receipt(&agent).await;
    let after = lines().await;
    assert!(!after.contains("listening"), "{after}");
    agent.stop().await;
}

#[tokio::test]
async fn killed_agent_continues_its_session_and_removes_the_spare() {
    let agent = Start::headless().with(["--spare"]).ready().await;
    receipt(&agent).await;
    spare_is_ready(&agent).await;
    let file = agent.state_dir().join("sessions/2/downloads/kept");
    fs::write(&file, "kept").unwrap();
    let agent = TestAgent::again(agent.kill().await);
    let agent = agent.with(["--spare"]).ready().await;
    let status = agent.ok(agent.get("/session")).await;
    assert_eq!(status["generation"], 2);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    spare_is_ready(&agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn end_without_a_wait_refuses_the_session_and_its_receipt_follows() {
    let agent = Start::headless().ready().await;
    let request = json!({"generation": 1, "wait": false});
    let (status, body) = agent
        .answer(agent.post("/session/end").json(&request))
        .await;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}\n{}", agent.log());
    assert_eq!(body, "");
    let stale = agent.get("/chromium").header("berth-generation", 1);
    assert_eq!(agent.answer(stale).await.0, StatusCode::GONE);
    let repeated = agent
        .answer(agent.post("/session/end").json(&request))
        .await;
    assert_eq!(repeated.0, StatusCode::ACCEPTED);
    assert_eq!(receipt(&agent).await["next_generation"], 2);
    let (status, _) = agent
        .answer(
            agent
                .post("/session/end")
                .json(&json!({"generation": 9, "wait": false})),
        )
        .await;
    assert_eq!(status, StatusCode::GONE);
    agent.stop().await;
}
