//! Noticing a peer that is gone without a word: a machine that lost its power or its network ends no connection.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Silence before the kernel asks the peer whether it is there.
const IDLE: Duration = Duration::from_secs(30);
/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many go unanswered before the peer counts as gone.
const PROBES: u32 = 3;

/// Has the kernel end the connection about a minute after its peer was lost.
///
/// There is no limit on how long data may wait to be taken (`TCP_USER_TIMEOUT`): it would also end
/// the connection of a peer that is well and does not read for a while.
pub fn notice(stream: &TcpStream) -> io::Result<()> {
    let asking = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&asking)
}
