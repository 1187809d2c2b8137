//! `/org/projects`.

use super::*;

#[tokio::test]
async fn project_is_created_and_listed_newest_first() {
    let dev = Dev::start().await;
    let created = project(&dev, "a project").await;
    assert_eq!(
        (&created["name"], &created["status"]),
        (&json!("a project"), &json!("active"))
    );
    assert!(id(&created).starts_with("proj_"));
    assert_eq!(created["created_at"], created["updated_at"]);
    let listed = dev.get("/org/projects").await;
    assert_eq!(names(&listed.body), ["a project", "default"]);
    assert_eq!(listed.body[0], created);
    dev.finish().await;
}

#[tokio::test]
async fn projects_are_filtered_and_listed_in_pages() {
    let dev = Dev::start().await;
    for name in ["blue", "Blue 2", "50% blue\\_", "ÜBER"] {
        let created = dev.post("/org/projects", json!({"name": name})).await;
        assert_eq!(created.status == StatusCode::CREATED, !name.contains('%'));
    }
    let newest = dev.get("/org/projects?limit=1").await.body[0].clone();
    for (query, expected) in [
        ("", &["ÜBER", "Blue 2", "blue", "default"][..]),
        ("query=BLUE", &["Blue 2", "blue"]),
        ("query=%C3%9Cber", &["ÜBER"]),
        ("query=%25", &[]),
        ("query=_", &["ÜBER", "Blue 2", "blue", "default"]),
        ("query=\\", &[]),
        ("query='%20OR%20''='", &[]),
        (&format!("query={}", id(&newest)), &["ÜBER"]),
        ("name=blue", &["blue"]),
        ("name=Blue", &[]),
        ("name=blue&query=Blue%202", &[]),
        ("name=", &[]),
        ("limit=2", &["ÜBER", "Blue 2"]),
        ("limit=2&offset=2", &["blue", "default"]),
        ("offset=4", &[]),
    ] {
        let listed = dev.get(&format!("/org/projects?{query}")).await;
        assert_eq!(names(&listed.body), expected, "{query}");
        let next = if query == "limit=2" { "2" } else { "0" };
        assert_eq!(listed.header("x-next-offset"), next, "{query}");
        assert_eq!(listed.header("x-has-more"), (next == "2").to_string());
    }
    let long = "x".repeat(256);
    for (query, fields) in [
        ("limit=0&offset=-1", &["limit", "offset"][..]),
        ("limit=101", &["limit"]),
        (&format!("name={long}&query={long}"), &["name", "query"]),
        ("name=%00&query=%00", &["name", "query"]),
        ("query=%FF", &["query"]),
    ] {
        let listed = dev.get(&format!("/org/projects?{query}")).await;
        listed.assert_error(400, "bad_request");
        assert_eq!(listed.bad_fields(), fields, "{query}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_project_request_names_the_field() {
    let dev = Dev::start().await;
    for body in [
        json!({}),
        json!({"name": null}),
        json!({"name": 1}),
        json!({"name": ""}),
        json!({"name": "a/b"}),
        json!({"name": "../../etc/passwd"}),
        json!({"name": "100%"}),
        json!({"name": "a\u{0}b"}),
        json!({"name": "a\nb"}),
        json!({"name": "."}),
        json!({"name": ".."}),
        json!({"name": UNKNOWN}),
        json!({"name": "ü".repeat(256)}),
        json!({"name": ["a"]}),
    ] {
        let refused = dev.post("/org/projects", body.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), ["name"], "{body}");
    }
    let refused = dev.post("/org/projects", json!([])).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["body"]);
    let listed = dev.get("/org/projects").await;
    assert_eq!(names(&listed.body), ["default"]);
    dev.finish().await;
}

#[tokio::test]
async fn project_is_found_by_any_valid_name() {
    let dev = Dev::start().await;
    for name in [
        "Ünïcode 😀 name",
        "'; DROP TABLE projects; --",
        "a\\b?c#d&e=f+g",
        "proj_x",
        "...",
        &"ü".repeat(255),
    ] {
        let created = project(&dev, name).await;
        assert_eq!(dev.get(&path(name)).await.body, created, "{name}");
        assert_eq!(dev.get(&path(id(&created))).await.body, created, "{name}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn name_is_unique_among_the_projects_that_are_not_deleted() {
    let dev = Dev::start().await;
    let first = project(&dev, "a").await;
    for name in ["a", "default"] {
        let taken = dev.post("/org/projects", json!({"name": name})).await;
        taken.assert_error(409, "conflict");
        assert_eq!(taken.bad_fields(), ["name"]);
        assert_eq!(taken.header("x-should-retry"), "false");
    }
    let deleted = dev.delete("/org/projects/a").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    let second = project(&dev, "a").await;
    assert_ne!(id(&first), id(&second));
    dev.finish().await;
}

#[tokio::test]
async fn bound_key_lists_its_project_and_creates_none() {
    let dev = Dev::start().await;
    let own = project(&dev, "own").await;
    let key = key_of(&dev, &own).await;
    let request = |method| dev.anonymous(method, "/org/projects").bearer_auth(&key);
    let listed = Answer::of(request(Method::GET)).await;
    assert_eq!(names(&listed.body), ["own"]);
    let elsewhere = dev
        .anonymous(Method::GET, "/org/projects?name=default")
        .bearer_auth(&key);
    assert_eq!(Answer::of(elsewhere).await.body, json!([]));
    let refused = Answer::of(request(Method::POST).json(&json!({"name": "new"}))).await;
    refused.assert_error(403, "forbidden");
    assert_eq!(dev.get("/org/projects/new").await.status, 404);
    dev.finish().await;
}
