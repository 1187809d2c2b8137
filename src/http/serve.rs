//! Accepting connections until the stop.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tower::Service;

use super::linger::Linger;
use super::lost_peer;
use crate::shutdown::Shutdown;

/// A client that has not sent its request's head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// After a failed accept (no file descriptor left, say): long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is asked; connections then finish the request they are in.
///
/// Every connection is a task of `shutdown`, so its drain waits for them.
///
/// # Errors
/// Where the listener's own address cannot be read.
pub async fn serve(listener: TcpListener, app: Router, shutdown: &Shutdown) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening");
    let stop = shutdown.token();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        match accepted {
            Ok((stream, peer)) => {
                let app = app.clone();
                let stop = stop.clone();
                shutdown.spawn(async move {
                    connection(stream, app, peer, stop).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    app: Router,
    peer: std::net::SocketAddr,
    stop: tokio_util::sync::CancellationToken,
) {
    // Small answers and single events must not wait for a segment to fill.
    let _ = stream.set_nodelay(true);
    if let Err(error) = lost_peer::notice(&stream) {
        tracing::debug!(%error, "a lost peer will not be noticed");
    }
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        // A router is always ready, so it may be called without asking.
        app.clone().call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(Linger::new(stream)), service)
        .with_upgrades();
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = stop.cancelled() => {
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
    use std::sync::Arc;
    use std::time::Duration;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let server = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { serve(listener, app, &shutdown).await }
        });

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
}
