//! `/browser_pools/{id_or_name}/flush`.

use super::*;

#[tokio::test]
async fn empty_pool_is_flushed() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 0, "name": "n"})).await;
    let flushed = dev.post("/browser_pools/n/flush", json!({})).await;
    assert_eq!(flushed.status, StatusCode::NO_CONTENT, "{}", flushed.body);
    assert_hidden(&dev, Method::POST, "/browser_pools/n/flush", json!({})).await;
    dev.finish().await;
}
