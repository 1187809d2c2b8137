//! `/audit-logs`.

mod collection;
mod export;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

/// A window with all requests of a test.
const WINDOW: &str = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";

/// Returns the entries that match, newest first, without those of searches.
async fn entries(dev: &Dev, filter: &str) -> Vec<Value> {
    let path = format!("/audit-logs?{WINDOW}&limit=100{filter}");
    let found = dev.get(&path).await;
    assert_eq!(found.status, 200, "{}", found.body);
    let entries = found.body.as_array().unwrap().iter();
    let is_other = |entry: &&Value| entry["action"] != "list_audit_logs";
    entries.filter(is_other).cloned().collect()
}

/// Waits until a filter has that many entries, and returns them.
async fn await_entries(dev: &Dev, filter: &str, count: usize) -> Vec<Value> {
    until("the entries of the audit log", async || {
        let found = entries(dev, filter).await;
        (found.len() >= count).then_some(found)
    })
    .await
}

/// Creates a key that is bound to the default project.
async fn bound_key(dev: &Dev) -> String {
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let created = json!({"name": "bound", "project_id": project});
    let created = dev.post("/org/api_keys", created).await.body;
    created["key"].as_str().unwrap().to_owned()
}

/// Asserts that a path needs a key that is valid for all projects.
async fn assert_access(dev: &Dev, path: &str) {
    let bound = bound_key(dev).await;
    let request = dev.anonymous(Method::GET, path);
    Answer::of(request.bearer_auth(&bound))
        .await
        .assert_error(403, "forbidden");
    for request in [
        dev.anonymous(Method::GET, path),
        dev.anonymous(Method::GET, &format!("{path}&jwt=x.y.z")),
        dev.anonymous(Method::GET, path).bearer_auth("x"),
    ] {
        Answer::of(request).await.assert_error(401, "unauthorized");
    }
}

/// Invalid parameters of both routes, with the fields that the error names.
const INVALID: [(&str, &[&str]); 20] = [
    ("", &["end", "start"]),
    ("start=2026-01-01T00:00:00Z", &["end"]),
    ("start=yesterday&end=1", &["end", "start"]),
    (
        "start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z",
        &["end"],
    ),
    (
        "start=2026-01-02T00:00:00Z&end=2026-01-02T00:00:00Z",
        &["end"],
    ),
    ("WINDOW&limit=0", &["limit"]),
    ("WINDOW&limit=x", &["limit"]),
    ("WINDOW&limit=50001", &["limit"]),
    ("WINDOW&method=BREW", &["method"]),
    ("WINDOW&method=", &["method"]),
    ("WINDOW&exclude_method=GET,,POST", &["exclude_method"]),
    (
        "WINDOW&method=GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET",
        &["method"],
    ),
    ("WINDOW&auth_strategy=oauth", &["auth_strategy"]),
    ("WINDOW&service=Org", &["service"]),
    ("WINDOW&service=org%27--", &["service"]),
    ("WINDOW&search=", &["search"]),
    ("WINDOW&search=a%00b", &["search"]),
    ("WINDOW&search=a%FFb", &["search"]),
    ("WINDOW&search_user_id=,", &["search_user_id"]),
    (
        "limit=0&method=x&search=",
        &["end", "limit", "method", "search", "start"],
    ),
];

/// Asserts that each invalid parameter of both routes is named.
async fn assert_invalid_parameters(dev: &Dev, route: &str) {
    let too_long = format!("WINDOW&search={}", "x".repeat(256));
    let too_many = format!("WINDOW&search_user_id={}", ["u"; 101].join(","));
    let others = [
        (too_long.as_str(), &["search"][..]),
        (too_many.as_str(), &["search_user_id"]),
    ];
    for (query, fields) in INVALID.into_iter().chain(others) {
        let query = query.replace("WINDOW", WINDOW);
        let refused = dev.get(&format!("{route}?{query}")).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{query}");
    }
}
