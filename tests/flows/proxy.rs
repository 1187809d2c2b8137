//! The proxy, tested from both ends: a client that writes raw HTTP, and an upstream served by the
//! test.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::Request, response::IntoResponse};
use berth::{
    api::ids::HostId,
    control::{
        activity::Activity,
        fleet::{AgentAccess, AgentEndpoint},
        proxy::{Proxy, ProxyError, ProxyTarget, SessionPath},
    },
    http::{ApiError, ConnectionLimits},
    shutdown::Shutdown,
    system::identity::Authority,
};
use chrono::Utc;
use futures::StreamExt;
use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(20);
const GENERATION: u64 = 3;
const AGENT_TOKEN: &str = "the-agents-own-token";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A connection whose bytes the test reads and writes.
struct Wire(TcpStream);

impl Wire {
    async fn connect(addr: SocketAddr) -> Self {
        Self(TcpStream::connect(addr).await.unwrap())
    }

    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads up to and including `end`.
    async fn read_until(&mut self, end: &str) -> String {
        let mut received = Vec::new();
        let reading = async {
            while !received.ends_with(end.as_bytes()) {
                match self.0.read_u8().await {
                    Ok(byte) => received.push(byte),
                    Err(_) => break,
                }
            }
        };
        if timeout(TIMEOUT, reading).await.is_err() {
            panic!(
                "expected {end:?}, received {:?}",
                String::from_utf8_lossy(&received)
            );
        }
        String::from_utf8(received).unwrap()
    }

    async fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    /// Waits for the end of the connection; `false` if more data arrives instead.
    async fn is_closed(&mut self) -> bool {
        let read = timeout(TIMEOUT, self.0.read_u8()).await;
        read.expect("the connection ends").is_err()
    }
}

/// The agent's end: a listener whose connections the test serves.
struct Upstream(TcpListener);

impl Upstream {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    async fn accept(&self) -> Wire {
        let accepted = timeout(TIMEOUT, self.0.accept()).await;
        Wire(accepted.expect("a connection").unwrap().0)
    }
}

/// The proxy under test.
struct ProxyServer {
    addr: SocketAddr,
    activity: Arc<Activity>,
    ended: CancellationToken,
    _shutdown: Shutdown,
}

impl ProxyServer {
    async fn to(upstream: SocketAddr) -> Self {
        Self::with_response_timeout(upstream, TIMEOUT).await
    }

    async fn with_response_timeout(upstream: SocketAddr, answer_timeout: Duration) -> Self {
        let shutdown = Shutdown::new();
        let activity = Arc::new(Activity::new());
        let ended = CancellationToken::new();
        let target = ProxyTarget {
            agent: AgentEndpoint {
                address: upstream,
                access: AgentAccess::Token(SecretString::from(AGENT_TOKEN)),
                generation: Some(GENERATION),
            },
            activity: activity.clone(),
            ended: ended.clone(),
        };
        let proxy = Proxy::new(&shutdown, usize::MAX).response_timeout(answer_timeout);
        let app = Router::new().fallback(move |request: Request| async move {
            let path = request.uri().path().to_owned();
            let path = SessionPath::of_request(&path).unwrap();
            match proxy.forward(&target, path, request).await {
                Ok(response) => response,
                Err(error) => status(&error).into_response(),
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = shutdown.clone();
        tokio::spawn(async move {
            berth::http::serve(listener, app, ConnectionLimits::new(1000), &serving)
                .await
                .unwrap()
        });
        Self {
            addr,
            activity,
            ended,
            _shutdown: shutdown,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/browsers/b{path}", self.addr)
    }

    /// Waits until no request is in progress.
    async fn wait_until_idle(&self) {
        let idle = self.activity.idle_at_least(Duration::ZERO);
        timeout(TIMEOUT, idle)
            .await
            .expect("no request in progress");
    }
}

fn status(error: &ProxyError) -> ApiError {
    let message = error.to_string();
    match error {
        ProxyError::Unreachable(_) | ProxyError::Disconnected(_) => ApiError::bad_gateway(message),
        ProxyError::Timeout => ApiError::timeout(message),
        ProxyError::Method => ApiError::method_not_allowed(message),
        ProxyError::Body(_) | ProxyError::Malformed(_) => ApiError::bad_request(message),
        ProxyError::BrowserEnded => ApiError::not_found(message),
        ProxyError::ShuttingDown => ApiError::unavailable(message, Duration::from_secs(1)),
    }
}

fn header<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .collect()
}

#[tokio::test]
async fn agent_receives_its_token_and_no_credentials_of_the_client() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    let mut client = Wire::connect(proxy_server.addr).await;
    client
        .send(
            "DELETE /browsers/b/fs/x%20y?a=1&jwt=session.token&b=%2F HTTP/1.1\r\nHost: public.example\r\n\
             Authorization: Bearer callers-key\r\nCookie: c=1\r\nReferer: http://public.example/browsers/b/live?jwt=session.token\r\n\
             X-Project-Id: proj\r\nX-Kernel-Project-Id: proj\r\nX-Kernel-Project: p\r\nBerth-Generation: 7\r\n\
             Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authorization: Basic eA==\r\n\
             Upgrade: h2c\r\nTE: gzip\r\nX-Request-Id: req-1\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\
             X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Kept: yes\r\nX-Kept: twice\r\n\r\n",
        )
        .await;
    let mut agent = upstream.accept().await;
    let head = agent.read_head().await;
    assert!(
        head.starts_with("DELETE /fs/x%20y?a=1&b=%2F HTTP/1.1\r\n"),
        "{head}"
    );
    assert_eq!(
        header(&head, "authorization"),
        [format!("Bearer {AGENT_TOKEN}")]
    );
    assert_eq!(header(&head, "host"), [upstream.addr().to_string()]);
    // Not that of the client.
    assert_eq!(header(&head, "berth-generation"), [GENERATION.to_string()]);
    for removed in [
        "cookie",
        "referer",
        "x-project-id",
        "x-kernel-project-id",
        "x-kernel-project",
        "x-hop",
        "keep-alive",
        "proxy-authorization",
        "upgrade",
        "te",
        "connection",
    ] {
        assert!(header(&head, removed).is_empty(), "{removed} in {head}");
    }
    for secret in ["callers-key", "session.token"] {
        assert!(!head.contains(secret), "{head}");
    }
    assert_eq!(header(&head, "x-request-id"), ["req-1"]);
    assert!(header(&head, "traceparent")[0].starts_with("00-0af7"));
    assert_eq!(header(&head, "x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    assert_eq!(header(&head, "x-forwarded-proto"), ["https"]);
    assert_eq!(header(&head, "x-forwarded-host"), ["public.example"]);
    assert_eq!(header(&head, "x-kept"), ["yes", "twice"]);
    assert_eq!(header(&head, "via"), ["1.1 berth"]);

    agent
        .send("HTTP/1.1 418 Teapot\r\nConnection: X-Inner\r\nX-Inner: 1\r\nX-Outer: a\r\nX-Outer: b\r\nContent-Length: 3\r\n\r\ntea")
        .await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 418 "), "{head}");
    assert!(header(&head, "x-inner").is_empty(), "{head}");
    assert_eq!(header(&head, "x-outer"), ["a", "b"]);
    assert_eq!(client.read_until("tea").await, "tea");
}

#[tokio::test]
async fn request_without_a_response_ends_with_its_browser() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for headers in ["", "Content-Length: 9\r\n", upgrade] {
        let upstream = Upstream::start().await;
        let proxy_server = ProxyServer::to(upstream.addr()).await;
        let mut client = Wire::connect(proxy_server.addr).await;
        let request = format!("GET /browsers/b/cdp HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        client.send(&request).await;
        let mut agent = upstream.accept().await;
        agent.read_head().await;
        proxy_server.ended.cancel();
        let head = client.read_head().await;
        assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
        assert!(agent.is_closed().await);
        proxy_server.wait_until_idle().await;
    }
}

#[tokio::test]
async fn response_in_progress_is_aborted_when_its_browser_ends() {
    for head in [
        "Transfer-Encoding: chunked\r\n\r\n3\r\n",
        "Content-Length: 9\r\n\r\n",
    ] {
        let upstream = Upstream::start().await;
        let proxy_server = ProxyServer::to(upstream.addr()).await;
        let mut client = Wire::connect(proxy_server.addr).await;
        let request = "GET /browsers/b/fs/watch HTTP/1.1\r\nHost: x\r\n\r\n";
        client.send(request).await;
        let mut agent = upstream.accept().await;
        agent.read_head().await;
        agent
            .send(&format!("HTTP/1.1 200 OK\r\n{head}abc\r\n"))
            .await;
        client.read_until("abc\r\n").await;
        proxy_server.ended.cancel();
        // Without the last chunk.
        assert!(client.is_closed().await);
        assert!(agent.is_closed().await);
        proxy_server.wait_until_idle().await;
    }
}

#[tokio::test]
async fn host_that_does_not_complete_the_tls_handshake_is_unreachable() {
    // Accepts connections, and answers nothing.
    let upstream = Upstream::start().await;
    let shutdown = Shutdown::new();
    let authority = Authority::from_pem(&Authority::generate().unwrap()).unwrap();
    let tls = authority.client_config(Utc::now()).unwrap();
    let proxy = Proxy::new(&shutdown, 1).with_registered_hosts(tls);
    let target = ProxyTarget {
        agent: AgentEndpoint {
            address: upstream.addr(),
            access: AgentAccess::Certificate(HostId::generate()),
            generation: Some(GENERATION),
        },
        activity: Arc::new(Activity::new()),
        ended: CancellationToken::new(),
    };
    let path = SessionPath::of_request("/browsers/b/fs/file").unwrap();
    let request = Request::builder().body(Body::empty()).unwrap();
    let forwarded = timeout(TIMEOUT, proxy.forward(&target, path, request)).await;
    let error = forwarded.expect("an error in time").unwrap_err();
    assert!(matches!(error, ProxyError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn connections_to_agent_are_reused() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    let mut client = Wire::connect(proxy_server.addr).await;
    client
        .send("GET /browsers/b/fs/1 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut agent = upstream.accept().await;
    for round in 1..20 {
        assert!(
            agent
                .read_head()
                .await
                .starts_with(&format!("GET /fs/{round} "))
        );
        agent.send(OK).await;
        assert!(
            client
                .read_until("\r\n\r\nok")
                .await
                .starts_with("HTTP/1.1 200 ")
        );
        let next = format!(
            "GET /browsers/b/fs/{} HTTP/1.1\r\nHost: x\r\n\r\n",
            round + 1
        );
        client.send(&next).await;
    }
}

#[tokio::test]
async fn event_is_forwarded_before_response_ends() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    let mut client = Wire::connect(proxy_server.addr).await;
    client
        .send("GET /browsers/b/logs/stream HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    agent.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let head = client.read_head().await;
    assert_eq!(header(&head, "content-type"), ["text/event-stream"]);
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        agent
            .send(&format!("{:x}\r\n{event}\r\n", event.len()))
            .await;
        assert!(client.read_until("\n\n\r\n").await.contains(event));
        assert_eq!(
            proxy_server.activity.idle_for(),
            None,
            "an open response counts as activity"
        );
    }
    agent.send("0\r\n\r\n").await;
    assert_eq!(client.read_until("0\r\n\r\n").await, "0\r\n\r\n");
    proxy_server.wait_until_idle().await;
}

#[tokio::test]
async fn large_bodies_are_forwarded_in_both_directions() {
    const SIZE: u64 = 256 << 20;
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    let url = proxy_server.url("/fs/echo");
    // With a known length, and chunked.
    for has_length in [true, false] {
        let piece = bytes::Bytes::from(vec![0xa5; 1 << 20]);
        let pieces = futures::stream::iter(
            (0..SIZE >> 20).map(move |_| Ok::<_, std::io::Error>(piece.clone())),
        );
        let mut request = reqwest::Client::new()
            .put(&url)
            .body(reqwest::Body::wrap_stream(pieces));
        if has_length {
            request = request.header("content-length", SIZE);
        }
        let echo = async {
            let mut agent = upstream.accept().await;
            let head = agent.read_head().await;
            assert_eq!(
                header(&head, "content-length").is_empty(),
                !has_length,
                "{head}"
            );
            // The raw bytes are echoed, chunk headers included: the proxy must read and write
            // concurrently.
            let framing = if has_length {
                format!("Content-Length: {SIZE}")
            } else {
                "Transfer-Encoding: chunked".to_owned()
            };
            agent
                .send(&format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"))
                .await;
            let (mut from, mut to) = agent.0.into_split();
            if has_length {
                tokio::io::copy(&mut from.take(SIZE), &mut to)
                    .await
                    .unwrap();
            } else {
                let _ = tokio::io::copy(&mut from, &mut to).await;
            }
        };
        let count = async {
            let mut response = request.send().await.unwrap().bytes_stream();
            let mut received = 0;
            while let Some(bytes) = response.next().await {
                let bytes = bytes.unwrap();
                assert!(bytes.iter().all(|&byte| byte == 0xa5));
                received += bytes.len() as u64;
            }
            received
        };
        let received = tokio::select! {
            received = count => received,
            () = async { echo.await; std::future::pending().await } => unreachable!("the echo never ends the test"),
        };
        assert_eq!(received, SIZE);
    }
}

#[tokio::test]
async fn proxy_buffers_little_when_receiver_does_not_read() {
    // The kernel buffers of four sockets and two buffers of the proxy; far below the size offered.
    const BOUND: usize = 48 << 20;
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;

    async fn offer(wire: &mut TcpStream) -> usize {
        let piece = vec![7; 1 << 20];
        let mut accepted = 0;
        while accepted < 2 * BOUND {
            match timeout(Duration::from_secs(1), wire.write(&piece)).await {
                Ok(written) => accepted += written.unwrap(),
                Err(_) => break,
            }
        }
        accepted
    }

    let mut up = Wire::connect(proxy_server.addr).await;
    up.send(
        "PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n",
    )
    .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    assert!(offer(&mut up.0).await < BOUND);

    let mut down = Wire::connect(proxy_server.addr).await;
    down.send("GET /browsers/b/fs/read_file HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    agent
        .send("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
        .await;
    assert!(offer(&mut agent.0).await < BOUND);
}

#[tokio::test]
async fn trailers_are_forwarded_in_both_directions() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    let mut client = Wire::connect(proxy_server.addr).await;
    client
        .send(
            "PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-Sum\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
        )
        .await;
    let mut agent = upstream.accept().await;
    let head = agent.read_head().await;
    assert_eq!(header(&head, "te"), ["trailers"]);
    assert!(
        agent
            .read_until("\r\n\r\n")
            .await
            .to_lowercase()
            .ends_with("0\r\nx-sum: 1\r\n\r\n")
    );
    agent.send("HTTP/1.1 200 OK\r\nTrailer: X-Back\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Back: 2\r\n\r\n").await;
    client.read_head().await;
    assert!(
        client
            .read_until("\r\n\r\n")
            .await
            .to_lowercase()
            .ends_with("0\r\nx-back: 2\r\n\r\n")
    );
}

#[tokio::test]
async fn expect_continue_is_decided_by_agent() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    const REQUEST: &str = "PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

    let mut accepted = Wire::connect(proxy_server.addr).await;
    accepted.send(REQUEST).await;
    let mut agent = upstream.accept().await;
    assert_eq!(header(&agent.read_head().await, "expect"), ["100-continue"]);
    agent.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(accepted.read_head().await.starts_with("HTTP/1.1 100 "));
    accepted.send("body").await;
    assert_eq!(agent.read_until("body").await, "body");
    agent.send(OK).await;
    assert!(accepted.read_head().await.starts_with("HTTP/1.1 200 "));
    drop(agent);

    let mut refused = Wire::connect(proxy_server.addr).await;
    refused.send(REQUEST).await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    agent
        .send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        .await;
    let head = refused.read_head().await;
    assert!(
        head.starts_with("HTTP/1.1 413 "),
        "no 100 before it: {head}"
    );
}

#[tokio::test]
async fn unreachable_agent_is_502() {
    let upstream = Upstream::start().await;
    let nowhere = upstream.addr();
    drop(upstream);
    let proxy_server = ProxyServer::to(nowhere).await;
    let response = reqwest::get(proxy_server.url("/fs/read_file"))
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(body["code"], "bad_gateway");
    proxy_server.wait_until_idle().await;
}

#[tokio::test]
async fn agent_closing_before_response_is_502() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    for cut in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let request = tokio::spawn(reqwest::get(proxy_server.url("/fs/read_file")));
        let mut agent = upstream.accept().await;
        agent.read_head().await;
        agent.send(cut).await;
        drop(agent);
        assert_eq!(request.await.unwrap().unwrap().status(), 502);
    }
}

#[tokio::test]
async fn silent_agent_is_504() {
    let upstream = Upstream::start().await;
    let proxy_server =
        ProxyServer::with_response_timeout(upstream.addr(), Duration::from_secs(1)).await;
    let request = tokio::spawn(reqwest::get(proxy_server.url("/fs/read_file")));
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    assert_eq!(request.await.unwrap().unwrap().status(), 504);
    assert!(agent.is_closed().await, "the request is aborted");
}

#[tokio::test]
async fn agent_closing_during_response_truncates_it() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    for part in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
    ] {
        let request = tokio::spawn(reqwest::get(proxy_server.url("/fs/read_file")));
        let mut agent = upstream.accept().await;
        agent.read_head().await;
        agent.send(part).await;
        let response = request.await.unwrap().unwrap();
        drop(agent);
        assert!(response.bytes().await.is_err(), "{part}");
        proxy_server.wait_until_idle().await;
    }
}

#[tokio::test]
async fn disconnected_client_aborts_request_to_agent() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;

    let mut waiting = Wire::connect(proxy_server.addr).await;
    waiting
        .send("GET /browsers/b/fs/read_file HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    drop(waiting);
    assert!(agent.is_closed().await);
    proxy_server.wait_until_idle().await;

    let mut reading = Wire::connect(proxy_server.addr).await;
    reading
        .send("GET /browsers/b/logs/stream HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    agent
        .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    reading.read_head().await;
    drop(reading);
    assert!(agent.is_closed().await);
    proxy_server.wait_until_idle().await;

    let mut writing = Wire::connect(proxy_server.addr).await;
    writing
        .send("PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    agent.read_until("half").await;
    drop(writing);
    assert!(
        agent.is_closed().await,
        "an incomplete body must not look complete"
    );
    proxy_server.wait_until_idle().await;
}

#[tokio::test]
async fn methods_are_forwarded_except_trace() {
    let upstream = Upstream::start().await;
    let proxy_server = ProxyServer::to(upstream.addr()).await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let request = reqwest::Client::new()
            .request(method.parse().unwrap(), proxy_server.url("/fs/x"))
            .send();
        let request = tokio::spawn(request);
        let mut agent = upstream.accept().await;
        assert!(
            agent
                .read_head()
                .await
                .starts_with(&format!("{method} /fs/x "))
        );
        agent.send(OK).await;
        assert_eq!(request.await.unwrap().unwrap().status(), 200);
    }
    let trace = reqwest::Client::new().request("TRACE".parse().unwrap(), proxy_server.url("/fs/x"));
    assert_eq!(trace.send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn early_error_response_reaches_client_that_is_still_sending() {
    const SIZE: usize = 64 << 20;
    let shutdown = Shutdown::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = listener.local_addr().unwrap();
    let app = Router::new().fallback(|| async { ApiError::payload_too_large("too large") });
    tokio::spawn(async move {
        berth::http::serve(listener, app, ConnectionLimits::new(1000), &shutdown)
            .await
            .unwrap()
    });
    let proxy_server = ProxyServer::to(refusing).await;

    for url in [
        format!("http://{refusing}/"),
        proxy_server.url("/fs/write_file"),
    ] {
        for round in 0..10 {
            let request = reqwest::Client::new().put(&url).body(vec![7; SIZE]);
            let response = request
                .send()
                .await
                .unwrap_or_else(|error| panic!("{round} {url}: {error:?}"));
            assert_eq!(response.status(), 413);
            let body: serde_json::Value = response.json().await.unwrap();
            assert_eq!(body["code"], "payload_too_large");
        }
    }
    proxy_server.wait_until_idle().await;
}
