//! The password manager's API, and servers that do not keep to it.

use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{
    api::{PASSWORD, TOTP_SECRET, login, respond},
    *,
};
use crate::{
    control::providers::{ItemRef, ItemSummary, ProviderVault},
    system::outbound::tests::server::Reply,
};

const KIND: ProviderType = ProviderType::VendorPassword;

/// Starts a server with fixed lists of vaults and items, and one item.
async fn lists(vaults: Value, items: Value, item: Value) -> (ScriptedServer, ProviderClient) {
    let server = ScriptedServer::start(move |request| {
        Reply::Json(match request.target.split('/').count() {
            3 => vaults.clone(),
            5 => items.clone(),
            _ => item.clone(),
        })
    });
    let server = server.await;
    let client = client(KIND, &server);
    (server, client)
}

fn vaults() -> Value {
    json!([{"id": "v1", "name": "Team"}, {"id": "v2", "name": "Other"}])
}

#[tokio::test]
async fn lists_and_values_are_read() {
    let server = ScriptedServer::start(|request| respond(KIND, request)).await;
    let client = client(KIND, &server);
    let vault = ProviderVault {
        id: "vault1".to_owned(),
        name: "Team".to_owned(),
    };
    assert_eq!(client.vaults().await.unwrap(), [vault]);
    let item = ItemSummary {
        id: "item1".to_owned(),
        path: "Team/Login".to_owned(),
        title: "Login".to_owned(),
        vault_id: "vault1".to_owned(),
        vault_name: "Team".to_owned(),
        urls: vec![
            "https://login.example.com/".to_owned(),
            "https://www.example.com".to_owned(),
        ],
    };
    let items = client.items().await.unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0], item);
    assert!(
        !server
            .targets()
            .iter()
            .any(|target| target.ends_with("/item1"))
    );

    let secrets = client.fetch(&item.item_ref()).await.ok().unwrap();
    let text = |secret: &Option<secrecy::SecretString>| {
        secret
            .as_ref()
            .map(|secret| secret.expose_secret().to_owned())
    };
    assert_eq!(text(&secrets.username).as_deref(), Some("alice"));
    assert_eq!(text(&secrets.password).as_deref(), Some(PASSWORD));
    assert_eq!(text(&secrets.totp_secret).as_deref(), Some(TOTP_SECRET));
    assert_eq!(text(&secrets.one_time_code).as_deref(), Some("123456"));
    assert_eq!(secrets.urls, item.urls);
    let [field] = &secrets.fields[..] else {
        panic!("{} fields", secrets.fields.len());
    };
    assert_eq!(
        (field.name.as_str(), field.value.expose_secret()),
        ("tenant", "berth")
    );
}

#[tokio::test]
async fn fields_without_a_purpose_are_found_by_their_ids() {
    let item = json!({"id": "item1", "vault": {"id": "vault1"}, "fields": [
        {"id": "username", "value": "alice"},
        {"id": "password", "value": "one"},
        {"id": "x", "purpose": "PASSWORD", "label": "old", "value": "two"},
        {"id": "empty", "value": ""},
    ]});
    let (_server, client) = lists(json!([]), json!([]), item).await;
    let secrets = client.fetch(&login(KIND)).await.ok().unwrap();
    assert_eq!(secrets.username.unwrap().expose_secret(), "alice");
    assert_eq!(secrets.password.unwrap().expose_secret(), "one");
    let names: Vec<_> = secrets
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["old"]);
    assert!(secrets.totp_secret.is_none());
}

#[tokio::test]
async fn vault_that_vanishes_and_archived_items_are_left_out() {
    let server = ScriptedServer::start(|request| match request.target.as_str() {
        "/v1/vaults" => Reply::Json(vaults()),
        "/v1/vaults/v1/items" => Reply::Json(json!([
            {"id": "a", "title": "Old", "vault": {"id": "v1"}, "state": "ARCHIVED"},
            {"id": "b", "title": "New", "vault": {"id": "v1"}},
        ])),
        _ => Reply::Status(404),
    });
    let server = server.await;
    let items = client(KIND, &server).items().await.unwrap();
    let paths: Vec<_> = items.iter().map(|item| item.path.as_str()).collect();
    assert_eq!(paths, ["Team/New"]);
}

#[tokio::test]
async fn id_that_is_no_id_is_an_invalid_response() {
    for id in ["../../v1/vaults", "..", "", "a/b", "a?b", "a%2fb", "a\nb"] {
        let (server, client) = lists(json!([{"id": id, "name": "n"}]), json!([]), json!({})).await;
        let failed = error(client.items().await);
        assert!(matches!(failed, ProviderError::InvalidResponse(_)), "{id}");
        assert_eq!(server.requests().len(), 1);

        let items = json!([{"id": id, "title": "t", "vault": {"id": "v1"}}]);
        let (_server, client) = lists(vaults(), items, json!({})).await;
        let failed = error(client.items().await);
        assert!(matches!(failed, ProviderError::InvalidResponse(_)), "{id}");

        for (vault_id, item_id) in [(id, "item1"), ("vault1", id)] {
            let (server, client) = lists(vaults(), json!([]), json!({})).await;
            let (vault_id, item_id) = (vault_id.to_owned(), item_id.to_owned());
            let fetched = client.fetch(&ItemRef { vault_id, item_id }).await;
            assert_eq!(error(fetched), ProviderError::InvalidId);
            assert!(server.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn item_of_another_vault_or_id_is_an_invalid_response() {
    // Both vaults have the item of the first one.
    let items = json!([{"id": "a", "title": "t", "vault": {"id": "v1"}}]);
    let (_server, client) = lists(vaults(), items, json!({})).await;
    let failed = error(client.items().await);
    assert!(
        matches!(failed, ProviderError::InvalidResponse(_)),
        "{failed}"
    );
    for item in [
        json!({"id": "item2", "vault": {"id": "vault1"}}),
        json!({"id": "item1", "vault": {"id": "vault2"}}),
    ] {
        let (_server, client) = lists(vaults(), json!([]), item).await;
        let failed = error(client.fetch(&login(KIND)).await);
        assert!(
            matches!(failed, ProviderError::InvalidResponse(_)),
            "{failed}"
        );
    }
}

#[tokio::test]
async fn strings_are_made_harmless() {
    let items = json!([{
        "id": "a",
        "title": "Log\u{1b}[2Jin\r\n",
        "vault": {"id": "v1"},
        "urls": [{"href": "not a url"}, {"href": "https://a\u{7}.example"}, {"href": ""}, {}],
    }]);
    let (_server, client) =
        lists(json!([{"id": "v1", "name": "Te\u{0}am"}]), items, json!({})).await;
    let items = client.items().await.unwrap();
    assert_eq!(
        items[0].path,
        "Te\u{fffd}am/Log\u{fffd}[2Jin\u{fffd}\u{fffd}"
    );
    assert_eq!(items[0].urls, ["not a url"]);
}

#[tokio::test]
async fn size_of_lists_is_bounded() {
    let many = |count: usize, vault: &str| -> Value {
        let item = |number| json!({"id": format!("i{number}"), "vault": {"id": vault}});
        (0..count).map(item).collect()
    };
    let too_many_vaults: Value = (0..1001).map(|n| json!({"id": format!("v{n}")})).collect();
    let (_server, client) = lists(too_many_vaults, json!([]), json!({})).await;
    let (max, items) = (1000, "vaults");
    assert_eq!(
        error(client.items().await),
        ProviderError::TooLarge { max, items }
    );

    let one_vault = json!([{"id": "v1", "name": "Team"}]);
    for (count, is_allowed) in [(10_000, true), (10_001, false)] {
        let (_server, client) = lists(one_vault.clone(), many(count, "v1"), json!({})).await;
        assert_eq!(client.items().await.is_ok(), is_allowed, "{count}");
    }
    let fields: Value = (0..257).map(|n| json!({"id": n.to_string()})).collect();
    let item = json!({"id": "item1", "vault": {"id": "vault1"}, "fields": fields});
    let (_server, client) = lists(json!([]), json!([]), item).await;
    let failed = error(client.fetch(&login(KIND)).await);
    assert!(matches!(failed, ProviderError::TooLarge { .. }), "{failed}");
}
