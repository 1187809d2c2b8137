//! `/browser_pools`: create and list.

use super::*;

#[tokio::test]
async fn pool_is_created_with_defaults_and_found() {
    let dev = Dev::start().await;
    let created = pool(&dev, json!({"size": 0, "name": "n"})).await;
    assert!(id(&created).starts_with("pool_"));
    let config = json!({
        "size": 0, "name": "n", "fill_rate_per_minute": 25, "timeout_seconds": 600,
        "headless": false, "kiosk_mode": false, "stealth": false,
        "viewport": {"width": 1920, "height": 1080, "refresh_rate": 25},
        "refresh_on_profile_update": false, "region": "us-east",
    });
    assert_eq!(created["browser_pool_config"], config);
    assert_eq!(created["created_at"], created["updated_at"]);
    for count in ["available_count", "acquired_count", "waiting_count"] {
        assert_eq!(created[count], 0);
    }
    assert_eq!(dev.get("/browser_pools/n").await.body, created);
    let by_id = dev.get(&format!("/browser_pools/{}", id(&created))).await;
    assert_eq!(by_id.body, created);
    let settings = json!({
        "size": 0, "fill_rate_per_minute": 100, "timeout_seconds": 10, "headless": true,
        "kiosk_mode": true, "viewport": {"width": 800, "height": 600},
        "start_url": "about:blank", "max_age_seconds": 60, "max_leases": 3, "unknown": 1,
    });
    let other = pool(&dev, settings).await;
    let config = json!({
        "size": 0, "fill_rate_per_minute": 100, "timeout_seconds": 10, "headless": true,
        "kiosk_mode": true, "stealth": false,
        "viewport": {"width": 800, "height": 600, "refresh_rate": 25},
        "start_url": "about:blank", "max_age_seconds": 60, "max_leases": 3,
        "refresh_on_profile_update": false, "region": "us-east",
    });
    assert_eq!(other["browser_pool_config"], config);
    assert_eq!(other.get("name"), None);
    assert_ne!(other["config_hash"], created["config_hash"]);
    let taken = dev.post("/browser_pools", json!({"size": 0, "name": "n"}));
    let taken = taken.await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    assert_eq!(taken.header("x-should-retry"), "false");
    dev.finish().await;
}

#[tokio::test]
async fn pools_are_filtered_and_listed_in_pages() {
    let dev = Dev::start().await;
    for name in ["blue", "Blue-2", "red"] {
        pool(&dev, json!({"size": 0, "name": name})).await;
    }
    for (query, expected) in [
        ("", &["red", "Blue-2", "blue"][..]),
        ("query=BLUE", &["Blue-2", "blue"]),
        ("name=blue", &["blue"]),
        ("name=Blue", &[]),
        ("region=us-east", &["red", "Blue-2", "blue"]),
        ("region=us-east&name=red", &["red"]),
        ("region=us-west", &[]),
        ("limit=2", &["red", "Blue-2"]),
        ("limit=2&offset=2", &["blue"]),
        ("offset=3", &[]),
    ] {
        let listed = dev.get(&format!("/browser_pools?{query}")).await;
        assert_eq!(names(&listed.body), expected, "{query}");
        let next = if query == "limit=2" { "2" } else { "0" };
        assert_eq!(listed.header("x-next-offset"), next, "{query}");
    }
    let key = other_key(&dev).await;
    let request = dev.anonymous(Method::GET, "/browser_pools");
    let listed = Answer::of(request.bearer_auth(key)).await;
    assert_eq!(listed.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn sizes_of_pools_are_limited_by_the_project() {
    let dev = Dev::with(&["--max-browsers", "1"]).await;
    let limits = "/org/projects/default/limits";
    dev.patch(limits, json!({"max_concurrent_sessions": 4}))
        .await;
    pool(&dev, json!({"size": 3, "name": "n", "headless": true})).await;
    let refused = dev.post("/browser_pools", json!({"size": 2})).await;
    refused.assert_error(429, "limit_exceeded");
    assert_ne!(refused.header("retry-after"), "");
    let refused = dev.patch("/browser_pools/n", json!({"size": 5})).await;
    refused.assert_error(429, "limit_exceeded");
    assert_eq!(
        dev.get("/browser_pools")
            .await
            .body
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let deleted = dev.delete("/org/projects/default").await;
    deleted.assert_error(409, "project_not_empty");
    dev.finish().await;
}

#[tokio::test]
async fn region_is_a_setting_that_pools_and_browsers_show() {
    let dev = Dev::with(&["--region", "eu-central-1"]).await;
    let created = pool(&dev, json!({"size": 0, "name": "n"})).await;
    assert_eq!(created["region"], "eu-central-1");
    assert_eq!(created["browser_pool_config"]["region"], "eu-central-1");
    let browser = dev.browser(json!({})).await;
    assert_eq!(browser["region"], "eu-central-1");
    assert_eq!(dev.get("/browsers").await.body[0]["region"], "eu-central-1");
    let listed = dev.get("/browser_pools?region=eu-central-1").await.body;
    assert_eq!(names(&listed), ["n"]);
    let listed = dev.get("/browser_pools?region=us-east").await;
    assert_eq!(listed.body, json!([]));
    assert_eq!(listed.header("x-has-more"), "false");
    dev.finish().await;
}
