//! The KV-v2 API, and servers that do not keep to it.

use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{
    api::{PASSWORD, TOTP_SECRET, login, respond},
    *,
};
use crate::{
    control::providers::{ItemRef, ItemSummary},
    system::outbound::tests::server::Reply,
};

const KIND: ProviderType = ProviderType::Kv;

/// Starts a server with one mount, whose other requests get the reply of the script.
async fn mounted(
    mount: &'static str,
    script: impl Fn(&str) -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, ProviderClient) {
    let server = ScriptedServer::start(move |request| match request.target.as_str() {
        "/v1/sys/internal/ui/mounts" => {
            let mount = json!({mount: {"type": "kv", "options": {"version": "2"}}});
            Reply::Json(json!({"data": {"secret": mount}}))
        }
        target => script(target),
    });
    let server = server.await;
    let client = client(KIND, &server);
    (server, client)
}

fn keys(keys: impl IntoIterator<Item = impl Into<Value>>) -> Reply {
    let keys: Value = keys.into_iter().map(Into::into).collect();
    Reply::Json(json!({"data": {"keys": keys}}))
}

fn paths(items: &[ItemSummary]) -> Vec<&str> {
    items.iter().map(|item| item.path.as_str()).collect()
}

fn no_metadata() -> Reply {
    Reply::Json(json!({"data": {"custom_metadata": null}}))
}

#[tokio::test]
async fn lists_and_values_are_read() {
    let server = ScriptedServer::start(|request| respond(KIND, request)).await;
    let client = client(KIND, &server);
    let vaults = client.vaults().await.unwrap();
    assert_eq!(vaults.len(), 1);
    assert_eq!(
        (vaults[0].id.as_str(), vaults[0].name.as_str()),
        ("Team", "Team")
    );
    let items = client.items().await.unwrap();
    let item = ItemSummary {
        id: "Login".to_owned(),
        path: "Team/Login".to_owned(),
        title: "Login".to_owned(),
        vault_id: "Team".to_owned(),
        vault_name: "Team".to_owned(),
        urls: vec![
            "https://login.example.com/".to_owned(),
            "https://www.example.com".to_owned(),
        ],
    };
    assert_eq!(items.len(), 1);
    assert_eq!(items[0], item);
    assert!(
        !server
            .targets()
            .iter()
            .any(|target| target.contains("/data/"))
    );

    let secrets = client.fetch(&item.item_ref()).await.ok().unwrap();
    assert_eq!(secrets.username.unwrap().expose_secret(), "alice");
    assert_eq!(secrets.password.unwrap().expose_secret(), PASSWORD);
    assert_eq!(secrets.totp_secret.unwrap().expose_secret(), TOTP_SECRET);
    assert!(secrets.one_time_code.is_none());
    assert_eq!(secrets.urls, item.urls);
    assert_eq!(secrets.fields.len(), 1);
    assert_eq!(secrets.fields[0].name, "tenant");
    assert_eq!(secrets.fields[0].value.expose_secret(), "berth");
}

#[tokio::test]
async fn folders_are_walked_and_names_are_encoded() {
    let (server, client) = mounted("team/kv/", |target| match target {
        "/v1/team/kv/metadata?list=true" => keys(["a b", "deep/", "empty/"]),
        "/v1/team/kv/metadata/deep?list=true" => keys(["er/", "50%", "ü?#"]),
        "/v1/team/kv/metadata/deep/er?list=true" => keys(["x"]),
        "/v1/team/kv/metadata/empty?list=true" => Reply::Status(404),
        _ => no_metadata(),
    })
    .await;
    let items = client.items().await.unwrap();
    let expected = [
        "team/kv/a b",
        "team/kv/deep/50%",
        "team/kv/deep/ü?#",
        "team/kv/deep/er/x",
    ];
    assert_eq!(paths(&items), expected);
    let targets = server.targets();
    for target in ["a%20b", "deep/50%25", "deep/%C3%BC%3F%23", "deep/er/x"] {
        let target = format!("/v1/team/kv/metadata/{target}");
        assert!(targets.contains(&target), "{target} in {targets:?}");
    }
}

#[tokio::test]
async fn key_that_cannot_be_a_path_is_left_out() {
    let (server, client) = mounted("team/", |target| match target {
        "/v1/team/metadata?list=true" => keys([
            "..",
            "../",
            ".",
            "",
            "/",
            "a/b",
            "a\\b",
            "a\nb",
            "../../sys/raw",
            "%2e%2e",
            "good",
        ]),
        _ => no_metadata(),
    })
    .await;
    let items = client.items().await.unwrap();
    assert_eq!(paths(&items), ["team/%2e%2e", "team/good"]);
    let targets = server.targets();
    assert!(
        targets.contains(&"/v1/team/metadata/%252e%252e".to_owned()),
        "{targets:?}"
    );
    assert!(targets.iter().all(|target| !target.contains("..")));

    let before = server.requests().len();
    for (vault_id, item_id) in [
        ("..", "a"),
        ("team", "../a"),
        ("team", ""),
        ("", "a"),
        ("team/", "a"),
    ] {
        let (vault_id, item_id) = (vault_id.to_owned(), item_id.to_owned());
        let fetched = client.fetch(&ItemRef { vault_id, item_id }).await;
        assert_eq!(error(fetched), ProviderError::InvalidId);
    }
    assert_eq!(server.requests().len(), before);
}

#[tokio::test]
async fn folder_or_metadata_that_is_forbidden_hides_only_itself() {
    let (_server, client) = mounted("team/", |target| match target {
        "/v1/team/metadata?list=true" => keys(["private/", "unreadable", "gone", "login"]),
        "/v1/team/metadata/private?list=true" | "/v1/team/metadata/unreadable" => {
            Reply::Status(403)
        }
        "/v1/team/metadata/gone" => Reply::Status(404),
        _ => Reply::Json(json!({"data": {"custom_metadata": {"url": "https://a.example"}}})),
    })
    .await;
    let items = client.items().await.unwrap();
    assert_eq!(paths(&items), ["team/unreadable", "team/login"]);
    assert_eq!(items[0].urls, Vec::<String>::new());
    assert_eq!(items[1].urls, ["https://a.example"]);

    let (_server, client) = mounted("team/", |_| Reply::Status(403)).await;
    assert_eq!(error(client.items().await), ProviderError::Forbidden);
}

#[tokio::test]
async fn invalid_token_is_refused() {
    let server = ScriptedServer::start(|_| Reply::Status(403)).await;
    let failed = error(client(KIND, &server).vaults().await);
    assert_eq!(failed, ProviderError::TokenRefused);
    // A version that responds to any token with the mounts that all can see.
    let server = ScriptedServer::start(|request| match request.target.as_str() {
        "/v1/auth/token/lookup-self" => Reply::Status(403),
        _ => Reply::Json(json!({"data": {"secret": {}}})),
    })
    .await;
    let failed = error(client(KIND, &server).vaults().await);
    assert_eq!(failed, ProviderError::TokenRefused);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn mounts_are_found_in_all_forms_of_the_response() {
    let mounts = json!({"team/": {"type": "kv", "options": {"version": "2"}}});
    let bare = json!({"auth": {}, "secret": mounts});
    let server = ScriptedServer::start(move |_| Reply::Json(bare.clone())).await;
    assert_eq!(client(KIND, &server).vaults().await.unwrap()[0].id, "team");
    let server = ScriptedServer::start(move |request| match request.target.as_str() {
        "/v1/sys/mounts" => Reply::Json(json!({"data": mounts, "renewable": false})),
        _ => Reply::Status(404),
    });
    let server = server.await;
    assert_eq!(client(KIND, &server).vaults().await.unwrap()[0].id, "team");
}

#[tokio::test]
async fn deleted_version_is_not_found() {
    let replies: [fn() -> Reply; 2] = [
        || Reply::Status(404),
        || Reply::Json(json!({"data": {"data": null, "metadata": {"destroyed": true}}})),
    ];
    for reply in replies {
        let (_server, client) = mounted("Team/", move |_| reply()).await;
        assert_eq!(
            error(client.fetch(&login(KIND)).await),
            ProviderError::NotFound
        );
    }
}

#[tokio::test]
async fn values_of_all_types_are_read() {
    let (_server, client) = mounted("Team/", |_| {
        Reply::Json(json!({"data": {"data": {
            "username": 17,
            "password": "",
            "otpauth": "otpauth://totp/a?secret=B",
            "url": "https://a.example https://b.example",
            "nested": {"a": "b"},
            "flag": true,
        }}}))
    })
    .await;
    let secrets = client.fetch(&login(KIND)).await.ok().unwrap();
    assert_eq!(secrets.username.unwrap().expose_secret(), "17");
    assert!(secrets.password.is_none());
    assert_eq!(
        secrets.totp_secret.unwrap().expose_secret(),
        "otpauth://totp/a?secret=B"
    );
    assert_eq!(secrets.urls, ["https://a.example", "https://b.example"]);
    let fields: Vec<_> = secrets
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(fields, ["flag"]);
}

#[tokio::test]
async fn depth_and_number_of_folders_and_items_are_bounded() {
    let (_server, endless) = mounted("team/", |_| keys(["down/"])).await;
    let (max, items) = (8, "levels of folders");
    assert_eq!(
        error(endless.items().await),
        ProviderError::TooLarge { max, items }
    );

    let numbered = |count: usize, suffix: &'static str| {
        keys((0..count).map(move |number| format!("{number}{suffix}")))
    };
    let (server, wide) = mounted("team/", move |_| numbered(1001, "/")).await;
    let (max, items) = (1000, "folders");
    assert_eq!(
        error(wide.items().await),
        ProviderError::TooLarge { max, items }
    );
    assert_eq!(server.requests().len(), 2);

    let (server, many) = mounted("team/", move |_| numbered(2001, "")).await;
    let (max, items) = (2000, "items");
    assert_eq!(
        error(many.items().await),
        ProviderError::TooLarge { max, items }
    );
    assert_eq!(server.requests().len(), 2);
}
