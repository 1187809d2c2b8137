//! Opens TCP connections to addresses that the policy permits.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use http::{Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use nix::unistd::{Uid, geteuid, setfsuid};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};
use tower::Service;

use super::{
    AddressPolicy, OutboundError,
    address_policy::{Denial, Encryption},
};

/// The most addresses of a name that are considered. Each has an equal share of the time.
const MAX_ADDRESSES: usize = 4;

/// The most lookups at once.
const MAX_LOOKUPS: usize = 16;

/// Resolves the names of hosts.
#[async_trait]
pub trait HostResolver: Send + Sync {
    /// Returns the addresses of a name, the preferred one first.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system. Clones share its bound.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        SystemResolver {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

#[async_trait]
impl HostResolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let permit = self.lookups.clone().acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        let host = host.to_owned();
        let lookup = spawn_blocking(move || {
            // A lookup cannot be cancelled: it occupies its thread after its request has ended.
            let _permit = permit;
            let addresses = (host.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}

/// A connection, and its part of the bound.
pub(super) struct CountedStream {
    stream: TokioIo<TcpStream>,
    _slot: OwnedSemaphorePermit,
}

impl CountedStream {
    fn new(stream: TcpStream, slot: OwnedSemaphorePermit) -> Self {
        CountedStream {
            stream: TokioIo::new(stream),
            _slot: slot,
        }
    }
}

impl Connection for CountedStream {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
    /// Bounds the connections.
    pub(super) slots: Arc<Semaphore>,
}

impl Service<Uri> for CheckedConnector {
    type Response = CountedStream;
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
    async fn connect(&self, uri: &Uri) -> Result<CountedStream, OutboundError> {
        let host = uri.host().ok_or(OutboundError::InvalidUrl)?;
        let slot = self.slots.clone().acquire_owned().await;
        let slot = slot.map_err(|_| OutboundError::Interrupted {
            host: host.to_owned(),
        })?;
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
                Ok(Ok(stream)) if self.leads_to_itself(&stream, port) => {
                    return Err(OutboundError::OwnAddress {
                        host: host.to_owned(),
                    });
                }
                Ok(Ok(stream)) => {
                    // Only an optimization.
                    let _ = stream.set_nodelay(true);
                    return Ok(CountedStream::new(stream, slot));
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

    /// Whether this program itself listens at an address, as far as that shows in the address.
    fn is_own(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        self.own_address.is_some_and(|own| {
            let is_own = own.ip().to_canonical() == address;
            own.port() == port && (is_own || address.is_loopback() || address.is_unspecified())
        })
    }

    /// Whether a connection leads to this program, which may listen at all addresses.
    fn leads_to_itself(&self, stream: &TcpStream, port: u16) -> bool {
        let has_own_port = self.own_address.is_some_and(|own| own.port() == port);
        let addresses = stream.peer_addr().ok().zip(stream.local_addr().ok());
        has_own_port && addresses.is_none_or(|(peer, local)| peer.ip() == local.ip())
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
