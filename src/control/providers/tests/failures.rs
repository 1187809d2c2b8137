//! The failures that all providers have in common.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use http::header;

use super::{
    api::{KINDS, first_target, login, respond},
    *,
};
use crate::system::outbound::{
    AddressPolicy, AllowedNetwork, HostResolver, OutboundClient, OutboundError, OutboundOptions,
    tests::{
        FixedResolver,
        server::{ReceivedRequest, Reply},
    },
};

/// Starts a server whose first requests get the replies of `failures`.
async fn failing(
    kind: ProviderType,
    count: usize,
    failure: impl Fn() -> Reply + Send + Sync + 'static,
) -> ScriptedServer {
    let received = AtomicUsize::new(0);
    ScriptedServer::start(move |request| {
        if received.fetch_add(1, Ordering::SeqCst) < count {
            failure()
        } else {
            respond(kind, request)
        }
    })
    .await
}

/// Starts a server whose requests get the reply of `failure`, except for those of a first list.
async fn failing_later(
    kind: ProviderType,
    failure: impl Fn() -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, ProviderClient) {
    let is_failing = Arc::new(AtomicBool::new(false));
    let is_failing_now = is_failing.clone();
    let server = ScriptedServer::start(move |request| {
        if is_failing_now.load(Ordering::SeqCst) {
            failure()
        } else {
            respond(kind, request)
        }
    });
    let server = server.await;
    let client = client(kind, &server);
    client.items().await.unwrap();
    is_failing.store(true, Ordering::SeqCst);
    (server, client)
}

#[tokio::test]
async fn refused_token_is_reported_without_a_retry() {
    for kind in KINDS {
        let server = failing(kind, usize::MAX, || Reply::Status(401)).await;
        let client = client(kind, &server);
        assert_eq!(error(client.vaults().await), ProviderError::TokenRefused);
        assert_eq!(error(client.items().await), ProviderError::TokenRefused);
        let fetched = client.fetch(&login(kind)).await;
        assert_eq!(error(fetched), ProviderError::TokenRefused);
        assert_eq!(server.requests().len(), 3);
    }
}

#[tokio::test]
async fn provider_that_is_not_ready_yet_is_waited_for() {
    for kind in KINDS {
        for status in [403, 500] {
            let server = failing(kind, 5, move || Reply::Status(status)).await;
            let items = client(kind, &server).items().await.unwrap();
            assert_eq!(items.len(), 1, "{kind:?} {status}");
            let waits = server.targets();
            let waits = waits
                .iter()
                .take_while(|target| *target == first_target(kind));
            assert_eq!(waits.count(), 6);
        }
    }
}

#[tokio::test]
async fn permission_that_is_lost_later_is_reported_at_once() {
    for kind in KINDS {
        let (server, client) = failing_later(kind, || Reply::Status(403)).await;
        let before = server.requests().len();
        let fetched = client.fetch(&login(kind)).await;
        assert_eq!(error(fetched), ProviderError::Forbidden);
        assert_eq!(server.requests().len(), before + 1);
    }
}

#[tokio::test]
async fn rate_limit_is_waited_for_or_reported() {
    for kind in KINDS {
        let limited = |seconds: &'static str| {
            move || Reply::Header(429, header::RETRY_AFTER, seconds.to_owned())
        };
        let server = failing(kind, 1, limited("1")).await;
        let started_at = std::time::Instant::now();
        client(kind, &server).items().await.unwrap();
        assert!(started_at.elapsed() >= Duration::from_secs(1));

        let server = failing(kind, 1, limited("30")).await;
        let client = client(kind, &server);
        let retry_after = Duration::from_secs(30);
        let limited = ProviderError::RateLimited { retry_after };
        assert_eq!(error(client.items().await), limited);
        // The next request is not sent.
        let next = error(client.items().await);
        assert!(matches!(next, ProviderError::RateLimited { .. }), "{next}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn temporary_failure_is_retried_and_a_lasting_one_opens_the_circuit() {
    for kind in KINDS {
        for status in [500, 502, 503] {
            let (server, client) = failing_later(kind, move || Reply::Status(status)).await;
            let before = server.requests().len();
            for _ in 0..3 {
                let fetched = client.fetch(&login(kind)).await;
                assert_eq!(error(fetched), ProviderError::Unavailable { status });
            }
            assert_eq!(server.requests().len(), before + 9);
            let fetched = error(client.fetch(&login(kind)).await);
            assert!(
                matches!(fetched, ProviderError::CircuitOpen { .. }),
                "{fetched}"
            );
            assert!(error(client.items().await).retry_after().is_some());
            assert_eq!(server.requests().len(), before + 9);
        }
        let server = failing(kind, 2, || Reply::Close).await;
        assert_eq!(client(kind, &server).items().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn slow_provider_is_a_timeout() {
    for kind in KINDS {
        let server = failing(kind, usize::MAX, || Reply::Hang).await;
        let short = ProviderTimings {
            request_timeout: Duration::from_millis(50),
            ..timings()
        };
        let client = ProviderClient::new(&config(kind, &server), &loopback_client(), short);
        let client = client.unwrap();
        assert_eq!(error(client.items().await), ProviderError::Timeout);
        assert!(server.requests().len() <= 3);
        // The time for the operation bounds all attempts.
        let short = ProviderTimings {
            fetch_timeout: Duration::from_millis(20),
            ..timings()
        };
        let client = ProviderClient::new(&config(kind, &server), &loopback_client(), short);
        let fetched = client.unwrap().fetch(&login(kind)).await;
        assert_eq!(error(fetched), ProviderError::Timeout);
        assert!(server.requests().len() <= 4);
    }
}

#[tokio::test]
async fn malformed_response_is_reported_without_a_retry() {
    for kind in KINDS {
        for body in ["", "{", "<html>", "null", "17", "[17]", r#"{"data": 17}"#] {
            let server = failing(kind, usize::MAX, move || Reply::Text(body)).await;
            let client = client(kind, &server);
            let failed = error(client.items().await);
            assert!(
                matches!(failed, ProviderError::InvalidResponse(_)),
                "{body}: {failed}"
            );
            let failed = error(client.fetch(&login(kind)).await);
            assert!(
                matches!(failed, ProviderError::InvalidResponse(_)),
                "{body}: {failed}"
            );
            assert_eq!(server.requests().len(), 2);
        }
    }
}

#[tokio::test]
async fn response_without_end_is_too_large() {
    for kind in KINDS {
        let server = failing(kind, usize::MAX, || Reply::Endless).await;
        let failed = error(client(kind, &server).items().await);
        assert!(matches!(failed, ProviderError::TooLarge { .. }), "{failed}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn unexpected_status_is_reported() {
    for kind in KINDS {
        for status in [304, 400, 418] {
            let server = failing(kind, usize::MAX, move || Reply::Status(status)).await;
            let failed = error(client(kind, &server).items().await);
            assert_eq!(failed, ProviderError::UnexpectedStatus { status });
        }
    }
}

#[tokio::test]
async fn token_does_not_follow_a_redirect_to_another_origin() {
    for kind in KINDS {
        let other = ScriptedServer::start(move |request| respond(kind, request)).await;
        let location = other.url().join(first_target(kind)).unwrap().to_string();
        let redirect = move || Reply::Header(307, header::LOCATION, location.clone());
        let server = failing(kind, usize::MAX, redirect).await;
        let failed = error(client(kind, &server).items().await);
        let refused = ProviderError::RedirectRefused(OutboundError::CrossOriginRedirect);
        assert_eq!(failed, refused);
        assert!(other.requests().is_empty());

        let server = ScriptedServer::start(move |request| match request.target.as_str() {
            "/moved" => respond_as(kind, first_target(kind), request),
            target if target == first_target(kind) => {
                Reply::Header(302, header::LOCATION, "/moved".to_owned())
            }
            _ => respond(kind, request),
        });
        let server = server.await;
        assert_eq!(client(kind, &server).items().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn address_is_checked_after_the_resolution() {
    for kind in KINDS {
        let server = failing(kind, 0, || Reply::Status(500)).await;
        let mut config = config(kind, &server);
        config.base_url = server.url_with_host("vault.example");
        let outbound = |policy| {
            let resolver: Arc<dyn HostResolver> =
                FixedResolver::new("vault.example", &["127.0.0.1"]);
            let options = OutboundOptions {
                policy,
                resolver,
                ..OutboundOptions::default()
            };
            OutboundClient::new(options).unwrap()
        };
        let denied = outbound(AddressPolicy::default());
        let client = ProviderClient::new(&config, &denied, timings()).unwrap();
        for _ in 0..5 {
            let host = "vault.example".to_owned();
            let denied = OutboundError::AddressNotAllowed { host };
            let denied = ProviderError::AddressNotAllowed(denied);
            assert_eq!(error(client.items().await), denied);
        }
        assert!(server.requests().is_empty());
        let allowed = outbound(AddressPolicy::new(AllowedNetwork::LOOPBACK));
        let client = ProviderClient::new(&config, &allowed, timings()).unwrap();
        assert_eq!(client.items().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn certificate_of_an_unknown_authority_is_refused() {
    for kind in KINDS {
        let server = ScriptedServer::start_tls("127.0.0.1", move |request| respond(kind, request));
        let server = server.await;
        let failed = error(client(kind, &server).items().await);
        assert!(matches!(failed, ProviderError::Tls(_)), "{failed}");
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn prefix_of_the_base_url_precedes_the_api() {
    for kind in KINDS {
        let server = ScriptedServer::start(move |request| {
            let target = request.target.strip_prefix("/prefix");
            respond_as(kind, target.unwrap_or_default(), request)
        });
        let server = server.await;
        for prefix in ["/prefix", "/prefix/"] {
            let mut config = config(kind, &server);
            config.base_url.set_path(prefix);
            assert_eq!(client_of(&config).items().await.unwrap().len(), 1);
        }
    }
}

/// Responds to a request as if it had another target.
fn respond_as(kind: ProviderType, target: &str, request: &ReceivedRequest) -> Reply {
    let mut request = request.clone();
    request.target = target.to_owned();
    respond(kind, &request)
}
