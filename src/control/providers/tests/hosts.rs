//! The search for an item in several providers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use super::{
    api::{KINDS, respond},
    *,
};
use crate::{
    control::providers::{FoundItem, LookupError, MatchedBy, ProviderClients},
    system::outbound::tests::server::Reply,
};

fn clients() -> ProviderClients {
    ProviderClients::new(loopback_client(), timings())
}

/// Starts a password manager that has one item with a URL.
async fn with_url(url: &'static str) -> ScriptedServer {
    ScriptedServer::start(move |request| {
        let is_list = request.target.ends_with("/items");
        Reply::Json(match is_list {
            true => {
                json!([{"id": "i", "title": url, "vault": {"id": "v"}, "urls": [{"href": url}]}])
            }
            false => json!([{"id": "v", "name": "Vault"}]),
        })
    })
    .await
}

fn provider(id: &str, priority: i64, server: &ScriptedServer) -> ProviderConfig {
    ProviderConfig {
        id: id.to_owned(),
        name: format!("name of {id}"),
        priority,
        ..config(ProviderType::VendorPassword, server)
    }
}

fn found(result: Result<FoundItem, LookupError>) -> (String, MatchedBy) {
    let found = result.unwrap();
    (found.provider_id, found.matched_by)
}

/// Handlers of requests await these calls on any thread.
#[tokio::test]
async fn calls_can_move_between_threads() {
    fn assert_send(_: impl Send) {}
    let server = with_url("https://example.com").await;
    let config = provider("prov_a", 0, &server);
    let clients = clients();
    let client = clients.client(&config).unwrap();
    let configs = [config.clone()];
    assert_send(clients.find_by_host(&configs, "example.com"));
    assert_send(clients.find_by_path(&config, "v/i"));
    assert_send(clients.test(&config));
    assert_send(client.items());
    assert_send(client.fetch(&super::api::login(ProviderType::VendorPassword)));
}

#[tokio::test]
async fn lower_number_precedes_and_disabled_providers_are_skipped() {
    let domain = with_url("https://www.example.com").await;
    let exact = with_url("https://login.example.com").await;
    let other = with_url("https://example.org").await;
    let mut configs = [
        provider("prov_exact", 2, &exact),
        provider("prov_domain", 1, &domain),
        provider("prov_other", 0, &other),
    ];
    let clients = clients();
    let host = "login.example.com";
    let result = clients.find_by_host(&configs, host).await;
    assert_eq!(found(result), ("prov_domain".to_owned(), MatchedBy::Domain));
    assert!(exact.requests().is_empty());

    configs[1].enabled = false;
    let result = clients.find_by_host(&configs, host).await;
    assert_eq!(found(result), ("prov_exact".to_owned(), MatchedBy::Host));
    configs[0].enabled = false;
    let result = clients.find_by_host(&configs, host).await;
    assert_eq!(result, Err(LookupError::NotFound));
    let result = clients.find_by_path(&configs[0], "v/i").await;
    let provider = "name of prov_exact".to_owned();
    assert_eq!(result, Err(LookupError::Disabled { provider }));
    let result = clients.find_by_host(&configs, "no host").await;
    assert_eq!(result, Err(LookupError::InvalidHost));
}

#[tokio::test]
async fn providers_of_one_priority_are_searched_together() {
    let first = with_url("https://www.example.com").await;
    let second = with_url("https://login.example.com").await;
    let configs = [
        provider("prov_a", 1, &first),
        provider("prov_b", 1, &second),
    ];
    let clients = clients();
    let result = clients.find_by_host(&configs, "login.example.com").await;
    assert_eq!(found(result), ("prov_b".to_owned(), MatchedBy::Host));
    let error = clients
        .find_by_host(&configs, "example.com")
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, LookupError::Ambiguous { more: 0, .. }),
        "{text}"
    );
    assert!(
        text.contains("name of prov_a") && text.contains("name of prov_b"),
        "{text}"
    );
}

#[tokio::test]
async fn failed_provider_stops_the_search_unless_another_one_precedes_it() {
    let down = ScriptedServer::start(|_| Reply::Status(401)).await;
    let up = with_url("https://www.example.com").await;
    let clients = clients();
    for down_priority in [0, 1] {
        let configs = [
            provider("prov_down", down_priority, &down),
            provider("prov_up", 1, &up),
        ];
        let failed = LookupError::ProviderFailed {
            provider: "name of prov_down".to_owned(),
            error: ProviderError::TokenRefused,
        };
        let result = clients.find_by_host(&configs, "www.example.com").await;
        assert_eq!(result, Err(failed));
    }
    let configs = [provider("prov_down", 2, &down), provider("prov_up", 1, &up)];
    let result = clients.find_by_host(&configs, "www.example.com").await;
    assert_eq!(found(result), ("prov_up".to_owned(), MatchedBy::Host));
    let result = clients.find_by_host(&configs, "example.org").await;
    assert!(
        matches!(result, Err(LookupError::ProviderFailed { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn item_is_found_by_path_and_by_host_in_both_apis() {
    for kind in KINDS {
        let server = ScriptedServer::start(move |request| respond(kind, request)).await;
        let config = config(kind, &server);
        let clients = clients();
        let by_path = clients.find_by_path(&config, "Team/Login").await.unwrap();
        let configs = [config.clone()];
        for host in ["www.example.com", "login.example.com", "example.com"] {
            let by_host = clients.find_by_host(&configs, host).await.unwrap();
            assert_eq!(by_host.item, by_path.item, "{kind:?} {host}");
        }
        let missing = clients.find_by_path(&config, "Team/Other").await;
        assert_eq!(missing, Err(LookupError::NotFound));
        let client = clients.client(&config).unwrap();
        assert!(client.fetch(&by_path.item.item_ref()).await.is_ok());
    }
}

#[tokio::test]
async fn items_with_the_same_path_are_refused_by_name() {
    let server = ScriptedServer::start(|request| {
        let item = |id: &str| json!({"id": id, "title": "Login", "vault": {"id": "v"}});
        Reply::Json(match request.target.ends_with("/items") {
            true => json!([item("a"), item("b")]),
            false => json!([{"id": "v", "name": "Team"}]),
        })
    });
    let server = server.await;
    let config = provider("prov_a", 0, &server);
    let clients = clients();
    let error = clients
        .find_by_path(&config, "Team/Login")
        .await
        .unwrap_err();
    let expected = "several items match: Team/Login in name of prov_a (id a), \
        Team/Login in name of prov_a (id b)";
    assert_eq!(error.to_string(), expected);
    let found = clients.find_by_path(&config, "v/b").await.unwrap();
    assert_eq!(
        (found.item.id.as_str(), found.matched_by),
        ("b", MatchedBy::Id)
    );
}

#[tokio::test]
async fn list_is_cached_until_the_configuration_changes() {
    for kind in KINDS {
        let server = ScriptedServer::start(move |request| respond(kind, request)).await;
        let clients = clients();
        let mut config = config(kind, &server);
        config.cache_ttl = Duration::from_secs(300);
        clients.find_by_path(&config, "Team/Login").await.unwrap();
        let requests_of_a_list = server.requests().len();
        for _ in 0..5 {
            clients
                .find_by_host(&[config.clone()], "example.com")
                .await
                .unwrap();
        }
        assert_eq!(server.requests().len(), requests_of_a_list);
        config.cache_ttl = Duration::from_secs(60);
        clients.find_by_path(&config, "Team/Login").await.unwrap();
        assert_eq!(server.requests().len(), 2 * requests_of_a_list);
        clients.remove(&config.id);
        clients.find_by_path(&config, "Team/Login").await.unwrap();
        assert_eq!(server.requests().len(), 3 * requests_of_a_list);
        // Values are requested each time.
        let client = clients.client(&config).unwrap();
        for _ in 0..2 {
            assert!(client.fetch(&super::api::login(kind)).await.is_ok());
        }
        assert_eq!(server.requests().len(), 3 * requests_of_a_list + 2);
    }
}

#[tokio::test]
async fn successful_test_closes_the_circuit() {
    for kind in KINDS {
        let is_down = Arc::new(AtomicBool::new(true));
        let down = is_down.clone();
        let server = ScriptedServer::start(move |request| {
            if down.load(Ordering::SeqCst) {
                Reply::Status(503)
            } else {
                respond(kind, request)
            }
        });
        let server = server.await;
        let clients = clients();
        let config = config(kind, &server);
        let client = clients.client(&config).unwrap();
        for _ in 0..3 {
            assert_eq!(
                error(client.items().await),
                ProviderError::Unavailable { status: 503 }
            );
        }
        assert!(error(client.items().await).retry_after().is_some());
        is_down.store(false, Ordering::SeqCst);
        let vaults = clients.test(&config).await.unwrap();
        assert_eq!(vaults[0].name, "Team");
        let client = clients.client(&config).unwrap();
        assert_eq!(client.items().await.unwrap().len(), 1);
    }
}
