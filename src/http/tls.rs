//! TLS of a server.

use std::{sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Time that a client has for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The TLS settings of a server. They can be replaced while it serves; a connection keeps those
/// that it began with. Without any, connections are closed.
pub type TlsSettings = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Performs the handshake. Returns `None` if it fails or takes too long.
pub(super) async fn accept_tls(
    settings: &TlsSettings,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let config = settings.borrow().clone()?;
    let handshake = TlsAcceptor::from(config).accept(stream);
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            None
        }
    }
}
