//! `/browser_pools/{id_or_name}`.

use super::*;

#[tokio::test]
async fn pool_is_changed_and_absent_fields_stay() {
    let dev = Dev::start().await;
    let settings = json!({"size": 0, "name": "n", "max_age_seconds": 60, "max_leases": 3});
    let before = pool(&dev, settings).await;
    let unchanged = dev.patch("/browser_pools/n", json!({"name": null})).await;
    assert_eq!(
        unchanged.body["browser_pool_config"],
        before["browser_pool_config"]
    );
    let change = json!({
        "name": "m", "timeout_seconds": 60, "fill_rate_per_minute": 50, "max_age_seconds": 0,
        "max_leases": 5, "headless": true, "start_url": "about:blank",
        "viewport": {"width": 800, "height": 600},
    });
    let changed = dev.patch("/browser_pools/n", change).await;
    let config = json!({
        "size": 0, "name": "m", "fill_rate_per_minute": 50, "timeout_seconds": 60,
        "headless": true, "kiosk_mode": false, "stealth": false, "max_leases": 5,
        "viewport": {"width": 800, "height": 600, "refresh_rate": 25}, "start_url": "about:blank",
        "refresh_on_profile_update": false, "region": "us-east",
    });
    assert_eq!(changed.body["browser_pool_config"], config);
    assert_eq!(changed.body["name"], "m");
    assert_ne!(changed.body["config_hash"], before["config_hash"]);
    let gone = dev.get("/browser_pools/n").await;
    gone.assert_error(404, "not_found");
    pool(&dev, json!({"size": 0, "name": "other"})).await;
    let taken = dev
        .patch("/browser_pools/m", json!({"name": "other"}))
        .await;
    taken.assert_error(409, "conflict");
    assert_hidden(&dev, Method::GET, "/browser_pools/m", json!({})).await;
    dev.finish().await;
}

#[tokio::test]
async fn unknown_pools_are_not_found() {
    let dev = Dev::start().await;
    for path in ["none", UNKNOWN] {
        let path = format!("/browser_pools/{path}");
        let got = dev.get(&path).await;
        got.assert_error(404, "not_found");
        let changed = dev.patch(&path, json!({"size": 1})).await;
        changed.assert_error(404, "not_found");
        dev.delete(&path).await.assert_error(404, "not_found");
        for action in ["acquire", "flush", "release"] {
            let body = json!({"session_id": UNKNOWN_BROWSER});
            let answer = dev.post(&format!("{path}/{action}"), body).await;
            answer.assert_error(404, "not_found");
        }
    }
    dev.finish().await;
}

#[tokio::test]
async fn pool_without_leases_is_deleted_once() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 0, "name": "n"})).await;
    let key = other_key(&dev).await;
    let request = dev.anonymous(Method::DELETE, "/browser_pools/n");
    let hidden = Answer::of(request.bearer_auth(&key)).await;
    hidden.assert_error(404, "not_found");
    let request = dev.anonymous(Method::PATCH, "/browser_pools/n");
    let hidden = Answer::of(request.json(&json!({})).bearer_auth(&key)).await;
    hidden.assert_error(404, "not_found");
    let deleted = dev.delete("/browser_pools/n").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    let again = dev.delete("/browser_pools/n").await;
    again.assert_error(404, "not_found");
    let logged = "/audit-logs?start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z&method=DELETE";
    until("the record of the deletion", async || {
        let logged = dev.get(logged).await.body;
        (logged[0]["action"] == "delete_pool").then_some(())
    })
    .await;
    dev.finish().await;
}
