//! `DELETE /browsers/{id}`, and access from other projects.

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::id;
use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

#[tokio::test]
async fn deletion_keeps_only_the_record() {
    let dev = Dev::start().await;
    let created = dev.browser(json!({"name": "n"})).await;
    let path = format!("/browsers/{}", id(&created));
    let answers = join_all((0..3).map(|_| dev.delete(&path))).await;
    let mut codes: Vec<u16> = answers
        .iter()
        .map(|response| response.status.as_u16())
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
        created["session_id"]
    );
    assert_eq!(dev.descendants(), []);
    dev.finish().await;
}

#[tokio::test]
async fn browser_of_another_project_is_404() {
    let dev = Dev::start().await;
    let created = dev.browser(json!({"name": "n"})).await;
    let mut command = crate::support::dev::berth(&[
        "key",
        "create",
        "--name",
        "k",
        "--project",
        "other",
        "--state-dir",
    ]);
    command.arg(dev.state_dir()).envs(dev.variables());
    let output = crate::support::printed::print(command).await;
    let other_project = |method: Method, path: &str| {
        let request = dev
            .anonymous(method, path)
            .bearer_auth(output.stdout.trim());
        Answer::of(request.json(&json!({})))
    };
    for name in [id(&created), "n"] {
        let path = format!("/browsers/{name}");
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            other_project(method, &path)
                .await
                .assert_error(404, "not_found");
        }
        other_project(Method::GET, &format!("{path}/json/version"))
            .await
            .assert_error(404, "not_found");
        other_project(Method::GET, &format!("{path}?status=all"))
            .await
            .assert_error(404, "not_found");
    }
    assert_eq!(
        other_project(Method::GET, "/browsers?status=all")
            .await
            .body,
        json!([])
    );
    // The other project can use the same name.
    let own = dev
        .anonymous(Method::POST, "/browsers")
        .bearer_auth(output.stdout.trim());
    let own = Answer::of(own.json(&json!({"name": "n", "headless": true}))).await;
    assert_eq!(own.status, StatusCode::CREATED, "{}", own.body);
    assert_eq!(
        dev.get("/browsers/n").await.body["session_id"],
        created["session_id"]
    );
    dev.finish().await;
}

#[tokio::test]
async fn deletion_succeeds_although_database_refuses_it() {
    for state in ["deleting", "deleted"] {
        let dev = Dev::start().await;
        let created = dev.browser(json!({"name": "n"})).await;
        let path = format!("/browsers/{}", id(&created));
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
        until("the deletion in the record", async || {
            let record = dev.get(&format!("{path}?status=deleted")).await;
            let is_complete = dev.recorded_state(id(&created)).await == "deleted";
            (record.body["deleted_at"].is_string() && is_complete).then_some(())
        })
        .await;
        dev.browser(json!({"name": "n"})).await;
        dev.finish().await;
    }
}
