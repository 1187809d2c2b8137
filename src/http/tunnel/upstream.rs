//! The connection of a tunnel to its upstream.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::TunnelError;
use crate::http::tcp_keepalive;

/// The time for the TCP connection and the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The TLS settings of a tunnel.
#[derive(Clone)]
pub struct TunnelTls {
    pub config: Arc<ClientConfig>,
    /// The name that the certificate of the server must have.
    pub server_name: ServerName<'static>,
}

/// Connects and sends the upgrade. Returns the response.
pub(super) async fn send_upgrade(
    addr: SocketAddr,
    tls: Option<TunnelTls>,
    upgrade: Request<Empty<Bytes>>,
    response_timeout: Duration,
) -> Result<http::Response<hyper::body::Incoming>, TunnelError> {
    let sent = match tls {
        None => {
            let stream = within_connect_timeout(connect(addr)).await?;
            timeout(response_timeout, send(stream, upgrade)).await
        }
        Some(tls) => {
            let stream = within_connect_timeout(connect_tls(addr, tls)).await?;
            timeout(response_timeout, send(stream, upgrade)).await
        }
    };
    sent.map_err(|_| TunnelError::Timeout)?
        .map_err(TunnelError::Broken)
}

async fn within_connect_timeout<S>(
    connecting: impl Future<Output = io::Result<S>>,
) -> Result<S, TunnelError> {
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected.map_err(TunnelError::Connect),
        Err(_) => Err(TunnelError::Timeout),
    }
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    tcp_keepalive::enable(&stream)?;
    Ok(stream)
}

async fn connect_tls(addr: SocketAddr, tls: TunnelTls) -> io::Result<TlsStream<TcpStream>> {
    let stream = connect(addr).await?;
    let connector = TlsConnector::from(tls.config);
    connector.connect(tls.server_name, stream).await
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    upgrade: Request<Empty<Bytes>>,
) -> Result<http::Response<hyper::body::Incoming>, hyper::Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the upgrade, with the end of a refusal's body, or when the response is abandoned.
    tokio::spawn(connection.with_upgrades());
    sender.send_request(upgrade).await
}
