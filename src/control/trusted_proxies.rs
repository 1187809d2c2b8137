//! The proxies in front of control, and the address of a client behind them.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;

/// The most proxies in front of a client. Further entries of a header are not read.
const MAX_HOPS: usize = 32;

/// A network of proxies, or the address of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyNetwork(IpNet);

impl FromStr for ProxyNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(ProxyNetwork).map_err(|_| {
            "must be an address or a network such as 10.0.0.0/8 or fd00::/8".to_owned()
        })
    }
}

/// The networks whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<ProxyNetwork>);

impl TrustedProxies {
    pub fn new(networks: Vec<ProxyNetwork>) -> TrustedProxies {
        TrustedProxies(networks)
    }

    /// Returns the address of the client of a request from `peer`. `forwarded` are the addresses
    /// that `X-Forwarded-For` lists, in its order: each proxy has appended the one of its client.
    ///
    /// The client is the last address that is not one of a trusted proxy, because anyone can send
    /// what is before it.
    pub fn client_of<'a>(
        &self,
        peer: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
    ) -> IpAddr {
        let mut client = peer.to_canonical();
        for entry in forwarded.rev().take(MAX_HOPS) {
            if !self.contains(client) {
                break;
            }
            match entry.trim().parse::<IpAddr>() {
                Ok(address) => client = address.to_canonical(),
                Err(_) => break,
            }
        }
        client
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.0.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], peer: &str, forwarded: &str) -> String {
        let networks = trusted.iter().map(|text| text.parse().unwrap()).collect();
        let forwarded = forwarded.split(',').filter(|entry| !entry.is_empty());
        let client = TrustedProxies::new(networks).client_of(peer.parse().unwrap(), forwarded);
        client.to_string()
    }

    #[test]
    fn header_of_an_untrusted_peer_is_ignored() {
        assert_eq!(client(&[], "192.0.2.1", "198.51.100.7"), "192.0.2.1");
        assert_eq!(
            client(&["10.0.0.0/8"], "192.0.2.1", "198.51.100.7"),
            "192.0.2.1"
        );
        assert_eq!(client(&["::/0"], "192.0.2.1", "198.51.100.7"), "192.0.2.1");
    }

    #[test]
    fn client_is_the_last_address_that_is_not_a_trusted_proxy() {
        let trusted = ["10.0.0.0/8", "2001:db8::1"];
        for (forwarded, expected) in [
            ("198.51.100.7", "198.51.100.7"),
            // The first entry is the client's own, which can be anything.
            ("1.1.1.1, 198.51.100.7", "198.51.100.7"),
            ("198.51.100.7, 10.1.1.1,2001:db8::1", "198.51.100.7"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
            ("10.1.1.1", "10.1.1.1"),
            ("", "10.0.0.1"),
            ("198.51.100.7, unknown, 10.1.1.1", "10.1.1.1"),
            ("198.51.100.7:80", "10.0.0.1"),
        ] {
            assert_eq!(
                client(&trusted, "10.0.0.1", forwarded),
                expected,
                "{forwarded}"
            );
        }
    }

    #[test]
    fn number_of_hops_is_bounded() {
        let forwarded = ["10.0.0.2"; 100].join(",");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &forwarded), "10.0.0.2");
    }

    #[test]
    fn malformed_network_is_rejected() {
        for text in ["", "10.0.0.0/33", "example.com", "10.0.0.1:80", "10.0.0"] {
            assert!(text.parse::<ProxyNetwork>().is_err(), "{text}");
        }
    }
}
