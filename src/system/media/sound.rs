//! Checks whether a PulseAudio server is reachable.

use std::time::Duration;

use tokio::{
    net::{TcpStream, UnixStream},
    time,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The default TCP port.
const PORT: u16 = 4713;

/// Returns whether the server accepts connections. The address has the format of `PULSE_SERVER`:
/// `unix:/path`, `/path`, `tcp:host:port` or `host`.
pub async fn is_reachable(server: &str) -> bool {
    let path = server.strip_prefix("unix:").unwrap_or(server);
    let connecting = async {
        if path.starts_with('/') {
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
