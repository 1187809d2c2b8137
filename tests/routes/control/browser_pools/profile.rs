//! `/browser_pools`: the profile of a pool.

use super::*;
use crate::support::profiles::{found, profile};

const UNKNOWN_PROFILE: &str = "prof_00000000000000000000000000";

#[tokio::test]
async fn pool_has_a_profile_that_can_be_changed_and_removed() {
    let dev = Dev::start().await;
    let shop = profile(&dev, "shop").await;
    let bank = profile(&dev, "bank").await;
    let plain = pool(&dev, json!({"size": 0, "profile": {}})).await;
    assert_eq!(plain.get("profile_id"), None);
    assert_eq!(plain["browser_pool_config"].get("profile"), None);
    let settings = json!({
        "size": 0, "name": "n", "profile": {"name": "shop", "save_changes": false},
        "refresh_on_profile_update": true,
    });
    let created = pool(&dev, settings).await;
    assert_eq!(created["profile_id"], shop.as_str());
    let config = &created["browser_pool_config"];
    assert_eq!(config["profile"], json!({"id": shop, "name": "shop"}));
    assert_eq!(config["refresh_on_profile_update"], true);
    assert_ne!(created["config_hash"], plain["config_hash"]);
    assert_eq!(dev.get("/browser_pools?name=n").await.body[0], created);

    // Its name is that of the profile now.
    dev.patch("/profiles/shop", json!({"name": "mall"})).await;
    let seen = dev.get("/browser_pools/n").await.body;
    let renamed = json!({"id": shop, "name": "mall"});
    assert_eq!(seen["browser_pool_config"]["profile"], renamed);
    assert_eq!(seen["config_hash"], created["config_hash"]);
    let unchanged = dev.patch("/browser_pools/n", json!({"profile": null}));
    let unchanged = unchanged.await.body;
    assert_eq!(unchanged["browser_pool_config"]["profile"], renamed);

    let change = json!({"profile": {"id": bank}, "refresh_on_profile_update": false});
    let changed = dev.patch("/browser_pools/n", change).await.body;
    assert_eq!(changed["profile_id"], bank.as_str());
    assert_ne!(changed["config_hash"], created["config_hash"]);
    let config = &changed["browser_pool_config"];
    assert_eq!(config["refresh_on_profile_update"], false);
    let removed = dev.patch("/browser_pools/n", json!({"profile": {}})).await;
    assert_eq!(removed.body.get("profile_id"), None, "{}", removed.body);
    assert_eq!(removed.body["config_hash"], plain["config_hash"]);
    dev.finish().await;
}

#[tokio::test]
async fn profile_of_a_pool_is_not_deleted() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    pool(
        &dev,
        json!({"size": 0, "name": "n", "profile": {"name": "shop"}}),
    )
    .await;
    let refused = dev.delete("/profiles/shop").await;
    refused.assert_error(409, "profile_in_use");
    assert_eq!(refused.header("x-should-retry"), "false");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("pool n "), "{message}");
    found(&dev, "shop").await;
    dev.delete("/browser_pools/n").await;
    let deleted = dev.delete("/profiles/shop").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    dev.finish().await;
}

#[tokio::test]
async fn profile_that_cannot_be_used_is_refused_and_nothing_changes() {
    let dev = Dev::start().await;
    let shop = profile(&dev, "shop").await;
    let before = pool(&dev, json!({"size": 0, "name": "n"})).await;
    for (selection, fields) in [
        (json!("shop"), &["profile"][..]),
        (json!({"save_changes": false}), &["profile.id"]),
        (json!({"id": "shop"}), &["profile.id"]),
        (json!({"id": shop, "name": "shop"}), &["profile.name"]),
        (
            json!({"name": "shop", "save_changes": true}),
            &["profile.save_changes"],
        ),
        (
            json!({"name": "a b", "save_changes": 1}),
            &["profile.name", "profile.save_changes"],
        ),
    ] {
        let body = json!({"size": 0, "profile": selection});
        let created = dev.post("/browser_pools", body.clone()).await;
        created.assert_error(400, "bad_request");
        assert_eq!(created.bad_fields(), fields, "{body}");
        let changed = dev.patch("/browser_pools/n", body.clone()).await;
        changed.assert_error(400, "bad_request");
        assert_eq!(changed.bad_fields(), fields, "{body}");
    }
    for selection in [json!({"name": "none"}), json!({"id": UNKNOWN_PROFILE})] {
        let body = json!({"size": 0, "profile": selection});
        let created = dev.post("/browser_pools", body.clone()).await;
        created.assert_error(404, "not_found");
        assert_eq!(created.bad_fields(), ["profile"]);
        let changed = dev.patch("/browser_pools/n", body).await;
        changed.assert_error(404, "not_found");
    }
    let listed = dev.get("/browser_pools").await.body;
    assert_eq!(listed, json!([before]));
    // Nor is the profile of another project found.
    let key = other_key(&dev).await;
    let request = dev.anonymous(Method::POST, "/browser_pools");
    let body = json!({"size": 0, "profile": {"id": shop}});
    let hidden = Answer::of(request.bearer_auth(key).json(&body)).await;
    hidden.assert_error(404, "not_found");
    dev.finish().await;
}
