//! The limits and costs of JSON request bodies.

use futures::future::join_all;
use reqwest::{RequestBuilder, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    dev::{Answer, Dev},
    processes::PeakMemory,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn with_json(request: RequestBuilder, body: impl Into<reqwest::Body>) -> RequestBuilder {
    request.header(CONTENT_TYPE, "application/json").body(body)
}

/// Returns the statuses of a body of this many bytes, and of one with a byte more.
async fn statuses(agent: &TestAgent, path: &str, limit: usize) -> [u16; 2] {
    let mut found = [0; 2];
    for (status, size) in found.iter_mut().zip([limit, limit + 1]) {
        let request = with_json(agent.post(path), vec![b' '; size]);
        *status = agent.answer(request).await.0.as_u16();
    }
    found
}

#[tokio::test]
async fn body_over_the_limit_of_its_route_is_413() {
    let agent = Start::without_browser().listening().await;
    for (path, limit) in [
        ("/automation/execute", 2 * MIB),
        ("/playwright/execute", 2 * MIB),
        ("/computer/batch", 4 * MIB),
        ("/computer/type", MIB),
        ("/computer/clipboard/write", 2 * MIB),
        ("/computer/click_mouse", 256 * KIB),
        ("/process/exec", 2 * MIB),
        ("/process/spawn", 2 * MIB),
        (
            "/process/01968e0c-3c3c-7000-8000-000000000000/stdin",
            2 * MIB,
        ),
        ("/fs/watch", 256 * KIB),
    ] {
        // The accepted body has no value.
        assert_eq!(statuses(&agent, path, limit).await, [400, 413], "{path}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn limits_apply_through_control() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    for (path, limit) in [
        ("/browsers".to_owned(), 6 * MIB),
        ("/org/api_keys".to_owned(), 256 * KIB),
        (format!("/browsers/{id}/computer/batch"), 4 * MIB),
        (format!("/browsers/{id}/fs/watch"), 256 * KIB),
    ] {
        for (size, status, code) in [
            (limit, 400, "bad_request"),
            (limit + 1, 413, "payload_too_large"),
        ] {
            let request = dev.request(reqwest::Method::POST, &path);
            let answer = Answer::of(with_json(request, vec![b' '; size])).await;
            answer.assert_error(status, code);
        }
    }
    dev.finish().await;
}

/// Returns a batch of close to 4 MiB, whose last action is invalid.
fn large_batch() -> String {
    let text = json!({"type": "type_text", "type_text": {"text": "a".repeat(4000)}});
    let mut actions = vec![text; 999];
    actions.push(json!({"type": "none"}));
    json!({"actions": actions}).to_string()
}

/// Returns a body of close to 4 MiB that consists of small arrays in a field that is ignored.
fn large_unknown_field() -> String {
    let inner = vec![json!([]); 1000];
    let outer: Vec<Value> = vec![inner.into(); 1390];
    json!({"actions": [], "ignored": outer}).to_string()
}

#[tokio::test]
async fn concurrent_large_bodies_take_little_memory() {
    // Measured: 40 MiB. Trees of values take more than 200 MiB.
    const MAX_GROWTH_KIB: u64 = 150 * 1024;
    // Without a screen a batch would wait for it.
    let agent = Start::screen_alone().await;
    for body in [large_batch(), large_unknown_field()] {
        assert!((3 * MIB..4 * MIB).contains(&body.len()), "{}", body.len());
        let memory = PeakMemory::of(agent.pid());
        let requests = (0..8).map(|_| {
            let request = with_json(agent.post("/computer/batch"), body.clone());
            agent.answer(request)
        });
        for (status, answer) in join_all(requests).await {
            let message = &answer["message"];
            assert_eq!(status, StatusCode::BAD_REQUEST, "{message}");
        }
        let grown = memory.grown_kib();
        assert!(grown < MAX_GROWTH_KIB, "grown by {grown} KiB");
    }
    agent.stop().await;
}
