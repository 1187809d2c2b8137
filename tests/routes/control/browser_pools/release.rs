//! `/browser_pools/{id_or_name}/release`.

use super::*;

#[tokio::test]
async fn only_a_browser_of_the_pool_is_released() {
    let dev = Dev::start().await;
    let leasing = pool(&dev, json!({"size": 1, "name": "n", "headless": true})).await;
    pool(&dev, json!({"size": 0, "name": "other"})).await;
    let leased = dev.post("/browser_pools/n/acquire", json!({})).await;
    assert_eq!(leased.status, StatusCode::OK, "{}", leased.body);
    let session = json!({"session_id": leased.body["session_id"]});
    let own = dev.browser(json!({"headless": true})).await;
    let release = async |pool: &str, session: &Value| {
        let path = format!("/browser_pools/{pool}/release");
        dev.post(&path, session.clone()).await
    };
    for (pool, session) in [
        ("other", &session),
        ("n", &json!({"session_id": own["session_id"]})),
    ] {
        let refused = release(pool, session).await;
        refused.assert_error(409, "not_leased");
        assert_eq!(refused.header("x-should-retry"), "false");
    }
    let unknown = json!({"session_id": UNKNOWN_BROWSER});
    let refused = release("n", &unknown).await;
    refused.assert_error(404, "not_found");
    assert_hidden(
        &dev,
        Method::POST,
        "/browser_pools/n/release",
        session.clone(),
    )
    .await;
    let by_id = format!("/browser_pools/{}/release", id(&leasing));
    assert_hidden(&dev, Method::POST, &by_id, session.clone()).await;
    // Nor with a pool of the other project.
    let key = other_key(&dev).await;
    let request = dev
        .anonymous(Method::POST, "/browser_pools")
        .bearer_auth(&key);
    let created = Answer::of(request.json(&json!({"size": 0, "name": "n"}))).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let request = dev.anonymous(Method::POST, "/browser_pools/n/release");
    let hidden = Answer::of(request.bearer_auth(&key).json(&session)).await;
    hidden.assert_error(404, "not_found");
    for _ in 0..2 {
        let released = release("n", &session).await;
        assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.body);
    }
    let path = format!("/browsers/{}", leased.body["session_id"].as_str().unwrap());
    dev.get(&path).await.assert_error(404, "not_found");
    dev.finish().await;
}
