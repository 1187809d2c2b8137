//! `PATCH /browsers/{id}`.

use reqwest::StatusCode;
use serde_json::json;

use super::id;
use crate::support::dev::Dev;
use crate::support::wait::until;

#[tokio::test]
async fn what_is_asked_for_changes_and_the_rest_stays() {
    let dev = Dev::start().await;
    let wishes = json!({"name": "a", "tags": {"x": "1"}, "viewport": {"width": 1024, "height": 768, "refresh_rate": 10}});
    let made = dev.post("/browsers", wishes).await.body;
    let path = format!("/browsers/{}", id(&made));

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
    until("the tab in front is there", async || {
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
async fn a_name_that_is_taken_changes_nothing() {
    let dev = Dev::start().await;
    let first = dev.browser(json!({"name": "a"})).await;
    dev.browser(json!({"name": "b"})).await;
    let clash = dev
        .patch(
            &format!("/browsers/{}", id(&first)),
            json!({"name": "b", "tags": {"x": "1"}}),
        )
        .await;
    clash.assert_error(409, "conflict");
    assert_eq!(clash.header("x-should-retry"), "false");
    let seen = dev.get("/browsers/a").await.body;
    assert_eq!((&seen["name"], &seen["tags"]), (&json!("a"), &json!({})));
    // Its own name is no clash.
    assert_eq!(
        dev.patch("/browsers/a", json!({"name": "a"})).await.status,
        StatusCode::OK
    );
    dev.finish().await;
}

#[tokio::test]
async fn a_change_goes_on_when_its_client_leaves_and_its_record_says_so() {
    let dev = Dev::start().await;
    let made = dev
        .post(
            "/browsers",
            json!({"name": "a", "viewport": {"width": 800, "height": 600}}),
        )
        .await
        .body;
    let path = format!("/browsers/{}", id(&made));
    let before = dev.descendants_with("Xvfb");
    assert!(!before.is_empty());
    // Larger than there was room for: the screen is started anew, which takes its time.
    let change = json!({"name": "b", "viewport": {"width": 3840, "height": 2160}});
    let request = dev.request(reqwest::Method::PATCH, &path).json(&change);
    let client = tokio::spawn(request.send());
    until("the change has begun", async || {
        (dev.descendants_with("Xvfb") != before).then_some(())
    })
    .await;
    client.abort();
    until("the change is recorded", async || {
        let seen = dev.get(&path).await.body;
        let whole = seen["name"] == "b" && seen["viewport"]["width"] == 3840;
        // Its parts become visible together.
        assert!(whole || (seen["name"] == "a" && seen["viewport"]["width"] == 800));
        whole.then_some(())
    })
    .await;
    dev.finish().await;
}
