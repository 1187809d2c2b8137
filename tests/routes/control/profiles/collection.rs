//! `/profiles`.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    profiles::{path, profile},
};

fn names(listed: &Answer) -> Vec<&str> {
    let listed = listed.body.as_array().unwrap().iter();
    listed
        .map(|profile| profile["name"].as_str().unwrap_or("-"))
        .collect()
}

#[tokio::test]
async fn created_profile_is_empty_and_has_a_unique_name() {
    let dev = Dev::start().await;
    let created = dev.post("/profiles", json!({"name": "shop"})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let created = created.body;
    assert!(created["id"].as_str().unwrap().starts_with("prof_"));
    assert_eq!(created["created_at"], created["updated_at"]);
    for absent in ["version", "size_bytes", "last_used_at", "last_save_error"] {
        assert_eq!(created.get(absent), None, "{absent}");
    }
    let taken = dev.post("/profiles", json!({"name": "shop"})).await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    assert_eq!(taken.header("x-should-retry"), "false");
    let unnamed = dev.post("/profiles", json!({})).await;
    assert_eq!(unnamed.status, StatusCode::CREATED, "{}", unnamed.body);
    assert_eq!(unnamed.body.get("name"), None);
    let also_unnamed = dev.post("/profiles", json!({"name": null})).await;
    assert_eq!(also_unnamed.status, StatusCode::CREATED);
    dev.finish().await;
}

#[tokio::test]
async fn list_is_filtered_and_paged() {
    let dev = Dev::start().await;
    for name in ["a-shop", "b-SHOP", "c-bank"] {
        profile(&dev, name).await;
    }
    let list = async |query: &str| dev.get(&format!("/profiles?{query}")).await;
    assert_eq!(names(&list("").await), ["c-bank", "b-SHOP", "a-shop"]);
    assert_eq!(names(&list("name=a-shop").await), ["a-shop"]);
    assert_eq!(names(&list("name=shop").await), Vec::<&str>::new());
    assert_eq!(names(&list("query=shop").await), ["b-SHOP", "a-shop"]);
    let first = list("limit=2").await;
    assert_eq!(names(&first), ["c-bank", "b-SHOP"]);
    assert_eq!(
        (first.header("x-has-more"), first.header("x-next-offset")),
        ("true", "2")
    );
    let last = list("limit=2&offset=2").await;
    assert_eq!(names(&last), ["a-shop"]);
    assert_eq!(
        (last.header("x-has-more"), last.header("x-next-offset")),
        ("false", "0")
    );
    dev.finish().await;
}

#[tokio::test]
async fn profiles_of_another_project_are_not_found() {
    let dev = Dev::start().await;
    let project = dev.post("/org/projects", json!({"name": "other"})).await;
    let project = project.body["id"].as_str().unwrap();
    let in_other = |method: Method, path: &str| {
        let request = dev.request(method, path);
        Answer::of(request.header("x-project-id", project).json(&json!({})))
    };
    let id = profile(&dev, "shop").await;
    assert_eq!(in_other(Method::GET, "/profiles").await.body, json!([]));
    for item in [id.as_str(), "shop"] {
        for (method, path) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::DELETE, ""),
            (Method::GET, "/download"),
            (Method::PUT, "/upload"),
            (Method::GET, "/versions"),
            (Method::POST, "/versions/1/restore"),
        ] {
            let path = format!("/profiles/{item}{path}");
            in_other(method, &path).await.assert_error(404, "not_found");
        }
    }
    assert_browsers_do_not_find(&dev, project, &id).await;
    // The name is free there, and the project is not empty any more.
    let create = dev.request(Method::POST, "/profiles");
    let create = create.header("x-project-id", project);
    let created = Answer::of(create.json(&json!({"name": "shop"}))).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let refused = dev.delete("/org/projects/other").await;
    refused.assert_error(409, "project_not_empty");
    let deleted = in_other(Method::DELETE, "/profiles/shop").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    let deleted = dev.delete("/org/projects/other").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    dev.finish().await;
}

/// Checks that browsers of a project are not given a profile of another one, nor saved to it.
async fn assert_browsers_do_not_find(dev: &Dev, project: &str, id: &str) {
    let send = |method: Method, path: &str, body: Value| {
        let request = dev.request(method, path).header("x-project-id", project);
        Answer::of(request.json(&body))
    };
    let created = send(Method::POST, "/browsers", json!({})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let browser = path(&created.body);
    for selection in [json!({"id": id}), json!({"name": "shop"})] {
        let body = json!({ "profile": selection });
        for (method, path) in [(Method::POST, "/browsers"), (Method::PATCH, &browser)] {
            let refused = send(method, path, body.clone()).await;
            refused.assert_error(404, "not_found");
            assert_eq!(refused.bad_fields(), ["profile"]);
        }
    }
    // With the name, a profile of the project itself would be created.
    let saves = format!("{browser}/profiles");
    let refused = send(Method::POST, &saves, json!({"profile_id": id})).await;
    refused.assert_error(404, "not_found");
    let found = send(Method::GET, &browser, json!({})).await;
    assert_eq!(found.body.get("profile"), None, "{}", found.body);
    let deleted = send(Method::DELETE, &browser, json!({})).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(versions, json!([]));
}

#[tokio::test]
async fn archived_project_gets_no_profile() {
    let dev = Dev::start().await;
    dev.post("/org/projects", json!({"name": "other"})).await;
    let archived = dev
        .patch("/org/projects/other", json!({"status": "archived"}))
        .await;
    let project = archived.body["id"].as_str().unwrap();
    let create = dev.request(Method::POST, "/profiles");
    let create = create.header("x-project-id", project);
    let refused = Answer::of(create.json(&json!({}))).await;
    refused.assert_error(403, "project_archived");
    assert_eq!(dev.get("/profiles").await.body, Value::Array(Vec::new()));
    dev.finish().await;
}
