//! A connection upgrade carried to another server, byte for byte.
//!
//! The upstream's answer to the upgrade, be it its 101 or its refusal, is replayed to the client as it is. After that, bytes are copied
//! both ways as they come: no frame is decoded, no payload touched. Of a WebSocket the frame headers are followed in the direction of
//! the client, so that a connection which ends for a reason of ours ends with a Close frame that says so.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::serve::Seat;
pub use super::websocket_frames::Close;
use super::websocket_frames::Frames;
use super::{forward, lost_peer};
use crate::shutdown::Shutdown;

/// Bytes held of each direction: what is read is written before more is read, so a slow reader slows its writer and costs no more.
const BUFFER: usize = 32 * 1024;
/// How long the upstream may take to accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the upstream may take to answer the upgrade.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take to read a Close frame and hang up, and a frame under way may take to end first.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// How long the upstream may stay silent once the client has sent its last byte.
const HALF_CLOSED_LIMIT: Duration = Duration::from_secs(30);

/// Why no tunnel came about.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the request does not ask for an upgrade")]
    NotAnUpgrade,
    #[error("the address does not make a request")]
    Malformed(#[source] http::Error),
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the connection broke before an answer came")]
    Broken(#[source] hyper::Error),
    #[error("no answer in time")]
    Timeout,
}

type Ending = Pin<Box<dyn Future<Output = Close> + Send>>;

/// A tunnel about to be opened.
pub struct Tunnel {
    addr: SocketAddr,
    path_and_query: String,
    headers: HeaderMap,
    answer_timeout: Duration,
    until: Ending,
    upstream_gone: Box<dyn FnOnce() -> Close + Send>,
    hold: Box<dyn Send>,
}

impl Tunnel {
    /// A tunnel to a path of the server at `addr`. Of the client's headers only those of the WebSocket handshake go along.
    pub fn to(addr: SocketAddr, path_and_query: impl Into<String>) -> Self {
        Self {
            addr,
            path_and_query: path_and_query.into(),
            headers: HeaderMap::new(),
            answer_timeout: ANSWER_TIMEOUT,
            until: Box::pin(pending()),
            upstream_gone: Box::new(|| Close::failed("the other side is gone")),
            hold: Box::new(()),
        }
    }

    /// Sends these headers as well, in place of the client's of the same name.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// How long the upstream may take to answer the upgrade.
    pub fn answer_timeout(mut self, limit: Duration) -> Self {
        self.answer_timeout = limit;
        self
    }

    /// Ends the tunnel, with a Close frame for the client, as soon as `end` is done. (It ends with the server in any case.)
    pub fn until(mut self, end: impl Future<Output = Close> + Send + 'static) -> Self {
        self.until = Box::pin(end);
        self
    }

    /// What to tell the client when the upstream is gone without having said why.
    pub fn upstream_gone(mut self, close: impl FnOnce() -> Close + Send + 'static) -> Self {
        self.upstream_gone = Box::new(close);
        self
    }

    /// Keeps a value until the tunnel has ended.
    pub fn hold(mut self, guard: impl Send + 'static) -> Self {
        self.hold = Box::new(guard);
        self
    }

    /// Asks the upstream for the upgrade and answers with what it says; after a 101, `shutdown` owns the copying.
    ///
    /// After an error the request can be carried to another upstream.
    pub async fn open<B>(
        self,
        request: &mut Request<B>,
        shutdown: &Shutdown,
    ) -> Result<Response, TunnelError> {
        let protocol = request
            .headers()
            .get(header::UPGRADE)
            .cloned()
            .ok_or(TunnelError::NotAnUpgrade)?;
        let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
        let upgrade = self.upgrade_request(request, protocol)?;

        let stream = connect(self.addr).await?;
        let answer = timeout(self.answer_timeout, ask(stream, upgrade)).await;
        let mut answer = answer
            .map_err(|_| TunnelError::Timeout)?
            .map_err(TunnelError::Broken)?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            forward::strip_hop_by_hop(answer.headers_mut());
            return Ok(answer.map(Body::new));
        }

        let client = request
            .extensions_mut()
            .remove::<OnUpgrade>()
            .ok_or(TunnelError::NotAnUpgrade)?;
        let upstream = hyper::upgrade::on(&mut answer);
        let stopped = shutdown.clone();
        let until = self.until;
        let until = async move {
            tokio::select! {
                close = until => close,
                () = stopped.stopped() => Close::going_away("the server is stopping"),
            }
        };
        let (upstream_gone, hold) = (self.upstream_gone, self.hold);
        let seat = request.extensions().get::<Seat>().cloned();
        shutdown.spawn(async move {
            let _held = (hold, seat);
            // Either side may be gone before it has taken up the new protocol; the other is then dropped, which ends it.
            let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
                return;
            };
            carry(
                client,
                upstream,
                is_websocket.then(Frames::default),
                until,
                upstream_gone,
            )
            .await;
        });
        Ok(answer.map(|_| Body::empty()))
    }

    fn upgrade_request<B>(
        &self,
        request: &Request<B>,
        protocol: HeaderValue,
    ) -> Result<Request<Empty<Bytes>>, TunnelError> {
        let mut upgrade = Request::builder()
            .method(request.method().clone())
            .uri(&self.path_and_query)
            .header(header::HOST, self.addr.to_string())
            .body(Empty::new())
            .map_err(TunnelError::Malformed)?;
        let headers = upgrade.headers_mut();
        for name in &HANDSHAKE {
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

const HANDSHAKE: [HeaderName; 4] = [
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
];

async fn connect(addr: SocketAddr) -> Result<TcpStream, TunnelError> {
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(addr)).await {
        Ok(connected) => connected.map_err(TunnelError::Connect)?,
        Err(_) => return Err(TunnelError::Timeout),
    };
    stream.set_nodelay(true).map_err(TunnelError::Connect)?;
    lost_peer::notice(&stream).map_err(TunnelError::Connect)?;
    Ok(stream)
}

async fn ask(
    stream: TcpStream,
    upgrade: Request<Empty<Bytes>>,
) -> Result<http::Response<hyper::body::Incoming>, hyper::Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends by itself: with the upgrade, with the end of a refusal's body, or once nobody waits for the answer any more.
    tokio::spawn(connection.with_upgrades());
    sender.send_request(upgrade).await
}

/// The figures of the tunnels that are open, and of what they carry.
struct Gauges {
    to_client: metrics::Counter,
    to_upstream: metrics::Counter,
    messages: metrics::Counter,
}

impl Gauges {
    fn opened() -> Self {
        metrics::gauge!("berth_tunnels_open").increment(1.0);
        Self {
            to_client: metrics::counter!("berth_tunnel_bytes_total", "to" => "client"),
            to_upstream: metrics::counter!("berth_tunnel_bytes_total", "to" => "upstream"),
            messages: metrics::counter!("berth_tunnel_messages_total", "to" => "client"),
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        metrics::gauge!("berth_tunnels_open").decrement(1.0);
    }
}

/// How the direction to the client came to its end.
enum End {
    /// The client is not there any more.
    ClientGone,
    /// The upstream sends no more.
    UpstreamGone,
    /// A reason of ours; the stream stands between two frames where it is one of frames.
    Ours(Close),
}

async fn carry(
    client: Upgraded,
    upstream: Upgraded,
    mut frames: Option<Frames>,
    until: impl Future<Output = Close> + Send,
    upstream_gone: Box<dyn FnOnce() -> Close + Send>,
) {
    let gauges = Gauges::opened();
    let (mut client_read, mut client_write) = tokio::io::split(TokioIo::new(client));
    let (mut upstream_read, mut upstream_write) = tokio::io::split(TokioIo::new(upstream));
    let carried = AtomicU64::new(0);

    let end = {
        let mut outward = pin!(copy(
            &mut client_read,
            &mut upstream_write,
            &gauges.to_upstream
        ));
        let mut inward = pin!(copy_frames(
            &mut upstream_read,
            &mut client_write,
            frames.as_mut(),
            until,
            &gauges,
            &carried
        ));
        let mut client_sends = true;
        loop {
            let before = carried.load(Relaxed);
            tokio::select! {
                end = &mut inward => break end,
                sent = &mut outward, if client_sends => match sent {
                    // The client may still read; the upstream learns that nothing more comes.
                    Ok(()) => client_sends = false,
                    Err(CopyError::Read) => break End::ClientGone,
                    // What the upstream has sent before it went is still for the client.
                    Err(CopyError::Write) => client_sends = false,
                },
                () = sleep(HALF_CLOSED_LIMIT), if !client_sends => {
                    if carried.load(Relaxed) == before {
                        break End::ClientGone;
                    }
                }
            }
        }
    };

    let close = match end {
        End::ClientGone => return,
        End::UpstreamGone => upstream_gone(),
        End::Ours(close) => close,
    };
    // The upstream is let go before the client is seen off.
    drop((upstream_read, upstream_write));
    let farewell = async {
        if frames
            .as_ref()
            .is_some_and(|frames| frames.at_boundary() && !frames.closed())
        {
            client_write.write_all(&close.to_frame()).await?;
        }
        client_write.shutdown().await?;
        // Closing with unread bytes in hand would reset the connection and could take the Close frame with it.
        tokio::io::copy(&mut client_read, &mut tokio::io::sink()).await
    };
    let _ = timeout(CLOSE_GRACE, farewell).await;
}

enum CopyError {
    Read,
    Write,
}

/// Copies until the reader ends, and passes the end on.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &metrics::Counter,
) -> Result<(), CopyError> {
    let mut buffer = vec![0; BUFFER];
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

/// Copies to the client, following the frames, until one side ends or `until` does.
async fn copy_frames(
    upstream: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    mut frames: Option<&mut Frames>,
    until: impl Future<Output = Close> + Send,
    gauges: &Gauges,
    carried: &AtomicU64,
) -> End {
    let mut until = pin!(until);
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = tokio::select! {
            read = upstream.read(&mut buffer) => read,
            close = &mut until => return say_goodbye(finish_frame(upstream, client, frames, &mut buffer), close).await,
        };
        let read = match read {
            Ok(0) | Err(_) => return End::UpstreamGone,
            Ok(read) => read,
        };
        let chunk = &buffer[..read];
        if let Some(frames) = frames.as_deref_mut() {
            let before = frames.messages();
            frames.advance_all(chunk);
            gauges.messages.increment(frames.messages() - before);
        }
        let mut write = pin!(client.write_all(chunk));
        tokio::select! {
            written = &mut write => {
                if written.is_err() {
                    return End::ClientGone;
                }
            }
            close = &mut until => {
                // A client that has stopped reading must not keep the server from stopping.
                if !matches!(timeout(CLOSE_GRACE, write).await, Ok(Ok(()))) {
                    return End::ClientGone;
                }
                return say_goodbye(finish_frame(upstream, client, frames, &mut buffer), close).await;
            }
        }
        gauges.to_client.increment(read as u64);
        carried.fetch_add(read as u64, Relaxed);
    }
}

async fn say_goodbye(finish: impl Future<Output = Result<(), End>>, close: Close) -> End {
    match timeout(CLOSE_GRACE, finish).await {
        Ok(Ok(())) => End::Ours(close),
        Ok(Err(end)) => end,
        Err(_) => End::ClientGone,
    }
}

/// Copies what is left of the frame under way, and not a byte of the next.
async fn finish_frame(
    upstream: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    frames: Option<&mut Frames>,
    buffer: &mut [u8],
) -> Result<(), End> {
    let Some(frames) = frames else { return Ok(()) };
    while !frames.at_boundary() {
        let read = upstream.read(buffer).await.map_err(|_| End::UpstreamGone)?;
        if read == 0 {
            return Err(End::UpstreamGone);
        }
        let taken = frames.advance(&buffer[..read]);
        client
            .write_all(&buffer[..taken])
            .await
            .map_err(|_| End::ClientGone)?;
    }
    Ok(())
}
