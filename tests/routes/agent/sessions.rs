//! `GET /sessions`, `/sessions/{generation}/replays`

use std::fs;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::replays::{bare_screen, record, wait_until_recorded};
use crate::support::{
    agent::TestAgent,
    painter::{GREEN, Painter},
    video::Video,
    wait::{in_time, until},
};

async fn end(agent: &TestAgent, generation: u64) -> Value {
    let body = json!({ "generation": generation });
    agent.ok(agent.post("/session/end").json(&body)).await
}

/// Starts a recording and waits until it shows the screen, which is green.
async fn recording(agent: &TestAgent) -> String {
    let painter = Painter::on(agent).await;
    painter.fill_all(GREEN);
    let id = record(agent, json!({})).await;
    wait_until_recorded(agent, &id, &painter).await;
    id
}

fn path_of(generation: u64, id: &str) -> String {
    format!("/sessions/{generation}/replays/{id}")
}

async fn list(agent: &TestAgent, generation: u64) -> Value {
    let path = format!("/sessions/{generation}/replays");
    agent.ok(agent.get(&path)).await
}

async fn status(agent: &TestAgent, method: Method, path: &str) -> StatusCode {
    agent.answer(agent.request(method, path)).await.0
}

/// Downloads a recording once it is finished, and asserts that it shows the green screen.
async fn assert_plays(agent: &TestAgent, generation: u64, id: &str) -> Vec<u8> {
    let path = path_of(generation, id);
    let bytes = until("a finished recording", async || {
        let response = in_time("an answer", agent.get(&path).send()).await.unwrap();
        if response.status() == StatusCode::ACCEPTED {
            assert_eq!(response.headers()["retry-after"], "5");
            return None;
        }
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "video/mp4");
        Some(in_time("a video", response.bytes()).await.unwrap())
    })
    .await;
    let video = Video::of_bytes(&bytes, 200, 150);
    assert_eq!(video.first(GREEN), Some(0.0), "{video:?}");
    bytes.into()
}

#[tokio::test]
async fn recordings_of_ended_session_are_served_until_they_are_deleted() {
    let agent = bare_screen().listening().await;
    let finished = recording(&agent).await;
    agent
        .ok(agent.post(&format!("/replays/{finished}/stop")))
        .await;
    let cut_off = recording(&agent).await;
    // The session has not ended.
    for path in ["/sessions/1/replays", &path_of(1, &finished)] {
        let (status, error) = agent.answer(agent.get(path)).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {error}");
        assert_eq!(
            error["message"],
            "no session with the generation 1 has ended"
        );
    }
    let deleted = status(&agent, Method::DELETE, &path_of(1, &finished)).await;
    assert_eq!(deleted, StatusCode::NOT_FOUND);
    assert_eq!(agent.ok(agent.get("/sessions")).await, json!([]));

    let receipt = end(&agent, 1).await;
    assert_eq!(receipt["remaining"], json!([]), "{receipt}");
    assert_eq!(receipt["replays"], list(&agent, 1).await);
    let ids = receipt["replays"].as_array().unwrap().iter();
    let ids: Vec<_> = ids.map(|replay| &replay["replay_id"]).collect();
    assert_eq!(ids, [&finished, &cut_off]);
    assert_eq!(agent.ok(agent.get("/replays")).await, json!([]));
    let video = assert_plays(&agent, 1, &finished).await;
    assert_plays(&agent, 1, &cut_off).await;
    let range = agent
        .get(&path_of(1, &finished))
        .header("range", "bytes=10-19");
    let part = in_time("an answer", range.send()).await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        in_time("a part", part.bytes()).await.unwrap(),
        video[10..20]
    );

    // An agent that is killed loses none.
    let agent = TestAgent::again(agent.kill().await)
        .with(["--chromium", "/bin/true", "--viewport", "320x240"])
        .listening()
        .await;
    let ended = agent.ok(agent.get("/sessions")).await;
    assert_eq!(
        ended,
        json!([{"generation": 1, "replays": receipt["replays"]}])
    );
    assert_eq!(assert_plays(&agent, 1, &finished).await, video);
    assert_plays(&agent, 1, &cut_off).await;

    let directory = agent.state_dir().join("replays/1");
    for id in [&finished, &cut_off] {
        assert!(directory.is_dir());
        let path = path_of(1, id);
        assert_eq!(
            status(&agent, Method::DELETE, &path).await,
            StatusCode::NO_CONTENT
        );
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(status(&agent, method, &path).await, StatusCode::NOT_FOUND);
        }
    }
    assert!(!directory.exists());
    assert_eq!(list(&agent, 1).await, json!([]));
    assert_eq!(agent.ok(agent.get("/sessions")).await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn recording_that_the_end_of_its_session_did_not_finish_is_finished_by_the_next_agent() {
    let agent = bare_screen().listening().await;
    let id = recording(&agent).await;
    let directory = agent.kill().await;
    // The state after an agent was killed while it ended the session.
    fs::write(directory.path().join("state/run/session"), "2").unwrap();
    // Sessions without recordings leave nothing.
    fs::create_dir(directory.path().join("state/replays/0")).unwrap();
    let agent = TestAgent::again(directory)
        .with(["--chromium", "/bin/true"])
        .listening()
        .await;
    assert_plays(&agent, 1, &id).await;
    assert_eq!(list(&agent, 1).await[0]["end_reason"], "agent_ended");
    assert_eq!(agent.ok(agent.get("/replays")).await, json!([]));
    assert!(!agent.state_dir().join("replays/0").exists());
    agent.stop().await;
}

#[tokio::test]
async fn recordings_of_ended_sessions_count_towards_the_limit() {
    let agent = bare_screen().with(["--replays-mb", "1"]).listening().await;
    let id = recording(&agent).await;
    end(&agent, 1).await;
    let directory = agent.kill().await;
    let metadata = directory.path().join(format!("state/replays/1/{id}.json"));
    let mut replay: Value = serde_json::from_slice(&fs::read(&metadata).unwrap()).unwrap();
    replay["size_bytes"] = json!(1 << 20);
    fs::write(&metadata, replay.to_string()).unwrap();
    let agent = TestAgent::again(directory)
        .with(["--chromium", "/bin/true", "--replays-mb", "1"])
        .listening()
        .await;
    agent.display_pid().await;
    let (refused, error) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS, "{error}");
    let deleted = status(&agent, Method::DELETE, &path_of(1, &id)).await;
    assert_eq!(deleted, StatusCode::NO_CONTENT);
    record(&agent, json!({})).await;
    agent.stop().await;
}

#[tokio::test]
async fn sessions_without_recordings_leave_no_directory() {
    let agent = bare_screen().listening().await;
    for generation in 1..4 {
        let receipt = end(&agent, generation).await;
        assert_eq!(receipt["replays"], json!([]));
        assert_eq!(list(&agent, generation).await, json!([]));
    }
    let left = fs::read_dir(agent.state_dir().join("replays")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["4"]);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_generation_or_replay_id_is_404() {
    let agent = bare_screen().listening().await;
    let id = recording(&agent).await;
    end(&agent, 1).await;
    for generation in [
        "0",
        "2",
        "99",
        "18446744073709551616",
        "-1",
        "x",
        "1%2f",
        "1.0",
    ] {
        let collection = format!("/sessions/{generation}/replays");
        assert_eq!(
            status(&agent, Method::GET, &collection).await,
            404,
            "{generation}"
        );
        for method in [Method::GET, Method::DELETE] {
            let item = format!("{collection}/{id}");
            assert_eq!(status(&agent, method, &item).await, 404, "{generation}");
        }
    }
    let unknown = id.replace("rep_0", "rep_1");
    for replay in ["no-id", "..%2f..%2frun%2flock", "%00", &unknown] {
        for method in [Method::GET, Method::DELETE] {
            let status = status(&agent, method, &path_of(1, replay)).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{replay}");
        }
    }
    assert_plays(&agent, 1, &id).await;
    agent.stop().await;
}
