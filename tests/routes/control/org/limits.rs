//! `/org/limits`.

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::dev::{Answer, Dev};

const PATH: &str = "/org/limits";

#[tokio::test]
async fn limits_of_the_organization_show_the_browsers_in_use() {
    let dev = Dev::with(&["--max-browsers", "3"]).await;
    let expected = |used: u32| {
        json!({
            "max_concurrent_sessions": 3,
            "default_project_max_concurrent_sessions": null,
            "concurrent_sessions_used": used,
            "concurrent_sessions_available": 3 - used,
            "max_auth_connections": 10_000,
            "auth_connections_used": 0,
            "min_health_check_interval_seconds": 60,
            "max_vaults": 0,
            "vaults_used": 0,
        })
    };
    assert_eq!(dev.get(PATH).await.body, expected(0));
    let browser = dev.browser(json!({"name": "b"})).await;
    assert!(browser["session_id"].is_string());
    assert_eq!(dev.get(PATH).await.body, expected(1));
    dev.delete("/browsers/b").await;
    assert_eq!(dev.get(PATH).await.body, expected(0));
    dev.finish().await;
}

#[tokio::test]
async fn default_limit_applies_to_projects_without_their_own() {
    let dev = Dev::with(&["--max-browsers", "3"]).await;
    let set = async |limit: u32| {
        let change = json!({"default_project_max_concurrent_sessions": limit});
        let changed = dev.patch(PATH, change).await;
        assert_eq!(changed.status, StatusCode::OK);
        changed.body["default_project_max_concurrent_sessions"].clone()
    };
    assert_eq!(set(1).await, json!(1));
    dev.browser(json!({})).await;
    let refused = dev.post("/browsers", json!({"headless": true})).await;
    refused.assert_error(429, "limit_exceeded");
    for unchanged in [
        json!({}),
        json!({"default_project_max_concurrent_sessions": null}),
    ] {
        let same = dev.patch(PATH, unchanged).await;
        assert_eq!(
            same.body["default_project_max_concurrent_sessions"],
            json!(1)
        );
    }
    assert_eq!(set(3).await, json!(3));
    assert_eq!(set(0).await, json!(null));
    dev.browser(json!({})).await;
    dev.finish().await;
}

#[tokio::test]
async fn invalid_limit_of_the_organization_is_400() {
    let dev = Dev::with(&["--max-browsers", "3"]).await;
    for limit in [json!(4), json!(-1), json!(1.5), json!("1"), json!(u64::MAX)] {
        let change = json!({"default_project_max_concurrent_sessions": limit});
        let refused = dev.patch(PATH, change).await;
        refused.assert_error(400, "bad_request");
        let fields = refused.bad_fields();
        assert_eq!(
            fields,
            ["default_project_max_concurrent_sessions"],
            "{limit}"
        );
    }
    let limits = dev.get(PATH).await;
    assert_eq!(
        limits.body["default_project_max_concurrent_sessions"],
        json!(null)
    );
    dev.finish().await;
}

#[tokio::test]
async fn bound_key_has_no_access_to_limits_of_the_organization() {
    let dev = Dev::start().await;
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let request = json!({"name": "bound", "project_id": project});
    let key = dev.post("/org/api_keys", request).await;
    let as_bound = |method| {
        dev.anonymous(method, PATH)
            .bearer_auth(key.body["key"].as_str().unwrap())
    };
    let change = json!({"default_project_max_concurrent_sessions": 1});
    for request in [
        as_bound(Method::GET),
        as_bound(Method::PATCH).json(&change),
        as_bound(Method::PATCH).json(&json!({})),
    ] {
        Answer::of(request).await.assert_error(403, "forbidden");
    }
    dev.finish().await;
}
