//! `/browser_pools/{id_or_name}/acquire`.

use super::*;

#[tokio::test]
async fn empty_pool_is_204_when_the_time_is_up() {
    let dev = Dev::start().await;
    let created = pool(&dev, json!({"size": 0, "name": "n"})).await;
    for seconds in [0, 1] {
        let body = json!({"acquire_timeout_seconds": seconds});
        let answer = dev.post("/browser_pools/n/acquire", body).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.body);
        assert_eq!(answer.body, Value::Null);
    }
    // The ticket of a client is removed after its answer.
    until("no waiting client", async || {
        let pool = dev.get("/browser_pools/n").await.body;
        (pool["waiting_count"] == 0).then_some(())
    })
    .await;
    let by_id = format!("/browser_pools/{}/acquire", id(&created));
    for path in ["/browser_pools/n/acquire", &by_id] {
        assert_hidden(&dev, Method::POST, path, json!({})).await;
    }
    dev.finish().await;
}

#[tokio::test]
async fn lease_has_its_own_properties_and_those_of_the_pool() {
    let dev = Dev::start().await;
    let settings = json!({
        "size": 1, "name": "n", "headless": true, "timeout_seconds": 300,
        "start_url": "data:text/html,<title>pool</title>",
        "viewport": {"width": 800, "height": 600},
    });
    let created = pool(&dev, settings).await;
    let lease = json!({
        "name": "own", "tags": {"a": "b"}, "start_url": "data:text/html,<title>lease</title>",
    });
    let request = dev.request(Method::POST, "/browser_pools/n/acquire");
    let request = request.header("idempotency-key", "k").json(&lease);
    let first = Answer::of(request.try_clone().unwrap()).await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.body);
    let browser = &first.body;
    assert_eq!(browser["name"], "own");
    assert_eq!(browser["tags"], json!({"a": "b"}));
    assert_eq!(browser["timeout_seconds"], 300);
    assert_eq!(browser["start_url"], lease["start_url"]);
    assert_eq!(browser["pool"], json!({"id": id(&created), "name": "n"}));
    let viewport = json!({"width": 800, "height": 600, "refresh_rate": 25});
    assert_eq!(browser["viewport"], viewport);
    let code = "return [await page.title(), await page.evaluate(() => screen.width)]";
    let executed = dev.post("/browsers/own/automation/execute", json!({"code": code}));
    assert_eq!(executed.await.body["result"], json!(["lease", 800]));
    // The same key repeats the result, and is for the same request only.
    let again = Answer::of(request).await;
    assert_eq!(again.body["session_id"], browser["session_id"]);
    let by_id = format!("/browser_pools/{}/acquire", id(&created));
    let by_id = dev.request(Method::POST, &by_id);
    let again = Answer::of(by_id.header("idempotency-key", "k").json(&lease)).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.body);
    assert_eq!(again.body["session_id"], browser["session_id"]);
    let other = dev.request(Method::POST, "/browser_pools/n/acquire");
    let other = other.header("idempotency-key", "k").json(&json!({}));
    Answer::of(other).await.assert_error(409, "conflict");
    let taken = dev.post("/browser_pools/n/acquire", json!({"name": "own"}));
    let taken = taken.await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    let counts = dev.get("/browser_pools/n").await.body;
    assert_eq!(counts["acquired_count"], 1, "{counts}");
    assert_eq!(counts["available_count"], 0, "{counts}");
    dev.finish().await;
}
