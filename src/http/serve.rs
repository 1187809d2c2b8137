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
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        // A router is always ready, so it may be called without asking.
        app.clone().call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
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
