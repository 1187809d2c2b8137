//! `/credentials/{id_or_name}`.

use serde_json::json;

use super::{TOTP_SECRET, create};
use crate::support::dev::Dev;

#[tokio::test]
async fn values_are_removed_then_merged() {
    let dev = Dev::start().await;
    let created = create(&dev, "shop").await;
    let changes = json!({
        "name": "renamed",
        "values": {"pin": "1234", "username": "other"},
        "remove_value_keys": ["password", "username", "unknown"],
        "sso_provider": "github",
    });
    let updated = dev.patch("/credentials/shop", changes).await;
    assert_eq!(updated.status, 200, "{}", updated.body);
    assert_eq!(updated.body["value_keys"], json!(["pin", "username"]));
    assert_eq!(updated.body["name"], "renamed");
    assert_eq!(updated.body["sso_provider"], "github");
    assert_ne!(updated.body["updated_at"], created["updated_at"]);
    for item in ["renamed", created["id"].as_str().unwrap()] {
        let found = dev.get(&format!("/credentials/{item}")).await;
        assert_eq!(found.body, updated.body);
    }
    dev.get("/credentials/shop")
        .await
        .assert_error(404, "not_found");

    let unchanged = dev.patch("/credentials/renamed", json!({})).await;
    assert_eq!(unchanged.body, updated.body);
    for removed in [json!(null), json!("")] {
        let changes = json!({"sso_provider": "github"});
        dev.patch("/credentials/renamed", changes).await;
        let changes = json!({"sso_provider": removed});
        let updated = dev.patch("/credentials/renamed", changes).await;
        assert_eq!(updated.body.get("sso_provider"), None, "{}", updated.body);
    }
    create(&dev, "taken").await;
    let taken = dev
        .patch("/credentials/renamed", json!({"name": "taken"}))
        .await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    dev.finish().await;
}

#[tokio::test]
async fn secret_of_codes_is_set_changed_and_removed() {
    let dev = Dev::start().await;
    create(&dev, "shop").await;
    let update = async |changes| dev.patch("/credentials/shop", changes).await;
    let refused = update(json!({"totp_digits": 8})).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["totp_digits"]);
    let set = update(json!({"totp_secret": TOTP_SECRET, "totp_digits": 8})).await;
    assert_eq!(set.status, 200, "{}", set.body);
    assert_eq!(set.body["totp_code"].as_str().unwrap().len(), 8);
    let changed = update(json!({"totp_period": 60})).await.body;
    assert_eq!(
        (&changed["totp_digits"], &changed["totp_period"]),
        (&json!(8), &json!(60))
    );
    assert_eq!(changed.get("totp_code"), None);
    let refused = update(json!({"totp_secret": "", "totp_period": 30})).await;
    assert_eq!(refused.bad_fields(), ["totp_period"]);
    let removed = update(json!({"totp_secret": ""})).await.body;
    assert_eq!(removed["has_totp_secret"], false);
    assert_eq!(removed.get("totp_digits"), None);
    assert_eq!(removed["value_keys"], json!(["password", "username"]));
    dev.finish().await;
}

#[tokio::test]
async fn number_of_values_is_limited() {
    let dev = Dev::start().await;
    let values: serde_json::Map<_, _> = (0..32).map(|n| (format!("v{n}"), json!("x"))).collect();
    let request = json!({"name": "full", "domain": "example.com", "values": values});
    assert_eq!(dev.post("/credentials", request).await.status, 201);
    let another = json!({"values": {"another": "x"}});
    let refused = dev.patch("/credentials/full", another).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["values"]);
    let overwritten = dev
        .patch("/credentials/full", json!({"values": {"v0": "y"}}))
        .await;
    assert_eq!(overwritten.status, 200, "{}", overwritten.body);
    let replaced = json!({"values": {"another": "x"}, "remove_value_keys": ["v0"]});
    let replaced = dev.patch("/credentials/full", replaced).await;
    assert_eq!(replaced.status, 200, "{}", replaced.body);
    assert_eq!(replaced.body["value_keys"].as_array().unwrap().len(), 32);
    dev.finish().await;
}

#[tokio::test]
async fn deleted_credential_leaves_nothing_and_frees_its_name() {
    let dev = Dev::start().await;
    create(&dev, "shop").await;
    assert_eq!(dev.delete("/credentials/shop").await.status, 204);
    dev.delete("/credentials/shop")
        .await
        .assert_error(404, "not_found");
    let rows = dev.rows("SELECT * FROM credential_fields").await;
    assert_eq!(rows.len(), 0);
    create(&dev, "shop").await;
    dev.finish().await;
}

#[tokio::test]
async fn secrets_survive_a_restart() {
    let dev = Dev::start().await;
    let request = json!({"name": "shop", "domain": "example.com", "totp_secret": TOTP_SECRET, "totp_period": 300});
    dev.post("/credentials", request).await;
    let dev = Dev::start_in(dev.finish().await, &[]).await;
    let code = dev.get("/credentials/shop/totp-code").await;
    assert_eq!(code.status, 200, "{}", code.body);
    dev.finish().await;
}
