//! `/org/projects/{id_or_name}`.

use super::*;

#[tokio::test]
async fn project_is_renamed() {
    let dev = Dev::start().await;
    let before = project(&dev, "old").await;
    project(&dev, "other").await;
    let renamed = dev.patch("/org/projects/old", json!({"name": "new"})).await;
    assert_eq!(renamed.status, StatusCode::OK);
    assert_eq!(
        (&renamed.body["id"], &renamed.body["name"]),
        (&before["id"], &json!("new"))
    );
    assert_eq!(dev.get("/org/projects/new").await.body, renamed.body);
    dev.get("/org/projects/old")
        .await
        .assert_error(404, "not_found");

    let taken = dev
        .patch("/org/projects/new", json!({"name": "other"}))
        .await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.header("x-should-retry"), "false");
    for unchanged in [json!({}), json!({"name": null, "status": null})] {
        let same = dev.patch("/org/projects/new", unchanged).await;
        assert_eq!(same.body, renamed.body);
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_change_names_each_invalid_field() {
    let dev = Dev::start().await;
    let before = project(&dev, "p").await;
    for (body, fields) in [
        (json!({"name": ""}), &["name"][..]),
        (json!({"name": 1, "status": 1}), &["name", "status"]),
        (
            json!({"name": "a/b", "status": "deleted"}),
            &["name", "status"],
        ),
        (json!({"name": "n", "status": "ACTIVE"}), &["status"]),
        (json!({"name": UNKNOWN, "status": "archived"}), &["name"]),
        (json!({"name": "x".repeat(256)}), &["name"]),
        (json!([]), &["body"]),
    ] {
        let refused = dev.patch("/org/projects/p", body.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{body}");
    }
    assert_eq!(dev.get("/org/projects/p").await.body, before);
    dev.finish().await;
}

#[tokio::test]
async fn unknown_project_is_404() {
    let dev = Dev::start().await;
    for segment in [
        UNKNOWN,
        "missing",
        "%27%20OR%201=1",
        "..%2F..%2Forg%2Fapi_keys",
        "%00",
        "%25",
        "PROJ_00000000000000000000000000",
        &"x".repeat(300),
    ] {
        let path = format!("/org/projects/{segment}");
        dev.get(&path).await.assert_error(404, "not_found");
        dev.patch(&path, json!({"name": "n"}))
            .await
            .assert_error(404, "not_found");
        dev.delete(&path).await.assert_error(404, "not_found");
    }
    dev.finish().await;
}

#[tokio::test]
async fn deleted_project_is_gone_and_its_keys_are_invalid() {
    let dev = Dev::start().await;
    let doomed = project(&dev, "doomed").await;
    let key = key_of(&dev, &doomed).await;
    let path = format!("/org/projects/{}", id(&doomed));
    let deleted = dev.delete(&path).await;
    assert_eq!(
        (deleted.status, &deleted.body),
        (StatusCode::NO_CONTENT, &Value::Null)
    );

    for path in [path.as_str(), "/org/projects/doomed"] {
        dev.get(path).await.assert_error(404, "not_found");
        dev.delete(path).await.assert_error(404, "not_found");
        dev.patch(path, json!({"status": "active"}))
            .await
            .assert_error(404, "not_found");
    }
    let with_key = dev.anonymous(Method::GET, "/browsers").bearer_auth(&key);
    Answer::of(with_key).await.assert_error(401, "unauthorized");
    for (header, value) in [
        ("x-project-id", id(&doomed)),
        ("x-kernel-project", "doomed"),
    ] {
        let selecting = dev.request(Method::GET, "/browsers").header(header, value);
        Answer::of(selecting).await.assert_error(404, "not_found");
    }
    let request = json!({"name": "k", "project_id": id(&doomed)});
    let refused = dev.post("/org/api_keys", request).await;
    refused.assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn project_with_active_browsers_is_not_deleted() {
    let dev = Dev::start().await;
    let used = project(&dev, "used").await;
    let browser = browser_of(&dev, &used).await;
    let refused = dev.delete("/org/projects/used").await;
    refused.assert_error(409, "project_not_empty");
    assert_eq!(refused.header("x-should-retry"), "false");
    let browser_path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let found = Answer::of(selecting(&dev, &used, Method::GET, &browser_path)).await;
    assert_eq!(found.status, StatusCode::OK);

    let ended = Answer::of(selecting(&dev, &used, Method::DELETE, &browser_path)).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    let deleted = dev.delete("/org/projects/used").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    dev.finish().await;
}

#[tokio::test]
async fn last_active_project_is_neither_deleted_nor_archived() {
    let dev = Dev::start().await;
    let archived = project(&dev, "archived").await;
    let archive = json!({"status": "archived"});
    let changed = dev.patch(&path(id(&archived)), archive.clone()).await;
    assert_eq!(changed.status, StatusCode::OK);
    for refused in [
        dev.delete("/org/projects/default").await,
        dev.patch("/org/projects/default", archive).await,
    ] {
        refused.assert_error(409, "last_active_project");
        assert_eq!(refused.header("x-should-retry"), "false");
    }
    // An archived project is not the last active one.
    let deleted = dev.delete(&path(id(&archived))).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    dev.finish().await;
}

#[tokio::test]
async fn oldest_active_project_replaces_a_deleted_or_archived_default() {
    let dev = Dev::start().await;
    let mut projects = Vec::new();
    for name in ["first", "second", "third"] {
        projects.push(project(&dev, name).await);
    }
    let default = async || dev.get("/auth/context").await.body["project_id"].clone();
    let deleted = dev.delete("/org/projects/default").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    assert_eq!(default().await, projects[0]["id"]);
    let archive = json!({"status": "archived"});
    dev.patch("/org/projects/first", archive).await;
    assert_eq!(default().await, projects[1]["id"]);
    // It does not become the default again.
    let activate = json!({"status": "active"});
    dev.patch("/org/projects/first", activate).await;
    assert_eq!(default().await, projects[1]["id"]);

    let state = dev.finish().await;
    let dev = Dev::start_in(state, &[]).await;
    let context = dev.get("/auth/context").await;
    assert_eq!(context.body["project_id"], projects[1]["id"]);
    dev.get("/org/projects/default")
        .await
        .assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn bound_key_reads_its_project_and_finds_no_other() {
    let dev = Dev::start().await;
    let own = project(&dev, "own").await;
    project(&dev, "other").await;
    let key = key_of(&dev, &own).await;
    let as_bound = |method: Method, path: &str| dev.anonymous(method, path).bearer_auth(&key);
    let change = json!({"name": "changed"});
    for own_path in ["/org/projects/own", &path(id(&own))] {
        let read = Answer::of(as_bound(Method::GET, own_path)).await;
        assert_eq!(read.body, own);
        Answer::of(as_bound(Method::PATCH, own_path).json(&change))
            .await
            .assert_error(403, "forbidden");
        Answer::of(as_bound(Method::DELETE, own_path))
            .await
            .assert_error(403, "forbidden");
    }
    for other in ["other", "default", "missing"] {
        let path = path(other);
        Answer::of(as_bound(Method::GET, &path))
            .await
            .assert_error(404, "not_found");
        Answer::of(as_bound(Method::PATCH, &path).json(&change))
            .await
            .assert_error(404, "not_found");
        Answer::of(as_bound(Method::DELETE, &path))
            .await
            .assert_error(404, "not_found");
    }
    assert_eq!(dev.get("/org/projects/own").await.body, own);
    dev.finish().await;
}
