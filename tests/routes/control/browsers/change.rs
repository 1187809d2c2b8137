//! `PATCH /browsers/{id}`.

use reqwest::StatusCode;
use serde_json::json;

use super::id;
use crate::support::{dev::Dev, wait::until};

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
