//! Accepting connections until shutdown, up to a limit.
//!
//! ```text
//! listener ─▶ accept ─▶ slot ─▶ task per connection ─▶ [TLS] ─▶ hyper ─▶ router
//!                        │ none free: the oldest unauthenticated connection is closed first
//! shutdown ─▶ no request received yet, or a response that is not read: closed at once
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
use http::{HeaderValue, header::CONNECTION};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{
    connections::{ConnectionLimits, ConnectionPermit, Connections},
    lingering_close::{BodyProgress, LingeringClose},
    tcp_keepalive,
    tls::{TlsSettings, accept_tls},
    write_timeout::WriteTimeout,
};
use crate::{backoff::Backoff, shutdown::Shutdown};

/// Time a client has to send the head of a request.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after a first failed accept, such as one without a free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Longest delay between two attempts to accept.
const MAX_ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Time between two log lines about failed accepts.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The shutdown signal, an extension of every request. Extractors that wait for a body observe it.
#[derive(Debug, Clone)]
pub(super) struct ServerShutdown(pub(super) CancellationToken);

/// Serves until shutdown is requested; then each connection finishes its current request.
///
/// Connections without a request, or with an incomplete head of their first one, are closed at
/// once. Every connection is a task of `shutdown`, so draining waits for it.
///
/// # Errors
/// Fails if the listener's own address cannot be read.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: ConnectionLimits,
    shutdown: &Shutdown,
) -> io::Result<()> {
    serve_with(listener, None, app, limits, shutdown).await
}

/// Does the same with TLS.
///
/// # Errors
/// Fails if the listener's own address cannot be read.
pub async fn serve_tls(
    listener: TcpListener,
    tls: TlsSettings,
    app: Router,
    limits: ConnectionLimits,
    shutdown: &Shutdown,
) -> io::Result<()> {
    serve_with(listener, Some(tls), app, limits, shutdown).await
}

async fn serve_with(
    listener: TcpListener,
    tls: Option<TlsSettings>,
    app: Router,
    limits: ConnectionLimits,
    shutdown: &Shutdown,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, max_connections = limits.total(), "listening");
    let stop = shutdown.token();
    let connections = Connections::new(limits);
    let mut failures = AcceptFailures::default();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connections, &mut failures) => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        let (stream, peer, permit) = accepted;
        let connection = Connection {
            app: app.clone(),
            tls: tls.clone(),
            peer,
            permit,
            shutdown: ServerShutdown(stop.clone()),
            progress: RequestProgress::default(),
        };
        shutdown.spawn(connection.serve(stream));
    }
}

async fn accept(
    listener: &TcpListener,
    connections: &Connections,
    failures: &mut AcceptFailures,
) -> (TcpStream, SocketAddr, ConnectionPermit) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                failures.reset();
                return (stream, peer, connections.open().await);
            }
            // The client has gone before its connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Usually there is no free file descriptor, and this frees one.
                connections.evict_oldest();
                sleep(failures.record(&error)).await;
            }
        }
    }
}

/// The failed accepts since the last success, and the log lines about them.
struct AcceptFailures {
    backoff: Backoff,
    logged_at: Option<Instant>,
    /// Failures that were not logged.
    unlogged: u64,
}

impl Default for AcceptFailures {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(ACCEPT_RETRY_DELAY, MAX_ACCEPT_RETRY_DELAY),
            logged_at: None,
            unlogged: 0,
        }
    }
}

impl AcceptFailures {
    /// Logs the failure, unless one was logged recently, and returns the delay before the next
    /// attempt.
    fn record(&mut self, error: &io::Error) -> Duration {
        let logged = self.logged_at;
        if logged.is_none_or(|logged| logged.elapsed() >= ACCEPT_LOG_INTERVAL) {
            let unlogged = std::mem::take(&mut self.unlogged);
            tracing::warn!(%error, unlogged, "accept failed");
            self.logged_at = Some(Instant::now());
        } else {
            self.unlogged += 1;
        }
        self.backoff.next_delay()
    }

    /// Starts the delays again. The interval of log lines goes on.
    fn reset(&mut self) {
        self.backoff.reset();
    }
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
    /// `None` for plain HTTP.
    tls: Option<TlsSettings>,
    peer: SocketAddr,
    permit: ConnectionPermit,
    shutdown: ServerShutdown,
    progress: RequestProgress,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        set_socket_options(&stream);
        let Some(tls) = &self.tls else {
            return self.serve_stream(stream).await;
        };
        let stream = tokio::select! {
            stream = accept_tls(tls, stream) => stream,
            () = self.permit.evicted() => return,
            () = self.shutdown.0.cancelled() => return,
        };
        if let Some(stream) = stream {
            self.serve_stream(stream).await;
        }
    }

    async fn serve_stream<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stop, progress) = (self.shutdown.0.clone(), self.progress.clone());
        let permit = self.permit.clone();
        let stream = WriteTimeout::new(stream, stop.clone());
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
            () = permit.evicted() => return,
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
            let mut response = response.await?;
            progress.has_response.store(true, Relaxed);
            // hyper closes the connection if the rest of the body does not arrive at once. A client
            // must know, or it could send its next request on a connection that is being closed.
            let is_refusal =
                response.status().is_client_error() || response.status().is_server_error();
            if is_refusal && progress.body.is_incomplete() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok(response)
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
mod tests;
