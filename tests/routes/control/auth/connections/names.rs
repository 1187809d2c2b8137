//! The names by which a connection refers to its credential, its provider and its profile.

use serde_json::{Value, json};

use super::{create, credential, path, provider, reauth};
use crate::support::dev::Dev;

async fn found(dev: &Dev, connection: &Value) -> Value {
    let found = dev.get(&path(connection)).await;
    assert_eq!(found.status, 200, "{}", found.body);
    found.body
}

#[tokio::test]
async fn connection_follows_and_outlives_its_credential() {
    let dev = Dev::start().await;
    credential(&dev, "admin", "example.com").await;
    let settings = json!({"credential": {"name": "admin"}});
    let connection = create(&dev, "example.com", "shop", settings).await;
    let renamed = dev
        .patch("/credentials/admin", json!({"name": "root"}))
        .await;
    assert_eq!(renamed.status, 200, "{}", renamed.body);
    let follows = found(&dev, &connection).await;
    assert_eq!(follows["credential"], json!({"name": "root"}));
    assert_eq!(reauth(&follows), (true, "has_credential"));

    let removed = json!({"remove_value_keys": ["password"]});
    dev.patch("/credentials/root", removed).await;
    let without_values = found(&dev, &connection).await;
    assert_eq!(reauth(&without_values), (false, "requires_customer_input"));

    assert_eq!(dev.delete("/credentials/root").await.status, 204);
    let remaining = found(&dev, &connection).await;
    assert_eq!(remaining["credential"], json!({"name": "root"}));
    assert_eq!(reauth(&remaining), (false, "no_credential"));
    let listed = dev.get("/auth/connections").await.body;
    assert_eq!(listed, json!([remaining]));
    // Other settings can still be changed.
    let change = json!({"record_session": true});
    assert_eq!(dev.patch(&path(&connection), change).await.status, 200);

    credential(&dev, "root", "other.example").await;
    let foreign = found(&dev, &connection).await;
    assert_eq!(reauth(&foreign), (false, "no_credential"));
    dev.delete("/credentials/root").await;
    credential(&dev, "root", "example.com").await;
    let again = found(&dev, &connection).await;
    assert_eq!(reauth(&again), (true, "has_credential"));
    dev.finish().await;
}

#[tokio::test]
async fn connection_follows_and_outlives_its_provider() {
    let dev = Dev::start().await;
    let provider = provider(&dev, "vault").await;
    let provider = format!(
        "/org/credential_providers/{}",
        provider["id"].as_str().unwrap()
    );
    let settings = json!({"credential": {"provider": "vault", "auto": true}});
    let connection = create(&dev, "example.com", "shop", settings).await;
    let expected = json!({"provider": "safe", "auto": true});
    for (change, reason) in [
        (json!({"name": "safe"}), (true, "external_credential")),
        (json!({"enabled": false}), (false, "no_credential")),
        (json!({"enabled": true}), (true, "external_credential")),
    ] {
        let changed = dev.patch(&provider, change).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
        let follows = found(&dev, &connection).await;
        assert_eq!(follows["credential"], expected);
        assert_eq!(reauth(&follows), reason);
    }
    assert_eq!(dev.delete(&provider).await.status, 204);
    let remaining = found(&dev, &connection).await;
    assert_eq!(remaining["credential"], expected);
    assert_eq!(reauth(&remaining), (false, "no_credential"));
    dev.finish().await;
}

#[tokio::test]
async fn connection_follows_and_keeps_its_profile() {
    let dev = Dev::start().await;
    let connection = create(&dev, "example.com", "shop", json!({})).await;
    let profile = dev.post("/profiles", json!({"name": "shop"})).await;
    assert_eq!(profile.status, 201, "{}", profile.body);
    let renamed = dev.patch("/profiles/shop", json!({"name": "mall"})).await;
    assert_eq!(renamed.status, 200, "{}", renamed.body);
    let follows = found(&dev, &connection).await;
    assert_eq!(follows["profile_name"], "mall");

    let refused = dev.delete("/profiles/mall").await;
    refused.assert_error(409, "profile_in_use");
    assert_eq!(refused.header("x-should-retry"), "false");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains(connection["id"].as_str().unwrap()));

    // Two connections would have one domain and one profile.
    create(&dev, "example.com", "store", json!({})).await;
    let refused = dev.patch("/profiles/mall", json!({"name": "store"})).await;
    refused.assert_error(409, "conflict");
    assert_eq!(refused.bad_fields(), ["name"]);
    assert_eq!(dev.get("/profiles/mall").await.status, 200);
    assert_eq!(found(&dev, &connection).await, follows);

    assert_eq!(dev.delete(&path(&connection)).await.status, 204);
    assert_eq!(dev.delete("/profiles/mall").await.status, 204);
    dev.finish().await;
}
