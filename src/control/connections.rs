//! The connections of control: its URL, and the limits of client connections and idle ones to
//! agents.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{settings::Config, store::Fleet};
use crate::{http::ConnectionLimits, system::process::open_files};

/// The most client connections at once.
const MAX_CONNECTIONS: usize = 10_000;
/// The descriptors that a client connection needs: its own, that of the connection to an agent, and
/// that of an idle one which is kept for later requests.
const DESCRIPTORS_PER_CONNECTION: usize = 3;
/// The descriptors for SQLite, replays and logs.
const RESERVED_DESCRIPTORS: usize = 64;
/// The descriptors for each browser: its agent's output, files, and control's own requests.
const DESCRIPTORS_PER_BROWSER: usize = 8;
/// The number of registered hosts for which control has descriptors, while all are in use.
const EXPECTED_HOSTS: usize = 1000;

/// Returns the limits of client connections.
pub(super) fn limits(config: &Config) -> ConnectionLimits {
    ConnectionLimits::for_open_files(
        MAX_CONNECTIONS,
        open_files::limit(),
        RESERVED_DESCRIPTORS
            + config.database.connections()
            + DESCRIPTORS_PER_BROWSER * config.fleet.max_browsers as usize,
        DESCRIPTORS_PER_CONNECTION,
    )
}

/// Returns the number of idle connections to keep to each agent: in total not more than clients may
/// open.
pub(super) fn idle_per_agent(config: &Config) -> usize {
    let agents = match config.host_fleet {
        Fleet::Local => config.fleet.max_browsers as usize,
        Fleet::Registered => EXPECTED_HOSTS,
    };
    limits(config).total() / agents
}

/// Returns the base URL at which clients and agents reach the server.
pub(super) fn base_url(config: &Config, address: SocketAddr) -> String {
    match &config.public_url {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => local_url(address),
    }
}

/// Returns the base URL at which programs on this machine reach the server without a proxy.
pub(super) fn local_url(address: SocketAddr) -> String {
    format!("http://{}", connectable(address))
}

/// Replaces the wildcard address, to which no client can connect, by the loopback address.
fn connectable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
