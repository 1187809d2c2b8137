//! `/auth/connections/{id}`.

use serde_json::{Value, json};

use super::{create, credential, path, provider, reauth};
use crate::support::{dev::Dev, wait::until};

#[tokio::test]
async fn settings_are_changed_and_removed() {
    let dev = Dev::start().await;
    credential(&dev, "admin", "example.com").await;
    provider(&dev, "vault").await;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    let path = path(&created);
    let changes = [
        ("login_url", json!("https://www.example.com/login")),
        ("allowed_domains", json!(["a.example", "b.example"])),
        ("credential", json!({"name": "admin"})),
        ("credential", json!({"provider": "vault", "auto": true})),
        (
            "credential",
            json!({"provider": "vault", "path": "Team/Shop"}),
        ),
        ("allowed_domains", json!(["b.example"])),
        ("health_checks", json!(false)),
        ("health_check_interval", json!(86_400)),
        ("auto_reauth", json!(false)),
        ("save_credentials", json!(false)),
        ("record_session", json!(true)),
    ];
    let mut expected = created.clone();
    for (field, value) in changes {
        let changed = dev.patch(&path, json!({field: value.clone()})).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
        expected[field] = value;
        for computed in ["updated_at", "can_reauth", "can_reauth_reason"] {
            expected[computed] = changed.body[computed].clone();
        }
        assert_eq!(changed.body, expected, "{field}");
        assert_eq!(dev.get(&path).await.body, expected, "{field}");
    }
    assert_ne!(expected["updated_at"], created["updated_at"]);
    assert_eq!(reauth(&expected), (true, "external_credential"));
    let fields = expected.as_object().unwrap().keys();
    let nulls: Value = fields.map(|field| (field.clone(), Value::Null)).collect();
    let removed = dev.patch(&path, nulls).await;
    assert_eq!(removed.status, 200, "{}", removed.body);
    let fields = expected.as_object_mut().unwrap();
    fields.remove("login_url");
    fields.remove("credential");
    fields.insert("allowed_domains".to_owned(), json!([]));
    fields.insert("can_reauth".to_owned(), json!(false));
    fields.insert("can_reauth_reason".to_owned(), json!("no_credential"));
    fields.insert("updated_at".to_owned(), removed.body["updated_at"].clone());
    assert_eq!(removed.body, expected);
    dev.finish().await;
}

#[tokio::test]
async fn record_can_be_sent_back() {
    let dev = Dev::start().await;
    credential(&dev, "admin", "example.com").await;
    let settings = json!({
        "credential": {"name": "admin"},
        "login_url": "https://example.com/login",
        "allowed_domains": ["a.example"],
    });
    let created = create(&dev, "example.com", "shop", settings).await;
    for same in [created.clone(), json!({})] {
        let unchanged = dev.patch(&path(&created), same).await;
        assert_eq!(unchanged.status, 200, "{}", unchanged.body);
        assert_eq!(unchanged.body, created);
    }
    let empty = dev.patch(&path(&created), json!({"login_url": ""})).await;
    assert_eq!(empty.body.get("login_url"), None);
    // Also with a credential or a provider that does not exist any more.
    let provider = provider(&dev, "vault").await;
    let provider = provider["id"].as_str().unwrap();
    let of_provider = json!({"provider": "vault", "auto": true});
    let item = json!({"provider": "vault", "path": "Team/Shop"});
    let mut connections = vec![empty.body];
    for (profile, credential) in [("mall", of_provider), ("store", item)] {
        let settings = json!({ "credential": credential });
        connections.push(create(&dev, "example.com", profile, settings).await);
    }
    for resource in [
        "/credentials/admin",
        &format!("/org/credential_providers/{provider}"),
    ] {
        assert_eq!(dev.delete(resource).await.status, 204);
    }
    for connection in connections {
        let path = path(&connection);
        let record = dev.get(&path).await.body;
        assert_eq!(record["credential"], connection["credential"]);
        let unchanged = dev.patch(&path, record.clone()).await;
        assert_eq!(unchanged.status, 200, "{}", unchanged.body);
        assert_eq!(unchanged.body, record);
    }
    let other = json!({"credential": {"name": "other"}});
    let other = dev.patch(&path(&created), other).await;
    assert_eq!(other.bad_fields(), ["credential.name"]);
    dev.finish().await;
}

#[tokio::test]
async fn further_domain_needs_the_credential() {
    let dev = Dev::start().await;
    credential(&dev, "admin", "example.com").await;
    let settings = json!({
        "credential": {"name": "admin"},
        "allowed_domains": ["a.example", "b.example"],
    });
    let created = create(&dev, "example.com", "shop", settings).await;
    let path = path(&created);
    let further = json!({"allowed_domains": ["a.example", "evil.example"]});
    let refused = dev.patch(&path, further.clone()).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["allowed_domains"]);
    assert_eq!(dev.get(&path).await.body, created);
    // Fewer domains, or the same ones, do not.
    for fewer in [json!(["b.example", "a.example"]), json!(["b.example"])] {
        let changed = dev.patch(&path, json!({"allowed_domains": fewer})).await;
        assert_eq!(changed.body["allowed_domains"], fewer);
    }
    for credential in [json!({"name": "admin"}), json!(null)] {
        let mut request = further.clone();
        request["credential"] = credential;
        let changed = dev.patch(&path, request).await;
        assert_eq!(changed.body["allowed_domains"], further["allowed_domains"]);
    }
    // Now it has no credential.
    let more = json!({"allowed_domains": ["c.example"]});
    let changed = dev.patch(&path, more).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    dev.finish().await;
}

#[tokio::test]
async fn domain_and_profile_stay() {
    let dev = Dev::start().await;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    for (field, value) in [
        ("domain", "www.example.com"),
        ("domain", "other.example"),
        ("profile_name", "mall"),
    ] {
        let refused = dev.patch(&path(&created), json!({field: value})).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field]);
    }
    let same = json!({"domain": "EXAMPLE.com.", "profile_name": "shop"});
    let same = dev.patch(&path(&created), same).await;
    assert_eq!(same.body, created);
    dev.finish().await;
}

#[tokio::test]
async fn login_url_needs_its_domain() {
    let dev = Dev::start().await;
    let settings = json!({
        "login_url": "https://login.partner.example/",
        "allowed_domains": ["partner.example"],
    });
    let created = create(&dev, "example.com", "shop", settings).await;
    for refused in [
        json!({"allowed_domains": []}),
        json!({"allowed_domains": ["other.example"]}),
        json!({"allowed_domains": null}),
    ] {
        let refused = dev.patch(&path(&created), refused).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), ["login_url"]);
    }
    assert_eq!(dev.get(&path(&created)).await.body, created);
    let both = json!({"allowed_domains": null, "login_url": "https://accounts.google.com/"});
    let both = dev.patch(&path(&created), both).await;
    assert_eq!(both.status, 200, "{}", both.body);
    dev.finish().await;
}

#[tokio::test]
async fn deleted_connection_is_not_found_and_frees_domain_and_profile() {
    let dev = Dev::start().await;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    let path = path(&created);
    let deleted = dev.delete(&path).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    dev.get(&path).await.assert_error(404, "not_found");
    dev.patch(&path, json!({}))
        .await
        .assert_error(404, "not_found");
    dev.delete(&path).await.assert_error(404, "not_found");
    let again = create(&dev, "example.com", "shop", json!({})).await;
    assert_ne!(again["id"], created["id"]);
    dev.finish().await;
}

#[tokio::test]
async fn changes_are_in_the_audit_log() {
    let dev = Dev::start().await;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    let path = path(&created);
    dev.patch(&path, json!({"record_session": true})).await;
    dev.delete(&path).await;
    let resource = path.trim_start_matches('/');
    for action in [
        "create_auth_connection",
        "update_auth_connection",
        "delete_auth_connection",
    ] {
        until(action, async || {
            let query = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
            let found = dev.get(&format!("/audit-logs?{query}")).await;
            assert_eq!(found.status, 200, "{}", found.body);
            let mut records = found.body.as_array().unwrap().iter();
            let record = records.find(|record| record["action"] == action)?;
            assert_eq!(record["resource"], resource, "{record}");
            Some(())
        })
        .await;
    }
    dev.finish().await;
}

#[tokio::test]
async fn connections_survive_a_restart() {
    let dev = Dev::start().await;
    let created = create(&dev, "example.com", "shop", json!({"health_checks": false})).await;
    let dev = Dev::start_in(dev.finish().await, &[]).await;
    assert_eq!(dev.get(&path(&created)).await.body, created);
    dev.finish().await;
}
