//! The settings of all connections to agents, of this machine and of registered hosts.

use std::time::Duration;

use hyper_util::{
    client::legacy::{Builder, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

/// The time in which an agent must accept a connection, including the TLS handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which an idle connection is closed. Shorter than the agent's own timeout, so that
/// no request is sent on a connection that is being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The idle time of a connection after which TCP keep-alive probes its peer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the builder of a client whose idle connections are closed: a machine that is destroyed
/// does not close them.
pub(in crate::control) fn agent_client_builder() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT);
    builder
}

/// Returns a connector for agents of this machine.
pub(in crate::control) fn local_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    configure(&mut connector);
    connector
}

/// Sets the options of TCP connections.
pub(super) fn configure<R>(connector: &mut HttpConnector<R>) {
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL / 3));
    connector.set_keepalive_retries(Some(3));
}
