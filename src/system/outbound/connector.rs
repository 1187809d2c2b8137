//! Opens TCP connections to addresses that the policy permits.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use http::{Uri, uri::Scheme};
use hyper_util::rt::TokioIo;
use nix::unistd::{Uid, geteuid, setfsuid};
use tokio::{
    net::{TcpSocket, TcpStream, lookup_host},
    time::timeout,
};
use tower::Service;

use super::{
    AddressPolicy, OutboundError,
    address_policy::{Denial, Encryption},
};

/// The most addresses of a name that are considered. Each has an equal share of the time.
const MAX_ADDRESSES: usize = 4;

/// Resolves the names of hosts.
#[async_trait]
pub trait HostResolver: Send + Sync {
    /// Returns the addresses of a name, the preferred one first.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl HostResolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = lookup_host((host, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

/// Connects to the host of a URL, at an address that was checked.
#[derive(Clone)]
pub(super) struct CheckedConnector {
    pub(super) policy: Arc<AddressPolicy>,
    pub(super) resolver: Arc<dyn HostResolver>,
    /// The time for the resolution and the connection.
    pub(super) connect_timeout: Duration,
    /// The address at which this program listens, and which is not connected to.
    pub(super) own_address: Option<SocketAddr>,
    /// The owner of the sockets, if not the user of this program.
    pub(super) socket_user: Option<Uid>,
}

impl Service<Uri> for CheckedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = OutboundError;
    type Future = BoxFuture<'static, Result<Self::Response, OutboundError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), OutboundError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let limit = connector.connect_timeout;
            let connecting = timeout(limit, connector.connect(&uri));
            connecting.await.unwrap_or_else(|_| {
                let host = uri.host().unwrap_or_default().to_owned();
                Err(OutboundError::ConnectTimeout { host, limit })
            })
        })
    }
}

impl CheckedConnector {
    async fn connect(&self, uri: &Uri) -> Result<TokioIo<TcpStream>, OutboundError> {
        let host = uri.host().ok_or(OutboundError::InvalidUrl)?;
        let (encryption, default_port) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => (Encryption::Tls, 443),
            _ => (Encryption::None, 80),
        };
        let port = uri.port_u16().unwrap_or(default_port);
        let addresses = self.checked_addresses(host, encryption).await?;
        if addresses.iter().any(|address| self.is_own(*address, port)) {
            return Err(OutboundError::OwnAddress {
                host: host.to_owned(),
            });
        }
        let share = self.connect_timeout / u32::try_from(addresses.len()).unwrap_or(1).max(1);
        let mut reason = io::ErrorKind::NotFound;
        for address in addresses {
            let connecting = self.open(SocketAddr::new(address, port));
            match timeout(share, connecting).await {
                Ok(Ok(stream)) => {
                    // Only an optimization.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(error)) => reason = error.kind(),
                Err(_) => reason = io::ErrorKind::TimedOut,
            }
        }
        let host = host.to_owned();
        Err(OutboundError::Connect { host, reason })
    }

    async fn open(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket_for(address)?;
        socket.connect(address).await
    }

    /// Creates a socket. That of another user is treated by the firewall as that user's.
    fn socket_for(&self, address: SocketAddr) -> io::Result<TcpSocket> {
        let create = || match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        match self.socket_user {
            Some(user) => {
                // Of this thread alone, which does nothing else meanwhile.
                setfsuid(user);
                let socket = create();
                setfsuid(geteuid());
                socket
            }
            None => create(),
        }
    }

    /// Whether this program itself listens at an address.
    fn is_own(&self, address: IpAddr, port: u16) -> bool {
        self.own_address.is_some_and(|own| {
            own.port() == port
                && (own.ip() == address || own.ip().is_unspecified() || address.is_loopback())
        })
    }

    /// Returns the addresses of a host that may be connected to.
    async fn checked_addresses(
        &self,
        host: &str,
        encryption: Encryption,
    ) -> Result<Vec<IpAddr>, OutboundError> {
        let unbracketed = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = match unbracketed.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.resolve(host).await.unwrap_or_default(),
        };
        let host = host.to_owned();
        if addresses.is_empty() {
            return Err(OutboundError::Resolve { host });
        }
        let mut permitted = Vec::new();
        let mut is_public = false;
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            match self.policy.check(address, encryption) {
                Ok(()) => permitted.push(address),
                Err(Denial::NotEncrypted) => is_public = true,
                Err(Denial::NotPublic) => {}
            }
        }
        match (permitted.is_empty(), is_public) {
            (false, _) => Ok(permitted),
            (true, true) => Err(OutboundError::PlainHttpNotAllowed { host }),
            (true, false) => Err(OutboundError::AddressNotAllowed { host }),
        }
    }
}
