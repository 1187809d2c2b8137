//! `PATCH /browsers/{id}`.

use std::sync::Arc;

use futures::{StreamExt, stream::FuturesUnordered};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::id;
use crate::support::{
    dev::{Answer, Dev},
    processes,
    wait::{in_time, until},
};

#[tokio::test]
async fn update_changes_given_fields_and_keeps_others() {
    let dev = Dev::start().await;
    let options = json!({"name": "a", "tags": {"x": "1"}, "viewport": {"width": 1024, "height": 768, "refresh_rate": 10}});
    let created = dev.post("/browsers", options).await.body;
    let path = format!("/browsers/{}", id(&created));

    let same = dev.patch(&path, json!({"name": null, "unknown": 1})).await;
    assert_eq!(
        (same.status, &same.body["name"], &same.body["tags"]),
        (StatusCode::OK, &json!("a"), &json!({"x": "1"}))
    );

    let changed = dev
        .patch("/browsers/a", json!({"name": "b", "tags": {"y": "2"}}))
        .await
        .body;
    assert_eq!(
        (&changed["name"], &changed["tags"]),
        (&json!("b"), &json!({"y": "2"}))
    );
    dev.get("/browsers/a").await.assert_error(404, "not_found");

    let screen = json!({"viewport": {"width": 800, "height": 600}, "start_url": "data:text/html,<title>hi</title>"});
    let changed = dev.patch(&path, screen).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.body);
    assert_eq!(
        changed.body["viewport"],
        json!({"width": 800, "height": 600, "refresh_rate": 10})
    );
    let tabs = format!("{path}/json/list");
    until("the front tab", async || {
        let tabs = dev.get(&tabs).await.body;
        (tabs[0]["title"] == "hi").then_some(())
    })
    .await;
    assert_eq!(
        dev.get("/browsers/b").await.body["start_url"],
        changed.body["start_url"]
    );
    dev.finish().await;
}

#[tokio::test]
async fn update_to_used_name_is_409_and_changes_nothing() {
    let dev = Dev::start().await;
    let first = dev.browser(json!({"name": "a"})).await;
    dev.browser(json!({"name": "b"})).await;
    let conflict = dev
        .patch(
            &format!("/browsers/{}", id(&first)),
            json!({"name": "b", "tags": {"x": "1"}}),
        )
        .await;
    conflict.assert_error(409, "conflict");
    assert_eq!(conflict.header("x-should-retry"), "false");
    let seen = dev.get("/browsers/a").await.body;
    assert_eq!((&seen["name"], &seen["tags"]), (&json!("a"), &json!({})));
    // The browser's own name is not a conflict.
    assert_eq!(
        dev.patch("/browsers/a", json!({"name": "a"})).await.status,
        StatusCode::OK
    );
    dev.finish().await;
}

#[tokio::test]
async fn update_completes_after_client_disconnects() {
    let dev = Dev::start().await;
    let created = dev
        .post(
            "/browsers",
            json!({"name": "a", "viewport": {"width": 800, "height": 600}}),
        )
        .await
        .body;
    let path = format!("/browsers/{}", id(&created));
    let before = dev.descendants_with("Xvfb");
    assert!(!before.is_empty());
    // Larger than the X server allows: it is restarted, which takes some time.
    let change = json!({"name": "b", "viewport": {"width": 3840, "height": 2160}});
    let request = dev.request(reqwest::Method::PATCH, &path).json(&change);
    let client = tokio::spawn(request.send());
    until("the start of the update", async || {
        (dev.descendants_with("Xvfb") != before).then_some(())
    })
    .await;
    client.abort();
    until("the update in the record", async || {
        let seen = dev.get(&path).await.body;
        let is_complete = seen["name"] == "b" && seen["viewport"]["width"] == 3840;
        // Both fields become visible together.
        assert!(is_complete || (seen["name"] == "a" && seen["viewport"]["width"] == 800));
        is_complete.then_some(())
    })
    .await;
    dev.finish().await;
}

/// Stops the agent of the only browser, so that updates of the screen do not complete.
async fn stop_agent(dev: &Dev) -> Pid {
    let agent = dev.only_agent().await;
    processes::stop(agent.as_raw().cast_unsigned()).await;
    agent
}

fn screen() -> Value {
    json!({"viewport": {"width": 800, "height": 600}})
}

/// Returns the number of client connections of the server, including that of this request.
async fn open_connections(dev: &Dev) -> String {
    let metrics = dev.request(Method::GET, "/metrics").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("berth_connections_open "));
    count.expect("the gauge").to_owned()
}

#[tokio::test]
async fn waiting_updates_are_bounded() {
    const RUNNING_AND_WAITING: usize = 17;
    let dev = Dev::start().await;
    let path = format!("/browsers/{}", id(&dev.browser(json!({})).await));
    let agent = stop_agent(&dev).await;
    let mut updates: FuturesUnordered<_> = (0..=RUNNING_AND_WAITING)
        .map(|_| dev.patch(&path, screen()))
        .collect();
    // The others wait for the agent.
    let first = in_time("a refusal", updates.next()).await.unwrap();
    first.assert_error(429, "limit_exceeded");
    assert_eq!(first.header("retry-after"), "1");
    kill(agent, Signal::SIGCONT).unwrap();
    let mut completed = 0;
    while let Some(answer) = in_time("an update", updates.next()).await {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        completed += 1;
    }
    assert_eq!(completed, RUNNING_AND_WAITING);
    drop(updates);
    dev.finish().await;
}

#[tokio::test]
async fn waiting_update_of_a_disconnected_client_is_dropped() {
    let dev = Arc::new(Dev::start().await);
    let created = dev.browser(json!({})).await;
    let path = format!("/browsers/{}", id(&created));
    let agent = stop_agent(&dev).await;
    let send = |change: Value| {
        let request = dev.request(Method::PATCH, &path).json(&change);
        tokio::spawn(Answer::of(request))
    };
    let expect_connections = async |count: &str| {
        until("the connections", async || {
            (open_connections(&dev).await == count).then_some(())
        })
        .await;
    };
    let running = send(screen());
    expect_connections("2").await;
    let abandoned = [0, 1, 2].map(|_| send(json!({"tags": {"abandoned": "yes"}})));
    expect_connections("5").await;
    for update in abandoned {
        update.abort();
    }
    expect_connections("2").await;
    let last = send(json!({"name": "last"}));
    expect_connections("3").await;
    kill(agent, Signal::SIGCONT).unwrap();
    assert_eq!(running.await.unwrap().status, StatusCode::OK);
    let last = last.await.unwrap().body;
    assert_eq!((&last["name"], &last["tags"]), (&json!("last"), &json!({})));
    Arc::into_inner(dev).expect("no other owner").finish().await;
}
