//! `DELETE /browsers/{id}`, and whose browser it is.

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::id;
use crate::support::dev::{Answer, Dev};
use crate::support::wait::until;

#[tokio::test]
async fn nothing_is_left_and_the_record_stays() {
    let dev = Dev::start().await;
    let made = dev.browser(json!({"name": "n"})).await;
    let path = format!("/browsers/{}", id(&made));
    let answers = join_all((0..3).map(|_| dev.delete(&path))).await;
    let mut codes: Vec<u16> = answers
        .iter()
        .map(|answer| answer.status.as_u16())
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [204, 404, 404]);
    dev.delete(&path).await.assert_error(404, "not_found");
    dev.get(&path).await.assert_error(404, "not_found");
    dev.get(&format!("{path}/json/version"))
        .await
        .assert_error(404, "not_found");
    dev.patch(&path, json!({}))
        .await
        .assert_error(404, "not_found");

    let record = dev.get(&format!("{path}?status=all")).await;
    assert_eq!(record.status, StatusCode::OK);
    assert!(record.body["deleted_at"].is_string());
    assert_eq!(
        dev.get("/browsers/n?status=deleted").await.body["session_id"],
        made["session_id"]
    );
    assert_eq!(dev.descendants(), []);
    dev.finish().await;
}

#[tokio::test]
async fn another_projects_browser_is_not_found() {
    let dev = Dev::start().await;
    let made = dev.browser(json!({"name": "n"})).await;
    let mut command = crate::support::dev::berth(&[
        "key",
        "create",
        "--name",
        "k",
        "--project",
        "other",
        "--state-dir",
    ]);
    command.arg(dev.state_dir());
    let printed = crate::support::dev::print(command).await;
    let stranger = |method: Method, path: &str| {
        let request = dev
            .anonymous(method, path)
            .bearer_auth(printed.stdout.trim());
        Answer::of(request.json(&json!({})))
    };
    for name in [id(&made), "n"] {
        let path = format!("/browsers/{name}");
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            stranger(method, &path).await.assert_error(404, "not_found");
        }
        stranger(Method::GET, &format!("{path}/json/version"))
            .await
            .assert_error(404, "not_found");
        stranger(Method::GET, &format!("{path}?status=all"))
            .await
            .assert_error(404, "not_found");
    }
    assert_eq!(
        stranger(Method::GET, "/browsers?status=all").await.body,
        json!([])
    );
    // The name is free in the other project.
    let own = dev
        .anonymous(Method::POST, "/browsers")
        .bearer_auth(printed.stdout.trim());
    let own = Answer::of(own.json(&json!({"name": "n", "headless": true}))).await;
    assert_eq!(own.status, StatusCode::CREATED, "{}", own.body);
    assert_eq!(
        dev.get("/browsers/n").await.body["session_id"],
        made["session_id"]
    );
    dev.finish().await;
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_at_once_is_an_end_all_the_same() {
    for state in ["deleting", "deleted"] {
        let dev = Dev::start().await;
        let made = dev.browser(json!({"name": "n"})).await;
        let path = format!("/browsers/{}", id(&made));
        dev.refuse(state).await;
        let deleted = dev.delete(&path).await;
        assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
        for path in [&path[..], "/browsers/n"] {
            dev.get(path).await.assert_error(404, "not_found");
            dev.delete(path).await.assert_error(404, "not_found");
        }
        assert_eq!(dev.get("/browsers").await.body, json!([]));
        assert_eq!(dev.descendants(), []);
        dev.allow().await;
        until("the end is recorded", async || {
            let record = dev.get(&format!("{path}?status=deleted")).await;
            record.body["deleted_at"].is_string().then_some(())
        })
        .await;
        dev.browser(json!({"name": "n"})).await;
        dev.finish().await;
    }
}
