//! `/org/projects`.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::dev::{Answer, Dev};

mod archive;
mod collection;
mod deprecated;
mod item;
mod limits;

/// An id of the form of a project id that no project has.
const UNKNOWN: &str = "proj_00000000000000000000000000";

fn id(project: &Value) -> &str {
    project["id"].as_str().unwrap()
}

/// Creates a project.
async fn project(dev: &Dev, name: &str) -> Value {
    let created = dev.post("/org/projects", json!({"name": name})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    created.body
}

/// Creates a key that is bound to a project.
async fn key_of(dev: &Dev, project: &Value) -> String {
    let request = json!({"name": "bound", "project_id": id(project)});
    let created = dev.post("/org/api_keys", request).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    created.body["key"].as_str().unwrap().to_owned()
}

/// Returns a request that selects a project by its header.
fn selecting(dev: &Dev, project: &Value, method: Method, path: &str) -> RequestBuilder {
    dev.request(method, path)
        .header("x-project-id", id(project))
}

/// Creates a headless browser in a project.
async fn browser_of(dev: &Dev, project: &Value) -> Value {
    let request = selecting(dev, project, Method::POST, "/browsers");
    let created = Answer::of(request.json(&json!({"headless": true}))).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    created.body
}

/// Returns the path of a project, whose name or id is percent-encoded.
fn path(id_or_name: &str) -> String {
    let segment: String = id_or_name
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    format!("/org/projects/{segment}")
}

fn names(listed: &Value) -> Vec<&str> {
    let projects = listed.as_array().unwrap().iter();
    projects
        .map(|project| project["name"].as_str().unwrap())
        .collect()
}
