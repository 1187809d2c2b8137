//! Which addresses may be connected to.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The networks of IPv4 that are not part of the public internet, from the registry of
/// special-purpose addresses, and the one address in it at which a cloud serves its machines.
const DENIED_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),        // this network, and the unspecified address
    v4([10, 0, 0, 0], 8),       // private
    v4([100, 64, 0, 0], 10),    // carrier-grade NAT
    v4([127, 0, 0, 0], 8),      // loopback
    v4([168, 63, 129, 16], 32), // the host of a virtual machine in Azure
    v4([169, 254, 0, 0], 16),   // link-local, with the metadata of clouds
    v4([172, 16, 0, 0], 12),    // private
    v4([192, 0, 0, 0], 24),     // protocol assignments, with the metadata of a cloud
    v4([192, 0, 2, 0], 24),     // documentation
    v4([192, 88, 99, 0], 24),   // relays of 6to4
    v4([192, 168, 0, 0], 16),   // private
    v4([198, 18, 0, 0], 15),    // benchmarking
    v4([198, 51, 100, 0], 24),  // documentation
    v4([203, 0, 113, 0], 24),   // documentation
    v4([224, 0, 0, 0], 4),      // multicast
    v4([240, 0, 0, 0], 4),      // reserved, and broadcast
];

/// The public internet of IPv6. Outside of it are, among others, loopback, link-local, unique local
/// and multicast addresses, and IPv4 addresses in IPv6 form.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The networks in [`GLOBAL_V6`] that are not part of the public internet, or lead to any address
/// of IPv4.
const DENIED_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), // protocol assignments, Teredo, benchmarking
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), // 6to4
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), // documentation
];

/// The prefix with which a network without IPv4 reaches IPv4 addresses.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// A network, or one address, to which connections are allowed although it is not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedNetwork(IpNet);

impl AllowedNetwork {
    /// The loopback addresses of this machine.
    pub const LOOPBACK: [AllowedNetwork; 2] = [
        AllowedNetwork(IpNet::V4(v4([127, 0, 0, 0], 8))),
        AllowedNetwork(IpNet::V6(v6([0, 0, 0, 0, 0, 0, 0, 1], 128))),
    ];
}

impl FromStr for AllowedNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(AllowedNetwork).map_err(|_| {
            "must be an address or a network such as 10.0.0.0/8 or fd00::/8".to_owned()
        })
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the bytes of a connection are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Tls,
    None,
}

/// Why an address may not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// Not an address of the public internet, and not allowed.
    NotPublic,
    /// Allowed with TLS only.
    NotEncrypted,
}

/// Which addresses may be connected to: those of the public internet with TLS, and those of the
/// allowed networks with or without.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    allowed: Vec<AllowedNetwork>,
    permits_plain_http: bool,
}

impl AddressPolicy {
    pub fn new(allowed: impl IntoIterator<Item = AllowedNetwork>) -> AddressPolicy {
        AddressPolicy {
            allowed: allowed.into_iter().collect(),
            permits_plain_http: false,
        }
    }

    /// Permits connections to the public internet without TLS, too.
    #[must_use]
    pub fn with_plain_http(self) -> AddressPolicy {
        AddressPolicy {
            permits_plain_http: true,
            ..self
        }
    }

    /// Returns whether an address may be used, with encryption.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        self.check(address, Encryption::Tls).is_ok()
    }

    pub(super) fn check(&self, address: IpAddr, encryption: Encryption) -> Result<(), Denial> {
        if self
            .allowed
            .iter()
            .any(|network| network.0.contains(&address))
        {
            return Ok(());
        }
        match (is_public(address), encryption) {
            (true, Encryption::Tls) => Ok(()),
            (true, Encryption::None) if self.permits_plain_http => Ok(()),
            (true, Encryption::None) => Err(Denial::NotEncrypted),
            (false, _) => Err(Denial::NotPublic),
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !DENIED_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address)
                && !DENIED_V6.iter().any(|network| network.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &[&str], address: &str, encryption: Encryption) -> Result<(), Denial> {
        let allowed = allowed.iter().map(|text| text.parse().unwrap());
        AddressPolicy::new(allowed).check(address.parse().unwrap(), encryption)
    }

    #[test]
    fn public_address_is_permitted_with_tls_only() {
        for address in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "169.253.255.255",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "64:ff9b::101:101",
        ] {
            assert_eq!(check(&[], address, Encryption::Tls), Ok(()), "{address}");
            let plain = check(&[], address, Encryption::None);
            assert_eq!(plain, Err(Denial::NotEncrypted), "{address}");
        }
    }

    #[test]
    fn public_address_is_permitted_without_tls_on_request() {
        let policy = AddressPolicy::default().with_plain_http();
        for (address, expected) in [
            ("1.1.1.1", Ok(())),
            ("2606:4700:4700::1111", Ok(())),
            ("127.0.0.1", Err(Denial::NotPublic)),
            ("169.254.169.254", Err(Denial::NotPublic)),
        ] {
            let checked = policy.check(address.parse().unwrap(), Encryption::None);
            assert_eq!(checked, expected, "{address}");
        }
    }

    #[test]
    fn address_that_is_not_public_is_rejected() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            for encryption in [Encryption::Tls, Encryption::None] {
                let denial = check(&[], address, encryption);
                assert_eq!(denial, Err(Denial::NotPublic), "{address}");
            }
        }
    }

    #[test]
    fn allowed_network_is_permitted_with_and_without_tls() {
        let allowed = ["10.1.0.0/16", "127.0.0.1", "fd00::/8"];
        for address in ["10.1.2.3", "127.0.0.1", "fd00:ec2::254"] {
            for encryption in [Encryption::Tls, Encryption::None] {
                assert_eq!(check(&allowed, address, encryption), Ok(()), "{address}");
            }
        }
        for address in ["10.2.0.1", "127.0.0.2", "::ffff:127.0.0.1", "fc00::1"] {
            let denial = check(&allowed, address, Encryption::Tls);
            assert_eq!(denial, Err(Denial::NotPublic), "{address}");
        }
    }

    #[test]
    fn loopback_is_a_constant() {
        let policy = AddressPolicy::new(AllowedNetwork::LOOPBACK);
        for (address, expected) in [("127.9.9.9", true), ("::1", true), ("::2", false)] {
            let checked = policy.check(address.parse().unwrap(), Encryption::None);
            assert_eq!(checked.is_ok(), expected, "{address}");
        }
    }

    #[test]
    fn displayed_network_is_parsed_to_the_same() {
        for text in ["10.0.0.0/8", "127.0.0.1", "fd00::/8", "::1"] {
            let network: AllowedNetwork = text.parse().unwrap();
            assert_eq!(network.to_string().parse(), Ok(network), "{text}");
        }
    }

    #[test]
    fn malformed_network_is_refused() {
        for text in ["", "10.0.0.0/33", "example.com", "10.0.0.1:80", "10.0.0"] {
            assert!(text.parse::<AllowedNetwork>().is_err(), "{text}");
        }
    }
}
