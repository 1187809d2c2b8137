//! The address at which control reaches the agent.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::net::{UdpSocket, lookup_host};
use url::{Host, Url};

use crate::{agent::settings::ControlConfig, api::fleet::HostAddress};

/// The address at which control reaches the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnAddress {
    Fixed(SocketAddr),
    /// The machine's address on the way to control, which can be another one after each
    /// registration, and the port that it listens on. Of the same family, if it listens on IPv4.
    TowardsControl(SocketAddr),
}

impl OwnAddress {
    /// Returns the address of an agent that listens on `listen`.
    pub(super) fn new(control: &ControlConfig, listen: SocketAddr) -> Self {
        match control.advertised.map(HostAddress::get) {
            Some(advertised) => Self::Fixed(advertised),
            None if listen.ip().is_unspecified() => Self::TowardsControl(listen),
            None => Self::Fixed(listen),
        }
    }

    /// Returns the present address.
    ///
    /// # Errors
    /// Fails if control's name has no address, or the machine no route to it.
    pub(super) async fn get(self, control: &Url) -> io::Result<SocketAddr> {
        match self {
            Self::Fixed(address) => Ok(address),
            Self::TowardsControl(listen) => {
                let addresses = addresses(control).await?.into_iter();
                let usable = addresses.filter(|address| address.is_ipv4() || listen.is_ipv6());
                let source = source_of(usable).await?;
                Ok(SocketAddr::new(source, listen.port()))
            }
        }
    }
}

async fn addresses(server: &Url) -> io::Result<Vec<SocketAddr>> {
    let port = server.port_or_known_default().unwrap_or_default();
    Ok(match server.host() {
        Some(Host::Ipv4(ip)) => vec![(ip, port).into()],
        Some(Host::Ipv6(ip)) => vec![(ip, port).into()],
        Some(Host::Domain(name)) => lookup_host((name, port)).await?.collect(),
        None => Vec::new(),
    })
}

/// Returns the address from which the machine sends to the first of the addresses to which it has
/// a route. Nothing is sent.
async fn source_of(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<IpAddr> {
    let mut last = io::Error::from(io::ErrorKind::HostUnreachable);
    for address in addresses {
        match connect(address).await {
            Ok(source) => return Ok(source),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect(address: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(advertised: Option<&str>) -> ControlConfig {
        ControlConfig {
            url: "http://127.0.0.1:1".parse().unwrap(),
            join_token: None,
            advertised: advertised.map(|address| address.parse().unwrap()),
            is_template: false,
        }
    }

    fn own(advertised: Option<&str>, listen: &str) -> OwnAddress {
        OwnAddress::new(&control(advertised), listen.parse().unwrap())
    }

    #[tokio::test]
    async fn address_is_advertised_or_listened_on_or_that_towards_control() {
        let fixed = |address: &str| OwnAddress::Fixed(address.parse().unwrap());
        let advertised = Some("10.0.0.7:2");
        assert_eq!(own(advertised, "0.0.0.0:1"), fixed("10.0.0.7:2"));
        assert_eq!(own(None, "10.0.0.8:1"), fixed("10.0.0.8:1"));
        for (listen, url, expected) in [
            ("0.0.0.0:1", "http://127.0.0.1:9/", "127.0.0.1:1"),
            ("[::]:2", "http://127.0.0.1:9/", "127.0.0.1:2"),
            ("[::]:3", "http://[::1]:9/", "[::1]:3"),
            ("[::]:4", "https://localhost/", ":4"),
        ] {
            let address = own(None, listen).get(&url.parse().unwrap()).await.unwrap();
            let address = address.to_string();
            assert!(address.ends_with(expected), "{address} for {url}");
        }
        let other_family = "http://[::1]:9/".parse().unwrap();
        assert!(own(None, "0.0.0.0:1").get(&other_family).await.is_err());
        let unknown = "https://control.invalid/".parse().unwrap();
        assert!(own(None, "0.0.0.0:1").get(&unknown).await.is_err());
    }
}
