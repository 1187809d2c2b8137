//! `/org/credential_providers`.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    provider_server::{PASSWORD, ProviderServer, TOKEN, USER_NAME},
};

const PROVIDERS: &str = "/org/credential_providers";
const UNKNOWN: &str = "prov_00000000000000000000000000";

async fn create(dev: &Dev, name: &str, server: &ProviderServer) -> Value {
    let request = json!({
        "name": name,
        "provider_type": "vendorpassword",
        "token": TOKEN,
        "base_url": server.base_url,
    });
    let created = dev.post(PROVIDERS, request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

fn path(provider: &Value, rest: &str) -> String {
    format!("{PROVIDERS}/{}{rest}", provider["id"].as_str().unwrap())
}

#[tokio::test]
async fn provider_is_created_changed_and_deleted() {
    let dev = Dev::start().await;
    let server = ProviderServer::start().await;
    let created = create(&dev, "  Team vault ", &server).await;
    assert!(created["id"].as_str().unwrap().starts_with("prov_"));
    assert_eq!(created["name"], "Team vault");
    assert_eq!(created["provider_type"], "vendorpassword");
    assert_eq!(
        (&created["enabled"], &created["priority"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(created["cache_ttl_seconds"], 300);
    assert_eq!(created.get("token"), None);
    let alias = json!({"name": "alias", "provider_type": "onepassword", "token": TOKEN, "base_url": server.base_url});
    let alias = dev.post(PROVIDERS, alias).await.body;
    assert_eq!(alias["provider_type"], "vendorpassword");

    let changes =
        json!({"name": "renamed", "enabled": false, "priority": 7, "cache_ttl_seconds": 0});
    let changed = dev.patch(&path(&created, ""), changes).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(changed.body["name"], "renamed");
    assert_eq!(changed.body["enabled"], false);
    assert_eq!(dev.get(&path(&created, "")).await.body, changed.body);
    let listed = dev.get(PROVIDERS).await.body;
    // In the order of the priorities.
    assert_eq!(listed, json!([alias, changed.body]));
    let found = dev.get(&format!("{PROVIDERS}?query=RENAM")).await.body;
    assert_eq!(found, json!([changed.body]));

    let taken = dev
        .patch(&path(&created, ""), json!({"name": "alias"}))
        .await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    assert_eq!(dev.delete(&path(&created, "")).await.status, 204);
    for (method, rest) in [
        (Method::GET, ""),
        (Method::PATCH, ""),
        (Method::DELETE, ""),
        (Method::POST, "/test"),
        (Method::GET, "/items"),
    ] {
        for provider in [
            path(&created, rest),
            format!("{PROVIDERS}/{UNKNOWN}{rest}"),
            format!("{PROVIDERS}/x{rest}"),
        ] {
            let request = dev.request(method.clone(), &provider).json(&json!({}));
            Answer::of(request).await.assert_error(404, "not_found");
        }
    }
    assert_eq!(server.requests(), 0);
    dev.finish().await;
}

#[tokio::test]
async fn test_lists_vaults_and_reports_failures() {
    let dev = Dev::start().await;
    let server = ProviderServer::start().await;
    let provider = create(&dev, "team", &server).await;
    let test = async || {
        let tested = dev.post(&path(&provider, "/test"), json!({})).await;
        assert_eq!(tested.status, 200, "{}", tested.body);
        tested.body
    };
    let vaults = json!([{"id": "vault1", "name": "Team"}, {"id": "vault2", "name": "Empty"}]);
    assert_eq!(test().await, json!({"success": true, "vaults": vaults}));
    let changes = json!({"token": "another-token", "enabled": false});
    dev.patch(&path(&provider, ""), changes).await;
    let refused =
        json!({"success": false, "vaults": [], "error": "the provider refused the token"});
    assert_eq!(test().await, refused);
    dev.patch(&path(&provider, ""), json!({"token": TOKEN}))
        .await;
    assert_eq!(test().await["success"], true);
    server.fail_with(StatusCode::SERVICE_UNAVAILABLE);
    let failed = test().await;
    assert_eq!(
        (&failed["success"], &failed["vaults"]),
        (&json!(false), &json!([]))
    );
    assert!(
        failed["error"].as_str().unwrap().contains("503"),
        "{failed}"
    );
    dev.finish().await;
}

#[tokio::test]
async fn items_have_no_values_and_are_cached() {
    let dev = Dev::start().await;
    let server = ProviderServer::start().await;
    let provider = create(&dev, "team", &server).await;
    let items = async || dev.get(&path(&provider, "/items")).await;
    let item = json!({
        "id": "item1",
        "path": "Team/Shop",
        "title": "Shop",
        "vault_id": "vault1",
        "vault_name": "Team",
        "urls": ["https://example.com/login"],
    });
    assert_eq!(items().await.body, json!({"items": [item]}));
    let requests = server.requests();
    assert_eq!(items().await.body, json!({"items": [item]}));
    assert_eq!(server.requests(), requests);
    dev.patch(&path(&provider, ""), json!({"token": "another-token"}))
        .await;
    let refused = items().await;
    refused.assert_error(502, "bad_gateway");
    for secret in [TOKEN, "another-token", USER_NAME, PASSWORD] {
        assert!(
            !refused.body.to_string().contains(secret),
            "{}",
            refused.body
        );
    }
    dev.finish().await;
}

#[tokio::test]
async fn stored_token_is_not_sent_to_another_address() {
    let dev = Dev::start().await;
    let (server, other) = (ProviderServer::start().await, ProviderServer::start().await);
    let provider = create(&dev, "team", &server).await;
    let moved = dev
        .patch(&path(&provider, ""), json!({"base_url": other.base_url}))
        .await;
    moved.assert_error(400, "bad_request");
    assert_eq!(moved.bad_fields(), ["token"]);
    let below = format!("{}/below/", server.base_url);
    let moved = dev
        .patch(&path(&provider, ""), json!({"base_url": below}))
        .await;
    assert_eq!(moved.status, 200, "{}", moved.body);
    let changes = json!({"base_url": other.base_url, "token": TOKEN});
    let moved = dev.patch(&path(&provider, ""), changes).await;
    assert_eq!(moved.status, 200, "{}", moved.body);
    let tested = dev.post(&path(&provider, "/test"), json!({})).await;
    assert_eq!(tested.body["success"], true);
    assert_eq!(server.requests(), 0);
    dev.finish().await;
}

#[tokio::test]
async fn addresses_that_are_not_allowed_are_not_connected_to() {
    let server = ProviderServer::start().await;
    let dev = Dev::with(&["--allow-networks", "192.0.2.0/24"]).await;
    let provider = create(&dev, "team", &server).await;
    let tested = dev.post(&path(&provider, "/test"), json!({})).await.body;
    assert_eq!(tested["success"], false, "{tested}");
    assert!(
        tested["error"]
            .as_str()
            .unwrap()
            .contains("not among the allowed"),
        "{tested}"
    );
    let items = dev.get(&path(&provider, "/items")).await;
    items.assert_error(502, "bad_gateway");
    assert_eq!(server.requests(), 0);
    dev.finish().await;
}

#[tokio::test]
async fn default_address_is_that_of_the_settings() {
    let server = ProviderServer::start().await;
    let dev = Dev::with(&["--vendorpassword-url", &server.base_url]).await;
    let request = |kind: &str| json!({"name": kind, "provider_type": kind, "token": TOKEN});
    let created = dev.post(PROVIDERS, request("vendorpassword")).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let tested = dev.post(&path(&created.body, "/test"), json!({})).await;
    assert_eq!(tested.body["success"], true);
    let refused = dev.post(PROVIDERS, request("kv")).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["base_url"]);
    dev.finish().await;
}

#[tokio::test]
async fn invalid_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    let server = ProviderServer::start().await;
    let provider = create(&dev, "team", &server).await;
    let long = "x".repeat(256);
    for (field, value) in [
        ("name", json!("  ")),
        ("name", json!(long)),
        ("name", json!("a\nb")),
        ("name", json!(UNKNOWN)),
        ("token", json!("")),
        ("token", json!("planted token")),
        ("token", json!("plänted")),
        ("token", json!("x".repeat(8193))),
        ("token", json!(1)),
        ("base_url", json!("planted")),
        ("base_url", json!("ftp://example.com")),
        ("base_url", json!("https://user:planted@example.com")),
        ("base_url", json!("https://example.com/?a=planted")),
        (
            "base_url",
            json!(format!("https://example.com/{}", "x".repeat(2048))),
        ),
        ("cache_ttl_seconds", json!(-1)),
        ("cache_ttl_seconds", json!(86_401)),
    ] {
        let mut request = json!({"name": "other", "provider_type": "kv", "token": TOKEN, "base_url": server.base_url});
        request[field] = value.clone();
        let changes = json!({field: value});
        for refused in [
            dev.post(PROVIDERS, request).await,
            dev.patch(&path(&provider, ""), changes).await,
        ] {
            refused.assert_error(400, "bad_request");
            assert_eq!(refused.bad_fields(), [field], "{value}");
            assert!(
                !refused.body.to_string().contains("planted"),
                "{}",
                refused.body
            );
        }
    }
    for (field, value) in [
        ("enabled", json!("yes")),
        ("priority", json!(-1)),
        ("priority", json!(1_000_001)),
    ] {
        let refused = dev.patch(&path(&provider, ""), json!({field: value})).await;
        assert_eq!(refused.bad_fields(), [field], "{value}");
    }
    let kind = json!({"name": "other", "provider_type": "other", "token": TOKEN});
    assert_eq!(
        dev.post(PROVIDERS, kind).await.bad_fields(),
        ["provider_type"]
    );
    assert_eq!(dev.get(PROVIDERS).await.body, json!([provider]));
    dev.finish().await;
}

#[tokio::test]
async fn key_of_a_project_is_refused() {
    let dev = Dev::start().await;
    let server = ProviderServer::start().await;
    let provider = create(&dev, "team", &server).await;
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let key = json!({"name": "bound", "project_id": project});
    let key = dev.post("/org/api_keys", key).await.body["key"].clone();
    let valid = json!({"name": "other", "provider_type": "kv", "token": TOKEN, "base_url": server.base_url});
    for (method, path) in [
        (Method::POST, PROVIDERS.to_owned()),
        (Method::GET, PROVIDERS.to_owned()),
        (Method::GET, path(&provider, "")),
        (Method::PATCH, path(&provider, "")),
        (Method::DELETE, path(&provider, "")),
        (Method::POST, path(&provider, "/test")),
        (Method::GET, path(&provider, "/items")),
    ] {
        let request = dev.anonymous(method, &path).json(&valid);
        Answer::of(request.try_clone().unwrap())
            .await
            .assert_error(401, "unauthorized");
        let request = request.bearer_auth(key.as_str().unwrap());
        Answer::of(request).await.assert_error(403, "forbidden");
    }
    assert_eq!(server.requests(), 0);
    dev.finish().await;
}
