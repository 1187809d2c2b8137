//! Tests of the client against a server on loopback.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;
use url::Url;

use self::server::{Reply, ScriptedServer};
use super::*;

pub(crate) mod server;

const LIMIT: usize = 64 << 10;
/// Ends a test that would otherwise wait for a server that does not respond.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A resolver with fixed answers.
#[derive(Default)]
pub(crate) struct FixedResolver(HashMap<&'static str, Vec<IpAddr>>);

impl FixedResolver {
    pub(crate) fn new(host: &'static str, addresses: &[&str]) -> Arc<FixedResolver> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        Arc::new(FixedResolver(HashMap::from([(host, addresses.collect())])))
    }
}

#[async_trait]
impl HostResolver for FixedResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = self.0.get(host).cloned();
        addresses.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns a client that may connect to this machine.
pub(crate) fn loopback_client() -> OutboundClient {
    client(OutboundOptions {
        policy: AddressPolicy::new(AllowedNetwork::LOOPBACK),
        ..OutboundOptions::default()
    })
}

fn client(options: OutboundOptions) -> OutboundClient {
    OutboundClient::new(options).unwrap()
}

fn request<'a>(url: &'a Url, headers: &'a HeaderMap) -> OutboundRequest<'a> {
    OutboundRequest {
        url,
        headers,
        max_bytes: LIMIT,
        timeout: TIMEOUT,
    }
}

async fn get(client: &OutboundClient, url: &Url) -> Result<OutboundResponse, OutboundError> {
    client.get(request(url, &HeaderMap::new())).await
}

fn error(result: Result<OutboundResponse, OutboundError>) -> OutboundError {
    result.err().expect("the request fails")
}

#[tokio::test]
async fn response_has_status_headers_and_body() {
    let server = ScriptedServer::start(|_| Reply::Json(json!({"a": 1}))).await;
    let url = server.url().join("path/%2e%2e%2fx?q=1#fragment").unwrap();
    let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("a/b"))]);
    let response = loopback_client().get(request(&url, &headers)).await;
    let response = response.ok().unwrap();
    assert_eq!(response.status, StatusCode::OK);
    assert_eq!(*response.body, br#"{"a":1}"#);
    let received = &server.requests()[0];
    assert_eq!(received.target, "/path/%2e%2e%2fx?q=1");
    assert_eq!(received.headers[header::ACCEPT], "a/b");
    for absent in [header::COOKIE, header::REFERER, header::ACCEPT_ENCODING] {
        assert!(!received.headers.contains_key(&absent), "{absent}");
    }
}

#[tokio::test]
async fn body_of_an_error_is_not_read() {
    let server = ScriptedServer::start(|_| Reply::Failure(500, "canary")).await;
    let response = get(&loopback_client(), &server.url()).await.ok().unwrap();
    assert_eq!(response.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(response.body.is_empty());
}

#[tokio::test]
async fn address_that_is_not_allowed_is_not_connected_to() {
    let server = ScriptedServer::start(|_| Reply::Status(200)).await;
    let client = client(OutboundOptions::default());
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "localhost"] {
        let url = server.url_with_host(host);
        let error = error(get(&client, &url).await);
        let host = url.host_str().unwrap().to_owned();
        assert_eq!(error, OutboundError::AddressNotAllowed { host });
    }
    for host in ["[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"] {
        let error = error(get(&client, &server.url_with_host(host)).await);
        assert!(
            matches!(error, OutboundError::AddressNotAllowed { .. }),
            "{error}"
        );
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn name_with_a_private_address_is_not_connected_to() {
    let server = ScriptedServer::start(|_| Reply::Status(200)).await;
    let resolving_to = |addresses: &[&str], allowed: &[&str]| {
        client(OutboundOptions {
            policy: AddressPolicy::new(allowed.iter().map(|text| text.parse().unwrap())),
            resolver: FixedResolver::new("vault.example", addresses),
            ..OutboundOptions::default()
        })
    };
    let url = server.url_with_host("vault.example");
    let host = || "vault.example".to_owned();

    let private = resolving_to(&["127.0.0.1", "169.254.169.254"], &[]);
    let denied = OutboundError::AddressNotAllowed { host: host() };
    assert_eq!(error(get(&private, &url).await), denied);
    // Plain http is denied even for a public address.
    let public = resolving_to(&["1.1.1.1"], &[]);
    let denied = OutboundError::PlainHttpNotAllowed { host: host() };
    assert_eq!(error(get(&public, &url).await), denied);
    // An address that is denied is not the fallback for one that is allowed.
    let mixed = resolving_to(&["10.0.0.1", "127.0.0.1"], &["127.0.0.0/8"]);
    assert!(get(&mixed, &url).await.is_ok());
    let other = server.url_with_host("other.example");
    assert!(matches!(
        error(get(&mixed, &other).await),
        OutboundError::Resolve { .. }
    ));
    assert_eq!(server.requests().len(), 1);
}

/// A resolver whose second answer is another address.
#[derive(Default)]
struct RebindingResolver(AtomicUsize);

#[async_trait]
impl HostResolver for RebindingResolver {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        let address = match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => [127, 0, 0, 1],
            _ => [169, 254, 169, 254],
        };
        Ok(vec![address.into()])
    }
}

#[tokio::test]
async fn name_is_resolved_once_per_connection() {
    let server = ScriptedServer::start(|_| Reply::Text("reached")).await;
    let resolver = Arc::new(RebindingResolver::default());
    let new_client = || {
        client(OutboundOptions {
            policy: AddressPolicy::new(AllowedNetwork::LOOPBACK),
            resolver: resolver.clone(),
            ..OutboundOptions::default()
        })
    };
    let url = server.url_with_host("vault.example");
    let response = get(&new_client(), &url).await;
    assert_eq!(*response.ok().unwrap().body, b"reached");
    assert_eq!(resolver.0.load(Ordering::SeqCst), 1);
    // Another connection is checked again.
    let host = "vault.example".to_owned();
    let denied = OutboundError::AddressNotAllowed { host };
    assert_eq!(error(get(&new_client(), &url).await), denied);
}

#[tokio::test]
async fn redirect_within_the_origin_is_followed_with_its_headers() {
    let server = ScriptedServer::start(|request| match request.target.as_str() {
        "/" => Reply::Header(302, header::LOCATION, "/next".to_owned()),
        _ => Reply::Text("arrived"),
    })
    .await;
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("t"))]);
    let url = server.url();
    let response = loopback_client().get(request(&url, &headers)).await;
    assert_eq!(*response.ok().unwrap().body, b"arrived");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].headers[header::AUTHORIZATION], "t");
}

#[tokio::test]
async fn redirect_to_another_origin_is_refused() {
    let other = ScriptedServer::start(|_| Reply::Status(200)).await;
    let port = other.address.port();
    let locations = [
        other.url().to_string(),
        format!("//127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        "http://localhost/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "http://[".to_owned(),
    ];
    for location in locations {
        let script = location.clone();
        let server =
            ScriptedServer::start(move |_| Reply::Header(307, header::LOCATION, script.clone()));
        let error = error(get(&loopback_client(), &server.await.url()).await);
        assert_eq!(error, OutboundError::CrossOriginRedirect, "{location}");
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn number_of_redirects_is_bounded() {
    let server =
        ScriptedServer::start(|_| Reply::Header(301, header::LOCATION, "/".to_owned())).await;
    let error = error(get(&loopback_client(), &server.url()).await);
    assert_eq!(error, OutboundError::TooManyRedirects { limit: 3 });
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn size_of_the_body_is_bounded() {
    let server = ScriptedServer::start(|request| match request.target.as_str() {
        "/endless" => Reply::Endless,
        _ => Reply::Bytes(vec![b' '; LIMIT + 1]),
    })
    .await;
    for path in ["/announced", "/endless"] {
        let url = server.url().join(path).unwrap();
        let error = error(get(&loopback_client(), &url).await);
        assert_eq!(error, OutboundError::TooLarge { limit: LIMIT }, "{path}");
    }
    let url = server.url();
    let headers = HeaderMap::new();
    let permitted = OutboundRequest {
        max_bytes: LIMIT + 1,
        ..request(&url, &headers)
    };
    let response = loopback_client().get(permitted).await.ok().unwrap();
    assert_eq!(response.body.len(), LIMIT + 1);
}

#[tokio::test]
async fn time_of_a_request_is_bounded() {
    let server = ScriptedServer::start(|_| Reply::Hang).await;
    let url = server.url();
    let headers = HeaderMap::new();
    let limit = Duration::from_millis(20);
    let request = OutboundRequest {
        timeout: limit,
        ..request(&url, &headers)
    };
    let error = error(loopback_client().get(request).await);
    assert_eq!(error, OutboundError::Timeout { limit });
}

#[tokio::test]
async fn closed_port_and_closed_connection_are_named() {
    let server = ScriptedServer::start(|_| Reply::Close).await;
    let url = server.url();
    let host = || "127.0.0.1".to_owned();
    let interrupted = error(get(&loopback_client(), &url).await);
    assert_eq!(interrupted, OutboundError::Interrupted { host: host() });
    // The port is free: the listener was never accepted from again.
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    let refused = OutboundError::Connect {
        host: host(),
        reason: io::ErrorKind::ConnectionRefused,
    };
    assert_eq!(error(get(&loopback_client(), &url).await), refused);
}

#[tokio::test]
async fn certificate_is_verified() {
    let server = ScriptedServer::start_tls("vault.example", |_| Reply::Text("secure")).await;
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, &server.certificate).unwrap();
    let with_ca = |ca_file, host| {
        client(OutboundOptions {
            policy: AddressPolicy::new(AllowedNetwork::LOOPBACK),
            ca_file,
            resolver: FixedResolver::new(host, &["127.0.0.1"]),
            ..OutboundOptions::default()
        })
    };
    let url = server.url_with_host("vault.example");
    let reason_of = |result| match error(result) {
        OutboundError::Tls { reason, .. } => reason,
        error => panic!("{error}"),
    };

    let result = get(&with_ca(None, "vault.example"), &url).await;
    assert_eq!(
        reason_of(result),
        "the authority of the certificate is not known"
    );
    let ca_file = Some(ca_file);
    let response = get(&with_ca(ca_file.clone(), "vault.example"), &url).await;
    assert_eq!(*response.ok().unwrap().body, b"secure");
    let other = server.url_with_host("other.example");
    let result = get(&with_ca(ca_file, "other.example"), &other).await;
    assert_eq!(reason_of(result), "the certificate is for another name");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn server_without_tls_is_refused_for_https() {
    let server = ScriptedServer::start(|_| Reply::Status(200)).await;
    let mut url = server.url();
    url.set_scheme("https").unwrap();
    let error = error(get(&loopback_client(), &url).await);
    assert!(matches!(error, OutboundError::Tls { .. }), "{error}");
}

#[tokio::test]
async fn unusable_file_of_authorities_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for path in [empty, directory.path().join("missing.pem")] {
        let options = OutboundOptions {
            ca_file: Some(path.clone()),
            ..OutboundOptions::default()
        };
        let error = OutboundClient::new(options).err().unwrap().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn url_that_cannot_be_requested_is_refused() {
    for url in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user@127.0.0.1/",
        "http://:password@127.0.0.1/",
        "data:text/plain,a",
    ] {
        let error = error(get(&loopback_client(), &url.parse().unwrap()).await);
        assert_eq!(error, OutboundError::InvalidUrl, "{url}");
    }
}

fn post<'a>(url: &'a Url, headers: &'a HeaderMap) -> OutboundPost<'a> {
    OutboundPost {
        url,
        headers,
        body: "{\"a\":1}".into(),
        max_bytes: 8,
        timeout: TIMEOUT,
    }
}

#[tokio::test]
async fn post_sends_its_body_and_returns_any_status() {
    for status in [200, 410, 500] {
        let server =
            ScriptedServer::start(move |_| Reply::Failure(status, "0123456789abcdef")).await;
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("a/b"))]);
        let url = server.url();
        let response = loopback_client().post(post(&url, &headers)).await;
        let response = response.ok().unwrap();
        assert_eq!(response.status, status);
        assert_eq!(*response.body, b"01234567");
        let received = &server.requests()[0];
        assert_eq!(received.body, "{\"a\":1}");
        assert_eq!(received.headers[header::ACCEPT], "a/b");
        assert_eq!(received.headers[header::CONTENT_LENGTH], "7");
    }
}

#[tokio::test]
async fn redirect_of_a_post_is_not_followed() {
    let target = ScriptedServer::start(|_| Reply::Text("reached")).await;
    let location = target.url().to_string();
    let server =
        ScriptedServer::start(move |_| Reply::Header(307, header::LOCATION, location.clone()))
            .await;
    let (url, headers) = (server.url(), HeaderMap::new());
    let response = loopback_client().post(post(&url, &headers)).await;
    assert_eq!(response.ok().unwrap().status, 307);
    assert!(target.requests().is_empty());
}

#[tokio::test]
async fn body_that_does_not_end_does_not_fail_a_post() {
    let server = ScriptedServer::start(|request| match request.target.as_str() {
        "/endless" => Reply::Endless,
        _ => Reply::Partial(200, "part"),
    })
    .await;
    for (path, expected) in [("/endless", "        "), ("/partial", "part")] {
        let (url, headers) = (server.url().join(path).unwrap(), HeaderMap::new());
        let request = OutboundPost {
            // The second response has to begin in this time, and takes all of it.
            timeout: Duration::from_secs(5),
            ..post(&url, &headers)
        };
        let response = loopback_client().post(request).await.ok().unwrap();
        assert_eq!(*response.body, expected.as_bytes(), "{path}");
    }
}

#[tokio::test]
async fn time_of_a_post_and_its_address_are_bounded() {
    let server = ScriptedServer::start(|_| Reply::Hang).await;
    let (url, headers) = (server.url(), HeaderMap::new());
    let limit = Duration::from_millis(20);
    let request = OutboundPost {
        timeout: limit,
        ..post(&url, &headers)
    };
    let timed_out = error(loopback_client().post(request).await);
    assert_eq!(timed_out, OutboundError::Timeout { limit });
    let public_only = client(OutboundOptions::default());
    let denied = error(public_only.post(post(&url, &headers)).await);
    let host = "127.0.0.1".to_owned();
    assert_eq!(denied, OutboundError::AddressNotAllowed { host });
}
