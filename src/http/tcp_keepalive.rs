//! TCP keep-alive: detects a peer that lost power or network and will never close its connection.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Idle time after which the kernel sends the first probe.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes after which the kernel ends the connection.
const MAX_PROBES: u32 = 3;

/// Has the kernel end the connection about a minute after its peer was lost.
///
/// `TCP_USER_TIMEOUT` is not set: it would also end the connection of a healthy peer that does not
/// read for a while.
pub(super) fn enable(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(IDLE_TIMEOUT)
        .with_interval(PROBE_INTERVAL)
        .with_retries(MAX_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
