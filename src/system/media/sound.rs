//! The sound server (PulseAudio's protocol), as far as to know whether there is one.

use std::time::Duration;

use tokio::{
    net::{TcpStream, UnixStream},
    time,
};

const PATIENCE: Duration = Duration::from_secs(2);
const PORT: u16 = 4713;

/// Whether anybody takes connections at the address, written as in `PULSE_SERVER`: `unix:/path`, `/path`, `tcp:host:port` or `host`.
pub async fn answers(server: &str) -> bool {
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
    time::timeout(PATIENCE, connecting).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, UnixListener};

    use super::*;

    #[tokio::test]
    async fn a_server_is_found_where_its_address_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("native");
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
            assert!(answers(&server).await, "{server}");
        }
        drop(tcp);
        for server in [format!("{path}.not"), format!("tcp:{address}")] {
            assert!(!answers(&server).await, "{server}");
        }
    }
}
