//! Connections to registered hosts, with TLS that authenticates both sides.
//!
//! The authority of a request's URL contains the id and the address of a host, so that connections
//! are shared by requests to the same host only:
//!
//! ```text
//! https://01kgc3v7e8r9t0w1x2y3z4a5b6.0a000007:10001/health
//!         id                         10.0.0.7
//! ```

use std::{
    error::Error,
    future::{Ready, ready},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

use super::{
    agent_connections::{CONNECT_TIMEOUT, configure},
    registered::{certificate_name, random_part},
};
use crate::api::ids::HostId;

type BoxError = Box<dyn Error + Send + Sync>;
type HostStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections to registered hosts. Fails if one is not open, with TLS, within
/// [`CONNECT_TIMEOUT`].
#[derive(Clone)]
pub(in crate::control) struct HostConnector(HttpsConnector<HttpConnector<AddressInName>>);

impl Service<Uri> for HostConnector {
    type Response = HostStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<HostStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            match timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(connected) => connected,
                Err(_) => {
                    let message = format!("no TLS connection within {CONNECT_TIMEOUT:?}");
                    Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
                }
            }
        })
    }
}

/// Returns a connector that presents control's certificate, and accepts that of the host alone.
pub(in crate::control) fn host_connector(tls: ClientConfig) -> HostConnector {
    let mut tcp = HttpConnector::new_with_resolver(AddressInName);
    tcp.enforce_http(false);
    configure(&mut tcp);
    let server_name = |uri: &Uri| {
        let (random, _) = parse_host(uri.host().unwrap_or_default())?;
        server_name(random)
    };
    let tls = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .with_server_name_resolver(server_name)
        .enable_http1()
        .wrap_connector(tcp);
    HostConnector(tls)
}

/// Returns the name that the certificate of a host must have.
pub(in crate::control) fn host_server_name(id: &HostId) -> io::Result<ServerName<'static>> {
    server_name(random_part(id))
}

fn server_name(random: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(certificate_name(random)).map_err(io::Error::other)
}

/// Returns the authority of URLs for a host.
pub(super) fn host_authority(id: &HostId, address: SocketAddr) -> String {
    let random = random_part(id);
    let ip = match address.ip() {
        IpAddr::V4(ip) => format!("{:08x}", u32::from(ip)),
        IpAddr::V6(ip) => format!("{:032x}", u128::from(ip)),
    };
    format!("{random}.{ip}:{}", address.port())
}

/// Returns the random part of the id and the IP address in the host of a URL.
fn parse_host(host: &str) -> io::Result<(&str, IpAddr)> {
    let (random, ip) = host.split_once('.').ok_or(io::ErrorKind::InvalidInput)?;
    let ip = match ip.len() {
        8 => u32::from_str_radix(ip, 16).map(|ip| Ipv4Addr::from(ip).into()),
        _ => u128::from_str_radix(ip, 16).map(|ip| Ipv6Addr::from(ip).into()),
    };
    Ok((random, ip.map_err(io::Error::other)?))
}

/// A resolver of the names that [`host_authority`] makes.
#[derive(Clone, Copy)]
pub(in crate::control) struct AddressInName;

impl Service<Name> for AddressInName {
    type Response = std::iter::Once<SocketAddr>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The connector sets the port.
        let address = parse_host(name.as_str()).map(|(_, ip)| SocketAddr::new(ip, 0));
        ready(address.map(std::iter::once))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_contains_id_and_address() {
        let id: HostId = "host_01kgc3v7e8r9t0w1x2y3z4a5b6".parse().unwrap();
        for address in ["10.0.0.7:10001", "0.0.0.1:1", "[fd00::7]:65535", "[::1]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            let uri = format!("https://{}/health", host_authority(&id, address));
            let uri: Uri = uri.parse().unwrap();
            let (random, ip) = parse_host(uri.host().unwrap()).unwrap();
            assert_eq!(random, "01kgc3v7e8r9t0w1x2y3z4a5b6");
            assert_eq!(SocketAddr::new(ip, uri.port_u16().unwrap()), address);
        }
        assert!(parse_host("a").is_err() && parse_host("a.x").is_err());
    }
}
