//! `/profiles/{id_or_name}`.

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    dev::Dev,
    profiles::{found, profile},
};

#[tokio::test]
async fn profile_is_found_by_id_and_name_and_renamed() {
    let dev = Dev::start().await;
    let id = profile(&dev, "shop").await;
    profile(&dev, "bank").await;
    assert_eq!(found(&dev, "shop").await, found(&dev, &id).await);
    let taken = dev.patch("/profiles/shop", json!({"name": "bank"})).await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    let renamed = dev.patch("/profiles/shop", json!({"name": "mall"})).await;
    assert_eq!(renamed.status, StatusCode::OK, "{}", renamed.body);
    assert_eq!(renamed.body["name"], "mall");
    assert_eq!(renamed.body["id"], id.as_str());
    dev.get("/profiles/shop")
        .await
        .assert_error(404, "not_found");
    let unchanged = dev.patch(&format!("/profiles/{id}"), json!({})).await;
    assert_eq!(unchanged.body, renamed.body);
    dev.finish().await;
}

#[tokio::test]
async fn deleted_profile_is_not_found_and_its_name_is_free() {
    let dev = Dev::start().await;
    let id = profile(&dev, "shop").await;
    let deleted = dev.delete("/profiles/shop").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    for item in ["shop", &id] {
        let path = format!("/profiles/{item}");
        dev.get(&path).await.assert_error(404, "not_found");
        dev.delete(&path).await.assert_error(404, "not_found");
        dev.patch(&path, json!({"name": "x"}))
            .await
            .assert_error(404, "not_found");
    }
    assert_eq!(dev.get("/profiles").await.body, json!([]));
    profile(&dev, "shop").await;
    dev.finish().await;
}

#[tokio::test]
async fn profile_without_a_version_has_no_archive() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    dev.get("/profiles/shop/download")
        .await
        .assert_error(404, "profile_empty");
    assert_eq!(dev.get("/profiles/shop/versions").await.body, json!([]));
    let restored = dev
        .post("/profiles/shop/versions/1/restore", json!({}))
        .await;
    restored.assert_error(404, "not_found");
    dev.finish().await;
}
