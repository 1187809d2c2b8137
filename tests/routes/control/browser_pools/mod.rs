//! `/browser_pools`.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

mod acquire;
mod bad_input;
mod collection;
mod flush;
mod item;
mod profile;
mod release;

/// An id of the form of a pool id that no pool has.
const UNKNOWN: &str = "pool_00000000000000000000000000";
/// An id of the form of a browser id that no browser has.
const UNKNOWN_BROWSER: &str = "brw_00000000000000000000000000";

/// Creates a pool.
async fn pool(dev: &Dev, settings: Value) -> Value {
    let created = dev.post("/browser_pools", settings).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    created.body
}

fn id(pool: &Value) -> &str {
    pool["id"].as_str().unwrap()
}

fn names(listed: &Value) -> Vec<&str> {
    let pools = listed.as_array().unwrap().iter();
    pools.map(|pool| pool["name"].as_str().unwrap()).collect()
}

/// Returns the key of another project, which is new.
async fn other_key(dev: &Dev) -> String {
    let projects = dev.get("/org/projects").await.body;
    let name = format!("other-{}", projects.as_array().unwrap().len());
    let project = dev.post("/org/projects", json!({"name": name})).await;
    assert_eq!(project.status, StatusCode::CREATED, "{}", project.body);
    let request = json!({"name": "k", "project_id": project.body["id"]});
    let created = dev.post("/org/api_keys", request).await;
    created.body["key"].as_str().unwrap().to_owned()
}

/// Checks that a request is 404 with the key of another project and 401 without one.
async fn assert_hidden(dev: &Dev, method: Method, path: &str, body: Value) {
    let key = other_key(dev).await;
    let request = dev.anonymous(method.clone(), path).json(&body);
    let hidden = Answer::of(request.bearer_auth(key)).await;
    hidden.assert_error(404, "not_found");
    let anonymous = Answer::of(dev.anonymous(method, path).json(&body)).await;
    anonymous.assert_error(401, "unauthorized");
}
