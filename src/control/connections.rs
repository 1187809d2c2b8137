//! Limits of the connections of control: those of clients, and idle ones to agents.

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
