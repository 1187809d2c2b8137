//! What passes through the proxy, seen from both ends: a client that speaks raw HTTP and an upstream that records.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use berth::control::activity::Activity;
use berth::control::proxy::{Agent, Proxy, ProxyError, SessionPath};
use berth::http::ApiError;
use berth::shutdown::Shutdown;
use futures::StreamExt;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);
const AGENT_TOKEN: &str = "the-agents-own-token";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One end of a connection, read piece by piece.
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
        let mut read = Vec::new();
        let reading = async {
            while !read.ends_with(end.as_bytes()) {
                match self.0.read_u8().await {
                    Ok(byte) => read.push(byte),
                    Err(_) => break,
                }
            }
        };
        if timeout(DEADLINE, reading).await.is_err() {
            panic!(
                "{end:?} does not come, only {:?}",
                String::from_utf8_lossy(&read)
            );
        }
        String::from_utf8(read).unwrap()
    }

    async fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    async fn at_end(&mut self) -> bool {
        let read = timeout(DEADLINE, self.0.read_u8()).await;
        read.expect("the connection ends").is_err()
    }
}

/// The agent's end: a listener whose connections the test serves by hand.
struct Upstream(TcpListener);

impl Upstream {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    async fn accept(&self) -> Wire {
        let accepted = timeout(DEADLINE, self.0.accept()).await;
        Wire(accepted.expect("a connection comes").unwrap().0)
    }
}

struct Front {
    addr: SocketAddr,
    activity: Arc<Activity>,
    _shutdown: Shutdown,
}

impl Front {
    async fn to(upstream: SocketAddr) -> Self {
        Self::patient(upstream, DEADLINE).await
    }

    async fn patient(upstream: SocketAddr, answer_timeout: Duration) -> Self {
        let shutdown = Shutdown::new();
        let activity = Arc::new(Activity::new());
        let agent = Agent {
            addr: upstream,
            token: SecretString::from(AGENT_TOKEN),
            activity: activity.clone(),
            ended: CancellationToken::new(),
        };
        let proxy = Proxy::new(&shutdown).answer_timeout(answer_timeout);
        let app = Router::new().fallback(move |request: Request| async move {
            let path = request.uri().path().to_owned();
            let path = SessionPath::of_request(&path).unwrap();
            match proxy.pass(&agent, path, request).await {
                Ok(response) => response,
                Err(error) => status(&error).into_response(),
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = shutdown.clone();
        tokio::spawn(async move {
            berth::http::serve(listener, app, 1000, &serving)
                .await
                .unwrap()
        });
        Self {
            addr,
            activity,
            _shutdown: shutdown,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/browsers/b{path}", self.addr)
    }

    /// Waits until nothing is under way any more.
    async fn rests(&self) {
        let rest = self.activity.idle_at_least(Duration::ZERO);
        timeout(DEADLINE, rest)
            .await
            .expect("nothing is under way any more");
    }
}

fn status(error: &ProxyError) -> ApiError {
    let message = error.to_string();
    match error {
        ProxyError::Unreachable(_) | ProxyError::Broken(_) => ApiError::bad_gateway(message),
        ProxyError::Timeout => ApiError::timeout(message),
        ProxyError::Method => ApiError::method_not_allowed(message),
        ProxyError::Body(_) | ProxyError::Malformed(_) => ApiError::bad_request(message),
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
async fn the_agent_sees_its_own_token_and_nothing_of_the_callers() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    let mut client = Wire::connect(front.addr).await;
    client
        .send(
            "DELETE /browsers/b/fs/x%20y?a=1&jwt=session.token&b=%2F HTTP/1.1\r\nHost: public.example\r\n\
             Authorization: Bearer callers-key\r\nCookie: c=1\r\nReferer: http://public.example/browsers/b/live?jwt=session.token\r\n\
             X-Project-Id: proj\r\nX-Kernel-Project-Id: proj\r\n\
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
    for gone in [
        "cookie",
        "referer",
        "x-project-id",
        "x-kernel-project-id",
        "x-hop",
        "keep-alive",
        "proxy-authorization",
        "upgrade",
        "te",
        "connection",
    ] {
        assert!(header(&head, gone).is_empty(), "{gone} in {head}");
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
async fn connections_to_the_agent_are_used_again() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    let mut client = Wire::connect(front.addr).await;
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
async fn an_event_arrives_while_the_answer_is_still_open() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    let mut client = Wire::connect(front.addr).await;
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
        assert_eq!(front.activity.idle_for(), None, "an open answer is use");
    }
    agent.send("0\r\n\r\n").await;
    assert_eq!(client.read_until("0\r\n\r\n").await, "0\r\n\r\n");
    front.rests().await;
}

#[tokio::test]
async fn bodies_of_any_size_pass_in_both_directions() {
    const SIZE: u64 = 256 << 20;
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    let url = front.url("/fs/echo");
    // Once with its length told and once in chunks of unknown number.
    for length_known in [true, false] {
        let piece = bytes::Bytes::from(vec![0xa5; 1 << 20]);
        let pieces = futures::stream::iter(
            (0..SIZE >> 20).map(move |_| Ok::<_, std::io::Error>(piece.clone())),
        );
        let mut request = reqwest::Client::new()
            .put(&url)
            .body(reqwest::Body::wrap_stream(pieces));
        if length_known {
            request = request.header("content-length", SIZE);
        }
        let echo = async {
            let mut agent = upstream.accept().await;
            let head = agent.read_head().await;
            assert_eq!(
                header(&head, "content-length").is_empty(),
                !length_known,
                "{head}"
            );
            // What comes is sent back as it is, chunks and all: the proxy must read and write at once.
            let framing = if length_known {
                format!("Content-Length: {SIZE}")
            } else {
                "Transfer-Encoding: chunked".to_owned()
            };
            agent
                .send(&format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"))
                .await;
            let (mut from, mut to) = agent.0.into_split();
            if length_known {
                tokio::io::copy(&mut from.take(SIZE), &mut to)
                    .await
                    .unwrap();
            } else {
                let _ = tokio::io::copy(&mut from, &mut to).await;
            }
        };
        let count = async {
            let mut answer = request.send().await.unwrap().bytes_stream();
            let mut got = 0;
            while let Some(bytes) = answer.next().await {
                let bytes = bytes.unwrap();
                assert!(bytes.iter().all(|&byte| byte == 0xa5));
                got += bytes.len() as u64;
            }
            got
        };
        let got = tokio::select! {
            got = count => got,
            () = async { echo.await; std::future::pending().await } => unreachable!("it waits for ever"),
        };
        assert_eq!(got, SIZE);
    }
}

#[tokio::test]
async fn nothing_is_held_for_a_side_that_does_not_read() {
    // What the kernel takes for four sockets, and two buffers of ours; far below what is offered.
    const BOUND: usize = 48 << 20;
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;

    async fn offer(wire: &mut TcpStream) -> usize {
        let piece = vec![7; 1 << 20];
        let mut taken = 0;
        while taken < 2 * BOUND {
            match timeout(Duration::from_secs(1), wire.write(&piece)).await {
                Ok(written) => taken += written.unwrap(),
                Err(_) => break,
            }
        }
        taken
    }

    let mut up = Wire::connect(front.addr).await;
    up.send(
        "PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n",
    )
    .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    assert!(offer(&mut up.0).await < BOUND);

    let mut down = Wire::connect(front.addr).await;
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
async fn trailers_pass_both_ways() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    let mut client = Wire::connect(front.addr).await;
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
async fn the_agent_decides_whether_a_body_is_wanted() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    const REQUEST: &str = "PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

    let mut wanted = Wire::connect(front.addr).await;
    wanted.send(REQUEST).await;
    let mut agent = upstream.accept().await;
    assert_eq!(header(&agent.read_head().await, "expect"), ["100-continue"]);
    agent.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(wanted.read_head().await.starts_with("HTTP/1.1 100 "));
    wanted.send("body").await;
    assert_eq!(agent.read_until("body").await, "body");
    agent.send(OK).await;
    assert!(wanted.read_head().await.starts_with("HTTP/1.1 200 "));
    drop(agent);

    let mut refused = Wire::connect(front.addr).await;
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
async fn an_agent_that_is_not_there_is_a_bad_gateway() {
    let upstream = Upstream::start().await;
    let nowhere = upstream.addr();
    drop(upstream);
    let front = Front::to(nowhere).await;
    let response = reqwest::get(front.url("/fs/read_file")).await.unwrap();
    assert_eq!(response.status(), 502);
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(body["code"], "bad_gateway");
    front.rests().await;
}

#[tokio::test]
async fn an_agent_that_breaks_off_before_its_answer_is_a_bad_gateway() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    for cut in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let asking = tokio::spawn(reqwest::get(front.url("/fs/read_file")));
        let mut agent = upstream.accept().await;
        agent.read_head().await;
        agent.send(cut).await;
        drop(agent);
        assert_eq!(asking.await.unwrap().unwrap().status(), 502);
    }
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_a_timeout() {
    let upstream = Upstream::start().await;
    let front = Front::patient(upstream.addr(), Duration::from_secs(1)).await;
    let asking = tokio::spawn(reqwest::get(front.url("/fs/read_file")));
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    assert_eq!(asking.await.unwrap().unwrap().status(), 504);
    assert!(agent.at_end().await, "the request is given up");
}

#[tokio::test]
async fn an_agent_that_dies_in_its_answer_leaves_it_broken_off() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    for part in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
    ] {
        let asking = tokio::spawn(reqwest::get(front.url("/fs/read_file")));
        let mut agent = upstream.accept().await;
        agent.read_head().await;
        agent.send(part).await;
        let answer = asking.await.unwrap().unwrap();
        drop(agent);
        assert!(answer.bytes().await.is_err(), "{part}");
        front.rests().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_request_along() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;

    let mut waiting = Wire::connect(front.addr).await;
    waiting
        .send("GET /browsers/b/fs/read_file HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    drop(waiting);
    assert!(agent.at_end().await);
    front.rests().await;

    let mut reading = Wire::connect(front.addr).await;
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
    assert!(agent.at_end().await);
    front.rests().await;

    let mut writing = Wire::connect(front.addr).await;
    writing
        .send("PUT /browsers/b/fs/write_file HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    let mut agent = upstream.accept().await;
    agent.read_head().await;
    agent.read_until("half").await;
    drop(writing);
    assert!(
        agent.at_end().await,
        "half a body does not pass for a whole one"
    );
    front.rests().await;
}

#[tokio::test]
async fn methods_pass_but_for_those_that_are_not_for_an_agent() {
    let upstream = Upstream::start().await;
    let front = Front::to(upstream.addr()).await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let asking = reqwest::Client::new()
            .request(method.parse().unwrap(), front.url("/fs/x"))
            .send();
        let asking = tokio::spawn(asking);
        let mut agent = upstream.accept().await;
        assert!(
            agent
                .read_head()
                .await
                .starts_with(&format!("{method} /fs/x "))
        );
        agent.send(OK).await;
        assert_eq!(asking.await.unwrap().unwrap().status(), 200);
    }
    let trace = reqwest::Client::new().request("TRACE".parse().unwrap(), front.url("/fs/x"));
    assert_eq!(trace.send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    const SIZE: usize = 64 << 20;
    let shutdown = Shutdown::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = listener.local_addr().unwrap();
    let app = Router::new().fallback(|| async { ApiError::payload_too_large("too large") });
    tokio::spawn(async move {
        berth::http::serve(listener, app, 1000, &shutdown)
            .await
            .unwrap()
    });
    let front = Front::to(refusing).await;

    for url in [format!("http://{refusing}/"), front.url("/fs/write_file")] {
        for round in 0..10 {
            let request = reqwest::Client::new().put(&url).body(vec![7; SIZE]);
            let answer = request
                .send()
                .await
                .unwrap_or_else(|error| panic!("{round} {url}: {error:?}"));
            assert_eq!(answer.status(), 413);
            let body: serde_json::Value = answer.json().await.unwrap();
            assert_eq!(body["code"], "payload_too_large");
        }
    }
    front.rests().await;
}
