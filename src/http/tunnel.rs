//! Tunnels: connection upgrades relayed to another server, byte for byte.
//!
//! The upstream's response to the upgrade, a 101 or a refusal, is passed to the client unchanged.
//! After a 101, bytes are copied both ways as they arrive: no frame is decoded, no payload touched.
//! For a WebSocket, frame headers are tracked in the direction of the client, so that a connection
//! which this server ends is closed with a Close frame that states the reason.
//!
//! ```text
//!             ┌── copy ───────────────────────▶ (half-close is passed on)
//! client ─────┤                                                  upstream
//!             └◀─ ToClient::copy_from, tracking frames ─────────
//!
//! relay ends when ─┬─ the client closes ──────▶ both connections are dropped
//!                  ├─ the upstream closes ────▶ Close frame of `on_upstream_closed`
//!                  └─ `close_on` or shutdown ─▶ current frame is finished, then its Close frame
//! ```
//!
//! The relay is a task of the server's `Shutdown`. It owns both connections, the client's
//! connection permit and the value given to [`Tunnel::hold`].

use std::{
    future::{Future, pending},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{self, HeaderName},
};
use http_body_util::Empty;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{sleep, timeout},
};

use super::{
    CloseCode, CloseReason, connections::ConnectionPermit, forward, is_websocket_upgrade,
    websocket_frames::FrameTracker,
};
use crate::shutdown::Shutdown;

mod upstream;

pub use upstream::TunnelTls;
use upstream::send_upgrade;

/// Buffer size per direction, in bytes. A chunk is written before the next is read, so a slow
/// reader slows its writer down and needs no further memory.
const BUFFER_BYTES: usize = 32 * 1024;
/// Time the upstream has to respond to the upgrade, unless the tunnel sets another.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the current frame to finish, and then for the client to acknowledge a Close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time the upstream may send nothing after the client has closed its sending side.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason a tunnel could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the request is not an upgrade")]
    NotAnUpgrade,
    #[error("invalid upstream URL or header")]
    Malformed(#[source] http::Error),
    #[error("cannot connect to the upstream")]
    Connect(#[source] io::Error),
    #[error("the upstream closed the connection before its response")]
    Broken(#[source] hyper::Error),
    #[error("the upstream did not respond in time")]
    Timeout,
}

/// A future that ends the tunnel when it resolves.
type CloseSignal = Pin<Box<dyn Future<Output = CloseReason> + Send>>;

/// The configuration of a tunnel.
pub struct Tunnel {
    addr: SocketAddr,
    path_and_query: String,
    tls: Option<TunnelTls>,
    headers: HeaderMap,
    response_timeout: Duration,
    close_on: CloseSignal,
    on_upstream_closed: Box<dyn FnOnce() -> CloseReason + Send>,
    hold: Box<dyn Send>,
}

impl Tunnel {
    /// Configures a tunnel to a path of the server at `addr`.
    ///
    /// Forwards only the headers of the WebSocket handshake from the client's request.
    pub fn to(addr: SocketAddr, path_and_query: impl Into<String>) -> Self {
        Self {
            addr,
            path_and_query: path_and_query.into(),
            tls: None,
            headers: HeaderMap::new(),
            response_timeout: RESPONSE_TIMEOUT,
            close_on: Box::pin(pending()),
            on_upstream_closed: Box::new(|| {
                CloseReason::new(CloseCode::Failed, "upstream connection lost")
            }),
            hold: Box::new(()),
        }
    }

    /// Connects to the server with TLS if there are settings.
    pub fn tls(mut self, tls: Option<TunnelTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Adds headers, which replace the client's of the same name.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the time the upstream has to respond to the upgrade.
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// Closes the tunnel when `signal` resolves, with a Close frame for the client. Shutdown closes
    /// it in any case.
    pub fn close_on(mut self, signal: impl Future<Output = CloseReason> + Send + 'static) -> Self {
        self.close_on = Box::pin(signal);
        self
    }

    /// Sets the Close frame for the client when the upstream closes without one.
    pub fn on_upstream_closed(
        mut self,
        reason: impl FnOnce() -> CloseReason + Send + 'static,
    ) -> Self {
        self.on_upstream_closed = Box::new(reason);
        self
    }

    /// Keeps a value until the tunnel has ended.
    pub fn hold(mut self, guard: impl Send + 'static) -> Self {
        self.hold = Box::new(guard);
        self
    }

    /// Forwards the upgrade and returns the upstream's response; after a 101, a task of `shutdown`
    /// relays the bytes.
    ///
    /// # Errors
    /// Fails if the request is not an upgrade or the upstream does not respond. The request can
    /// then be sent to another upstream.
    pub async fn open<B>(
        self,
        request: &mut Request<B>,
        shutdown: &Shutdown,
    ) -> Result<Response, TunnelError> {
        let upgrade = self.upgrade_request(request)?;
        let mut response =
            send_upgrade(self.addr, self.tls, upgrade, self.response_timeout).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            forward::strip_hop_by_hop(response.headers_mut());
            return Ok(response.map(Body::new));
        }
        let frames = is_websocket_upgrade(request).then(FrameTracker::default);
        let client = request
            .extensions_mut()
            .remove::<OnUpgrade>()
            .ok_or(TunnelError::NotAnUpgrade)?;
        let upstream = hyper::upgrade::on(&mut response);
        let permit = request.extensions().get::<ConnectionPermit>().cloned();
        let close_on = close_at_shutdown(self.close_on, shutdown.clone());
        let (on_upstream_closed, hold) = (self.on_upstream_closed, self.hold);
        shutdown.spawn(async move {
            let _held = (hold, permit);
            // If one side fails to switch protocols, dropping the other closes it.
            let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
                return;
            };
            relay(client, upstream, frames, close_on, on_upstream_closed).await;
        });
        Ok(response.map(|_| Body::empty()))
    }

    fn upgrade_request<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Request<Empty<Bytes>>, TunnelError> {
        let protocol = request
            .headers()
            .get(header::UPGRADE)
            .cloned()
            .ok_or(TunnelError::NotAnUpgrade)?;
        let mut upgrade = Request::builder()
            .method(request.method().clone())
            .uri(&self.path_and_query)
            .header(header::HOST, self.addr.to_string())
            .body(Empty::new())
            .map_err(TunnelError::Malformed)?;
        let headers = upgrade.headers_mut();
        for name in &HANDSHAKE_HEADERS {
            for value in request.headers().get_all(name) {
                headers.append(name, value.clone());
            }
        }
        headers.extend(self.headers.clone());
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
        Ok(upgrade)
    }
}

const HANDSHAKE_HEADERS: [HeaderName; 4] = [
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
];

async fn close_at_shutdown(close_on: CloseSignal, shutdown: Shutdown) -> CloseReason {
    tokio::select! {
        // The shutdown also ends what `close_on` waits for; the client gets the cause.
        biased;
        () = shutdown.requested() => {
            CloseReason::new(CloseCode::Stopping, "the server is shutting down")
        }
        reason = close_on => reason,
    }
}

/// The metrics of open tunnels and of the bytes they relay.
struct TunnelMetrics {
    to_client: metrics::Counter,
    to_upstream: metrics::Counter,
    messages: metrics::Counter,
}

impl TunnelMetrics {
    fn open() -> Self {
        metrics::gauge!("berth_tunnels_open").increment(1.0);
        Self {
            to_client: metrics::counter!("berth_tunnel_bytes_total", "to" => "client"),
            to_upstream: metrics::counter!("berth_tunnel_bytes_total", "to" => "upstream"),
            messages: metrics::counter!("berth_tunnel_messages_total", "to" => "client"),
        }
    }
}

impl Drop for TunnelMetrics {
    fn drop(&mut self) {
        metrics::gauge!("berth_tunnels_open").decrement(1.0);
    }
}

/// The reason a relay has ended.
enum RelayEnd {
    ClientClosed,
    UpstreamClosed,
    /// `close_on` resolved. A stream of frames is between two frames.
    CloseSignal(CloseReason),
}

/// The client's sending direction, with the state needed to end it properly.
struct ToClient<W> {
    writer: W,
    /// `None` if the protocol is not WebSocket.
    frames: Option<FrameTracker>,
    metrics: TunnelMetrics,
}

/// Relays until one side closes or `close_on` resolves, then closes the client's connection.
async fn relay(
    client: Upgraded,
    upstream: Upgraded,
    frames: Option<FrameTracker>,
    close_on: impl Future<Output = CloseReason> + Send,
    on_upstream_closed: Box<dyn FnOnce() -> CloseReason + Send>,
) {
    let (mut client_read, client_write) = tokio::io::split(TokioIo::new(client));
    let mut to_client = ToClient {
        writer: client_write,
        frames,
        metrics: TunnelMetrics::open(),
    };
    // Drops the upstream's connection before the client's is closed.
    let end = copy_both_ways(&mut client_read, &mut to_client, upstream, close_on).await;
    let reason = match end {
        RelayEnd::ClientClosed => return,
        RelayEnd::UpstreamClosed => on_upstream_closed(),
        RelayEnd::CloseSignal(reason) => reason,
    };
    let _ = timeout(CLOSE_TIMEOUT, to_client.close(&reason, &mut client_read)).await;
}

async fn copy_both_ways(
    client_read: &mut (impl AsyncRead + Unpin),
    to_client: &mut ToClient<impl AsyncWrite + Unpin>,
    upstream: Upgraded,
    close_on: impl Future<Output = CloseReason> + Send,
) -> RelayEnd {
    let (mut upstream_read, mut upstream_write) = tokio::io::split(TokioIo::new(upstream));
    let to_upstream = to_client.metrics.to_upstream.clone();
    let relayed_bytes = AtomicU64::new(0);
    let mut outbound = pin!(copy(client_read, &mut upstream_write, &to_upstream));
    let mut inbound = pin!(to_client.copy_from(&mut upstream_read, close_on, &relayed_bytes));
    let mut is_client_sending = true;
    loop {
        let bytes_before = relayed_bytes.load(Relaxed);
        tokio::select! {
            end = &mut inbound => return end,
            result = &mut outbound, if is_client_sending => match result {
                // The client may still read; the upstream has been sent the end of the stream.
                Ok(()) => is_client_sending = false,
                Err(CopyError::Read) => return RelayEnd::ClientClosed,
                // What the upstream sent before it closed is still delivered to the client.
                Err(CopyError::Write) => is_client_sending = false,
            },
            () = sleep(HALF_CLOSED_TIMEOUT), if !is_client_sending => {
                if relayed_bytes.load(Relaxed) == bytes_before {
                    return RelayEnd::ClientClosed;
                }
            }
        }
    }
}

enum CopyError {
    Read,
    Write,
}

/// Copies until the end of `from`, then closes the write side of `to`.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &metrics::Counter,
) -> Result<(), CopyError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await.map_err(|_| CopyError::Read)?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| CopyError::Write);
        }
        to.write_all(&buffer[..read])
            .await
            .map_err(|_| CopyError::Write)?;
        bytes.increment(read as u64);
    }
}

impl<W: AsyncWrite + Unpin> ToClient<W> {
    /// Copies and tracks frames until one side closes or `close_on` resolves.
    async fn copy_from(
        &mut self,
        upstream: &mut (impl AsyncRead + Unpin),
        close_on: impl Future<Output = CloseReason> + Send,
        relayed_bytes: &AtomicU64,
    ) -> RelayEnd {
        let mut close_on = pin!(close_on);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = tokio::select! {
                // The signal first: its cause may also be why the upstream closes.
                biased;
                reason = &mut close_on => {
                    return self.finish_and_close(upstream, &mut buffer, reason).await;
                }
                read = upstream.read(&mut buffer) => read,
            };
            let read = match read {
                Ok(0) | Err(_) => return RelayEnd::UpstreamClosed,
                Ok(read) => read,
            };
            let chunk = &buffer[..read];
            self.track(chunk);
            let mut write = pin!(self.writer.write_all(chunk));
            tokio::select! {
                written = &mut write => {
                    if written.is_err() {
                        return RelayEnd::ClientClosed;
                    }
                }
                reason = &mut close_on => {
                    // A client that does not read must not delay the shutdown.
                    if !matches!(timeout(CLOSE_TIMEOUT, write).await, Ok(Ok(()))) {
                        return RelayEnd::ClientClosed;
                    }
                    return self.finish_and_close(upstream, &mut buffer, reason).await;
                }
            }
            self.metrics.to_client.increment(read as u64);
            relayed_bytes.fetch_add(read as u64, Relaxed);
        }
    }

    fn track(&mut self, chunk: &[u8]) {
        if let Some(frames) = &mut self.frames {
            let before = frames.messages();
            frames.advance_all(chunk);
            self.metrics.messages.increment(frames.messages() - before);
        }
    }

    /// Finishes the current frame, for [`CLOSE_TIMEOUT`] at most, so that a Close frame may follow.
    async fn finish_and_close(
        &mut self,
        upstream: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
        reason: CloseReason,
    ) -> RelayEnd {
        match timeout(CLOSE_TIMEOUT, self.finish_frame(upstream, buffer)).await {
            Ok(Ok(())) => RelayEnd::CloseSignal(reason),
            Ok(Err(end)) => end,
            Err(_) => RelayEnd::ClientClosed,
        }
    }

    /// Copies the rest of the current frame, and no byte of the next.
    async fn finish_frame(
        &mut self,
        upstream: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
    ) -> Result<(), RelayEnd> {
        let Some(frames) = &mut self.frames else {
            return Ok(());
        };
        while !frames.is_at_boundary() {
            let read = upstream
                .read(buffer)
                .await
                .map_err(|_| RelayEnd::UpstreamClosed)?;
            if read == 0 {
                return Err(RelayEnd::UpstreamClosed);
            }
            let consumed = frames.advance(&buffer[..read]);
            self.writer
                .write_all(&buffer[..consumed])
                .await
                .map_err(|_| RelayEnd::ClientClosed)?;
        }
        Ok(())
    }

    /// Sends a Close frame if the stream allows one, closes the connection and waits for the client
    /// to do the same.
    async fn close(
        &mut self,
        reason: &CloseReason,
        client_read: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<u64> {
        let accepts_close = self
            .frames
            .as_ref()
            .is_some_and(|frames| frames.is_at_boundary() && !frames.is_closed());
        if accepts_close {
            self.writer.write_all(&reason.to_frame()).await?;
        }
        self.writer.shutdown().await?;
        // Closing a socket with unread bytes resets the connection, which could discard the Close
        // frame on its way.
        tokio::io::copy(client_read, &mut tokio::io::sink()).await
    }
}
