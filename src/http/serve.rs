//! Accepting connections until the stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::linger::{Linger, Unread};
use super::lost_peer;
use crate::shutdown::Shutdown;

/// A client that has not sent its request's head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// After a failed accept (no file descriptor left, say): long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Every request has it: whoever waits for more of its body learns that the server stops.
#[derive(Debug, Clone)]
pub(super) struct Stop(pub CancellationToken);

/// Serves until `shutdown` is asked; connections then finish the request they are in. Those that are in none, or have not sent
/// the whole head of their first, are closed at once.
///
/// Every connection is a task of `shutdown`, so its drain waits for them. There are `max_connections` at most.
///
/// # Errors
/// Where the listener's own address cannot be read.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    max_connections: usize,
    shutdown: &Shutdown,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening");
    let stop = shutdown.token();
    let seats = Arc::new(Semaphore::new(max_connections));
    loop {
        // Who comes when all seats are taken waits in the kernel's queue.
        let accepted = tokio::select! {
            accepted = accept(&listener, &seats) => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        match accepted {
            Ok((stream, peer, seat)) => {
                let app = app.clone();
                let stop = stop.clone();
                shutdown.spawn(async move {
                    connection(stream, app, peer, seat, stop).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The right to be connected. What goes on after an upgrade keeps it as well.
#[derive(Clone)]
pub(super) struct Seat(#[expect(dead_code, reason = "it counts as long as it is held")] Arc<Taken>);

struct Taken(#[expect(dead_code, reason = "it counts as long as it is held")] OwnedSemaphorePermit);

impl Taken {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        metrics::gauge!("berth_connections_open").increment(1.0);
        Self(permit)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        metrics::gauge!("berth_connections_open").decrement(1.0);
    }
}

async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, Seat)> {
    let permit = seats.clone().acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, Seat(Arc::new(Taken::new(permit)))))
}

async fn connection(
    stream: TcpStream,
    app: Router,
    peer: SocketAddr,
    seat: Seat,
    stop: CancellationToken,
) {
    // Small answers and single events must not wait for a segment to fill.
    let _ = stream.set_nodelay(true);
    if let Err(error) = lost_peer::notice(&stream) {
        tracing::debug!(%error, "a lost peer will not be noticed");
    }
    let (asked, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (was_asked, was_answered) = (asked.clone(), answered.clone());
    let stopping = Stop(stop.clone());
    let unread = Unread::default();
    let (linger, left) = (Linger::new(stream, unread.clone()), unread.clone());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|body| unread.follow(body));
        asked.store(true, Relaxed);
        answered.store(false, Relaxed);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(stopping.clone());
        request.extensions_mut().insert(seat.clone());
        // A router is always ready, so it may be called without asking.
        let answering = app.clone().call(request);
        let answered = answered.clone();
        async move {
            let answer = answering.await;
            answered.store(true, Relaxed);
            answer
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(linger), service)
        .with_upgrades();
    tokio::pin!(serving);
    let ended = tokio::select! {
        // What has come is looked at first: a request that is whole is answered.
        biased;
        ended = &mut serving => ended,
        () = stop.cancelled() => {
            // hyper ends a connection between two requests by itself, but would wait for the rest of a first head.
            if !was_asked.load(Relaxed) {
                return;
            }
            // Once its answer has gone, hyper has read what such a client had sent of a body that nobody wanted, or it would have closed.
            if was_answered.load(Relaxed) {
                left.clear();
            }
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Instant;

    use axum::extract::Request;
    use axum::middleware::{Next, from_fn};
    use axum::routing::{get, post};
    use deserr::Deserr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

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
    async fn the_stop_lets_a_request_finish_and_ends_idle_connections() {
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
        shutdown.stop();
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
    async fn a_client_between_two_parts_of_its_body_is_not_reset_by_a_refusal() {
        let app = Router::new().fallback(|| async { "refused" });
        let (address, shutdown, _server) = start(app, 10).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
            .await
            .unwrap();
        // It has the whole answer, and its end, before it sends more.
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("refused"), "{answer}");
        for _ in 0..2 {
            client.write_all(b"more").await.unwrap();
            assert!(client.take_error().unwrap().is_none());
        }
        drop(client);
        shutdown.stop();
        assert!(shutdown.drain(DEADLINE).await);
    }

    #[derive(Deserr)]
    #[deserr(error = FieldErrors)]
    struct Nothing {}

    /// A route that tells when a request with a JSON body has come to it.
    fn wants_json(entered: Arc<Notify>) -> Router {
        let tell = from_fn(move |request: Request, next: Next| {
            entered.notify_one();
            next.run(request)
        });
        Router::new()
            .route("/", post(|Json(Nothing {})| async { "done" }))
            .layer(tell)
    }

    #[tokio::test]
    async fn the_stop_does_not_wait_for_what_half_sent_requests_lack() {
        let entered = Arc::new(Notify::new());
        let (address, shutdown, server) = start(wants_json(entered.clone()), 10).await;
        let mut no_head = TcpStream::connect(address).await.unwrap();
        no_head.write_all(b"GET /health HTT").await.unwrap();
        let mut no_body = TcpStream::connect(address).await.unwrap();
        no_body
            .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
            .await
            .unwrap();
        entered.notified().await;
        let asked = Instant::now();
        shutdown.stop();
        server.await.unwrap().unwrap();
        let mut text = String::new();
        // The head is thrown away unread, which may reset the connection.
        let _ = no_head.read_to_string(&mut text).await;
        assert_eq!(text, "");
        let answer = read_to_end(no_body).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("retry-after: "), "{answer}");
        assert!(answer.contains("\"code\":\"unavailable\""), "{answer}");
        assert!(shutdown.drain(DEADLINE).await);
        assert!(asked.elapsed() < DEADLINE / 2);
    }

    /// Asks for `/` on a connection that stays, and returns once the answer is there.
    async fn ask(stream: &mut TcpStream) {
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"done") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn connections_over_the_limit_wait_until_one_ends() {
        let app = Router::new().route("/", get(|| async { "done" }));
        let (address, ..) = start(app, 2).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        ask(&mut first).await;
        ask(&mut second).await;
        let mut third = TcpStream::connect(address).await.unwrap();
        let mut asking = pin!(ask(&mut third));
        for _ in 0..100 {
            // Long enough for the third to have been answered, had it been let in.
            tokio::select! {
                biased;
                () = &mut asking => panic!("a third connection was served"),
                () = ask(&mut first) => {}
            }
        }
        drop(second);
        tokio::time::timeout(DEADLINE, asking).await.unwrap();
    }
}
