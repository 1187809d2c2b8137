//! Accepting connections until shutdown, up to a limit.
//!
//! ```text
//! listener ─▶ permit free? ─▶ accept ─▶ task per connection ─▶ hyper ─▶ router
//!                │ no: the client waits in the kernel's accept queue
//! shutdown ─▶ no request received yet: closed at once
//!          └▶ request in progress: finished, then closed
//! ```

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, extract::ConnectInfo, response::Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{
    lingering_close::{BodyProgress, LingeringClose},
    tcp_keepalive,
};
use crate::shutdown::Shutdown;

/// Time a client has to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after a failed accept, such as one without a free file descriptor, to avoid a busy loop.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The shutdown signal, an extension of every request. Extractors that wait for a body observe it.
#[derive(Debug, Clone)]
pub(super) struct ServerShutdown(pub(super) CancellationToken);

/// Serves until shutdown is requested; then each connection finishes its current request.
///
/// Connections without a request, or with an incomplete head of their first one, are closed at
/// once. Every connection is a task of `shutdown`, so draining waits for it. At most
/// `max_connections` are served at a time.
///
/// # Errors
/// Fails if the listener's own address cannot be read.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    max_connections: usize,
    shutdown: &Shutdown,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening");
    let stop = shutdown.token();
    let permits = Arc::new(Semaphore::new(max_connections));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                let connection = Connection {
                    app: app.clone(),
                    peer,
                    permit,
                    shutdown: ServerShutdown(stop.clone()),
                    progress: RequestProgress::default(),
                };
                shutdown.spawn(connection.serve(stream));
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// The right to be connected, shared by a connection and what it is upgraded to.
#[derive(Clone)]
pub(super) struct ConnectionPermit(
    #[expect(dead_code, reason = "held, never read")] Arc<ConnectionCount>,
);

/// A connection's share of the limit and of the gauge of open connections.
struct ConnectionCount(#[expect(dead_code, reason = "held, never read")] OwnedSemaphorePermit);

impl ConnectionCount {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        metrics::gauge!("berth_connections_open").increment(1.0);
        Self(permit)
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        metrics::gauge!("berth_connections_open").decrement(1.0);
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, ConnectionPermit)> {
    let permit = permits.clone().acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    let permit = ConnectionPermit(Arc::new(ConnectionCount::new(permit)));
    Ok((stream, peer, permit))
}

/// The state of a connection's requests that decides how shutdown ends the connection.
#[derive(Clone, Default)]
struct RequestProgress {
    /// Whether the head of a request has been received.
    has_request: Arc<AtomicBool>,
    /// Whether the handler of the last request has returned its response.
    has_response: Arc<AtomicBool>,
    body: BodyProgress,
}

struct Connection {
    app: Router,
    peer: SocketAddr,
    permit: ConnectionPermit,
    shutdown: ServerShutdown,
    progress: RequestProgress,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        set_socket_options(&stream);
        let (stop, progress) = (self.shutdown.0.clone(), self.progress.clone());
        let stream = LingeringClose::new(stream, progress.body.clone());
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| self.handle(request)),
            )
            .with_upgrades();
        tokio::pin!(serving);
        let result = tokio::select! {
            // Received bytes first: a complete request gets its response even during shutdown.
            biased;
            result = &mut serving => result,
            () = stop.cancelled() => {
                // hyper closes a connection between two requests, but would wait for the rest of
                // an incomplete first head.
                if !progress.has_request.load(Relaxed) {
                    return;
                }
                // The connection is still open although the response was sent, so hyper has read
                // the body that the handler did not: nothing is left to linger for.
                if progress.has_response.load(Relaxed) {
                    progress.body.mark_complete();
                }
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "connection ended");
        }
    }

    fn handle(
        &self,
        request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let progress = self.progress.clone();
        progress.has_request.store(true, Relaxed);
        progress.has_response.store(false, Relaxed);
        let mut request = request.map(|body| progress.body.track(body));
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(self.peer));
        extensions.insert(self.shutdown.clone());
        extensions.insert(self.permit.clone());
        // A router is always ready, so it may be called without polling for readiness.
        let response = self.app.clone().call(request);
        async move {
            let response = response.await;
            progress.has_response.store(true, Relaxed);
            response
        }
    }
}

fn set_socket_options(stream: &TcpStream) {
    // Small responses and single events must not wait for a full segment.
    let _ = stream.set_nodelay(true);
    if let Err(error) = tcp_keepalive::enable(stream) {
        tracing::debug!(%error, "cannot enable TCP keep-alive");
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Instant};

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
    };

    use super::*;
    use crate::http::{FieldErrors, Json};

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
        max_connections: usize,
    ) -> (SocketAddr, Shutdown, JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let server = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { serve(listener, app, max_connections, &shutdown).await }
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
        let (address, shutdown, server) = start(app, 10).await;

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
        let (address, shutdown, _server) = start(app, 10).await;
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
    async fn shutdown_does_not_wait_for_incomplete_requests() {
        let entered = Arc::new(Notify::new());
        let (address, shutdown, server) = start(json_route(entered.clone()), 10).await;
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
    async fn connection_over_the_limit_waits_until_another_ends() {
        let app = Router::new().route("/", get(|| async { "done" }));
        let (address, ..) = start(app, 2).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        request(&mut first).await;
        request(&mut second).await;
        let mut third = TcpStream::connect(address).await.unwrap();
        let mut waiting = pin!(request(&mut third));
        for _ in 0..100 {
            // A hundred round trips: time for the third connection to be served if accepted.
            tokio::select! {
                biased;
                () = &mut waiting => panic!("a third connection was served"),
                () = request(&mut first) => {}
            }
        }
        drop(second);
        tokio::time::timeout(DEADLINE, waiting).await.unwrap();
    }
}
