//! Archived projects.

use super::*;
use crate::support::wait::until;

#[tokio::test]
async fn archived_project_is_unusable_until_it_is_active_again() {
    let dev = Dev::start().await;
    let archived = project(&dev, "p").await;
    let key = key_of(&dev, &archived).await;
    let browser = browser_of(&dev, &archived).await;
    let link = browser["cdp_ws_url"].as_str().unwrap();
    let (_, token) = link.split_once("jwt=").unwrap();
    let session = format!("/browsers/{}", browser["session_id"].as_str().unwrap());

    let requests = || {
        [
            dev.anonymous(Method::GET, "/browsers").bearer_auth(&key),
            dev.anonymous(Method::GET, "/auth/context")
                .bearer_auth(&key),
            dev.anonymous(Method::GET, "/org/projects/p")
                .bearer_auth(&key),
            dev.anonymous(Method::POST, "/browsers")
                .bearer_auth(&key)
                .json(&json!({"headless": true})),
            selecting(&dev, &archived, Method::GET, "/browsers"),
            selecting(&dev, &archived, Method::GET, &session),
            dev.request(Method::GET, "/browsers")
                .header("x-kernel-project", "p"),
            dev.anonymous(Method::GET, &format!("{session}/json/list?jwt={token}")),
        ]
    };
    let archive = json!({"status": "archived"});
    for _ in 0..2 {
        let changed = dev.patch("/org/projects/p", archive.clone()).await;
        assert_eq!(changed.status, StatusCode::OK);
        assert_eq!(changed.body["status"], "archived");
    }
    // Its browsers have ended.
    assert!(dev.descendants().is_empty(), "{:?}", dev.descendants());
    for request in requests() {
        Answer::of(request)
            .await
            .assert_error(403, "project_archived");
    }
    // It can still be read, renamed and listed with a key of the organization.
    assert_eq!(dev.get("/org/projects/p").await.body["status"], "archived");
    let renamed = dev.patch("/org/projects/p", json!({"name": "q"})).await;
    assert_eq!(renamed.body["status"], "archived");
    assert_eq!(
        names(&dev.get("/org/projects").await.body),
        ["q", "default"]
    );

    let activate = json!({"name": "p", "status": "active"});
    let changed = dev.patch("/org/projects/q", activate).await;
    assert_eq!(changed.body["status"], "active");
    let listed = dev.anonymous(Method::GET, "/browsers").bearer_auth(&key);
    assert_eq!(Answer::of(listed).await.body, json!([]));
    let ended = selecting(&dev, &archived, Method::GET, &session);
    Answer::of(ended).await.assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn browsers_of_a_project_that_another_process_archives_end() {
    let dev = Dev::start().await;
    let archived = project(&dev, "p").await;
    browser_of(&dev, &archived).await;
    dev.browser(json!({"name": "other"})).await;
    dev.sql("UPDATE projects SET status = 'archived' WHERE name = 'p'")
        .await;
    until("the end of the browser", async || {
        let limits = dev.get("/org/limits").await.body;
        (limits["concurrent_sessions_used"] == 1).then_some(())
    })
    .await;
    assert_eq!(dev.get("/browsers/other").await.status, StatusCode::OK);
    dev.finish().await;
}

#[tokio::test]
async fn browser_that_starts_while_its_project_is_archived_does_not_remain() {
    let dev = Dev::start().await;
    let archived = project(&dev, "p").await;
    let create = async || {
        let request = selecting(&dev, &archived, Method::POST, "/browsers");
        Answer::of(request.json(&json!({"headless": true}))).await
    };
    let archive = async || {
        dev.patch("/org/projects/p", json!({"status": "archived"}))
            .await
    };
    let (created, changed) = tokio::join!(create(), archive());
    assert_eq!(changed.status, StatusCode::OK);
    // The browser may have started before the change.
    if created.status != StatusCode::CREATED {
        created.assert_error(403, "project_archived");
    }
    until("no browser left", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    let deleted = dev.delete("/org/projects/p").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    dev.finish().await;
}
