//! Tests of accepting and serving connections.

use axum::{
    extract::Request,
    middleware::{Next, from_fn},
    routing::{get, post},
};
use deserr::Deserr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

use super::*;
use crate::http::{FieldErrors, Json, connections::keep_authenticated};

const DEADLINE: Duration = Duration::from_secs(10);

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let reading = stream.read_to_string(&mut text);
    tokio::time::timeout(DEADLINE, reading)
        .await
        .unwrap()
        .unwrap();
    text
}

async fn start(
    app: Router,
    limits: ConnectionLimits,
) -> (SocketAddr, Shutdown, JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let server = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { serve(listener, app, limits, &shutdown).await }
    });
    (address, shutdown, server)
}

#[tokio::test]
async fn shutdown_finishes_requests_and_closes_idle_connections() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (entering, leaving) = (entered.clone(), leave.clone());
    let app = Router::new().route(
        "/",
        get(|| async move {
            entering.notify_one();
            leaving.notified().await;
            "finished"
        }),
    );
    let (address, shutdown, server) = start(app, ConnectionLimits::new(10)).await;

    let idle = TcpStream::connect(address).await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    entered.notified().await;
    shutdown.request();
    server.await.unwrap().unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is closed"
    );
    assert_eq!(read_to_end(idle).await, "");
    leave.notify_one();
    assert!(read_to_end(busy).await.ends_with("finished"));
    assert!(shutdown.drain(DEADLINE).await);
}

#[tokio::test]
async fn client_in_the_middle_of_its_body_is_not_reset_by_an_early_response() {
    let app = Router::new().fallback(|| async { "refused" });
    let (address, shutdown, _server) = start(app, ConnectionLimits::new(10)).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
        .await
        .unwrap();
    // The client has the complete response, and its end, before it sends more.
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("refused"), "{response}");
    for _ in 0..2 {
        client.write_all(b"more").await.unwrap();
        assert!(client.take_error().unwrap().is_none());
    }
    drop(client);
    shutdown.request();
    assert!(shutdown.drain(DEADLINE).await);
}

#[derive(Deserr)]
#[deserr(error = FieldErrors)]
struct EmptyBody {}

/// Returns a router with a JSON route that notifies `entered` when a request's head arrives.
fn json_route(entered: Arc<Notify>) -> Router {
    let notify = from_fn(move |request: Request, next: Next| {
        entered.notify_one();
        next.run(request)
    });
    Router::new()
        .route("/", post(|Json(EmptyBody {})| async { "done" }))
        .layer(notify)
}

#[tokio::test]
async fn refusal_before_the_end_of_the_body_announces_the_close() {
    let app = json_route(Arc::new(Notify::new()));
    let (address, ..) = start(app, ConnectionLimits::new(10)).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
        .await
        .unwrap();
    let response = read_to_end(client).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    assert!(response.contains("connection: close\r\n"), "{response}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_incomplete_requests() {
    let entered = Arc::new(Notify::new());
    let (address, shutdown, server) =
        start(json_route(entered.clone()), ConnectionLimits::new(10)).await;
    let mut no_head = TcpStream::connect(address).await.unwrap();
    no_head.write_all(b"GET /health HTT").await.unwrap();
    let mut no_body = TcpStream::connect(address).await.unwrap();
    no_body
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
        .await
        .unwrap();
    entered.notified().await;
    let requested_at = Instant::now();
    shutdown.request();
    server.await.unwrap().unwrap();
    let mut text = String::new();
    // The incomplete head is discarded, which may reset the connection.
    let _ = no_head.read_to_string(&mut text).await;
    assert_eq!(text, "");
    let response = read_to_end(no_body).await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(response.contains("retry-after: "), "{response}");
    assert!(response.contains("\"code\":\"unavailable\""), "{response}");
    assert!(shutdown.drain(DEADLINE).await);
    assert!(requested_at.elapsed() < DEADLINE / 2);
}

/// Requests `/` on a keep-alive connection and waits for the response.
async fn request(stream: &mut TcpStream) {
    let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"done") {
        assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn unauthenticated_connection_is_closed_for_a_new_one() {
    let app = Router::new().route("/", get(|| async { "done" }));
    let (address, ..) = start(app, ConnectionLimits::new(2)).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    request(&mut first).await;
    let mut second = TcpStream::connect(address).await.unwrap();
    timeout(DEADLINE, request(&mut second)).await.unwrap();
    assert_eq!(read_to_end(first).await, "");
    request(&mut second).await;
}

#[tokio::test]
async fn authenticated_connection_is_kept_and_another_is_refused() {
    let app = Router::new()
        .route("/", get(|| async { "done" }))
        .route_layer(from_fn(keep_authenticated));
    let (address, ..) = start(app, ConnectionLimits::new(2)).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    request(&mut first).await;
    // Each takes the one slot for connections that have not authenticated.
    for _ in 0..3 {
        let mut other = TcpStream::connect(address).await.unwrap();
        let head = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        other.write_all(head).await.unwrap();
        let response = read_to_end(other).await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        assert!(response.contains("retry-after: "), "{response}");
        assert!(
            response.contains("connection limit reached (1)"),
            "{response}"
        );
        request(&mut first).await;
    }
    drop(first);
    let mut next = TcpStream::connect(address).await.unwrap();
    timeout(DEADLINE, request(&mut next)).await.unwrap();
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_client_that_does_not_read() {
    const LONGER_THAN_ALL_BUFFERS: usize = 64 << 20;
    let response = vec![0; LONGER_THAN_ALL_BUFFERS];
    let app = Router::new().route("/", get(async || response));
    let (address, shutdown, server) = start(app, ConnectionLimits::new(10)).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    client.write_all(head).await.unwrap();
    // The response arrives, and nothing of it is read.
    client.readable().await.unwrap();
    shutdown.request();
    server.await.unwrap().unwrap();
    assert!(shutdown.drain(DEADLINE).await);
}

#[tokio::test]
async fn failed_accepts_are_logged_once_per_interval() {
    let mut failures = AcceptFailures::default();
    let error = io::Error::from_raw_os_error(nix::libc::EMFILE);
    let delays: Vec<u128> = (0..7)
        .map(|_| failures.record(&error).as_millis())
        .collect();
    assert_eq!(delays, [100, 200, 400, 800, 1600, 2000, 2000]);
    let first_logged = failures.logged_at;
    assert_eq!(failures.unlogged, 6);
    failures.reset();
    assert_eq!(failures.record(&error), ACCEPT_RETRY_DELAY);
    assert_eq!((failures.logged_at, failures.unlogged), (first_logged, 7));
    failures.logged_at = first_logged.and_then(|at| at.checked_sub(ACCEPT_LOG_INTERVAL));
    failures.record(&error);
    assert_eq!(failures.unlogged, 0);
}
