//! Checks whether a PulseAudio server is reachable.

use std::{path::Path, time::Duration};

use tokio::{
    net::{TcpStream, UnixStream},
    time,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The default TCP port.
const PORT: u16 = 4713;

/// Returns the socket of an address that is one: `unix:/path` or `/path`.
#[must_use]
pub fn socket_path(server: &str) -> Option<&Path> {
    let path = Path::new(server.strip_prefix("unix:").unwrap_or(server));
    path.is_absolute().then_some(path)
}

/// Returns whether the server accepts connections. The address has the format of `PULSE_SERVER`:
/// `unix:/path`, `/path`, `tcp:host:port` or `host`.
pub async fn is_reachable(server: &str) -> bool {
    let connecting = async {
        if let Some(path) = socket_path(server) {
            return UnixStream::connect(path).await.is_ok();
        }
        let host = server.strip_prefix("tcp:").unwrap_or(server);
        let connected = match host.rsplit_once(':') {
            Some(_) => TcpStream::connect(host).await,
            None => TcpStream::connect((host, PORT)).await,
        };
        connected.is_ok()
    };
    time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, UnixListener};

    use super::*;

    #[tokio::test]
    async fn server_is_reachable_at_every_address_form() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("native");
        let _unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let path = path.display();
        let address = tcp.local_addr().unwrap();
        for server in [
            format!("{path}"),
            format!("unix:{path}"),
            format!("tcp:{address}"),
            address.to_string(),
        ] {
            assert!(is_reachable(&server).await, "{server}");
        }
        drop(tcp);
        for server in [format!("{path}.not"), format!("tcp:{address}")] {
            assert!(!is_reachable(&server).await, "{server}");
        }
    }
}
