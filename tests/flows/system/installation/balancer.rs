//! An address at which a control process answers, as long as one runs.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::Server;

/// Passes each connection on to the next of the servers until the end of the test. Returns the URL.
pub(super) async fn balance(servers: watch::Receiver<Vec<Server>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for number in 0.. {
            let (client, _) = listener.accept().await.unwrap();
            let servers = servers.borrow().clone();
            if let Some(server) = servers.iter().cycle().nth(number % servers.len().max(1)) {
                let address = server.base_url.trim_start_matches("http://").to_owned();
                tokio::spawn(pass_on(client, address));
            }
        }
    });
    url
}

async fn pass_on(mut client: TcpStream, address: String) {
    if let Ok(mut server) = TcpStream::connect(address).await {
        // Either may be killed.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
