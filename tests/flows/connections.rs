//! Connections whose clients do not read.

use std::net::SocketAddr;

use reqwest::Method;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{
    dev::{Answer, Dev},
    wait::in_time,
};

/// A public response that is larger than the buffers of a connection.
const LARGE_RESPONSE: &str = "/docs/scalar.js";

/// Opens a connection without a key, requests a large response and reads nothing.
async fn unread(dev: &Dev) -> TcpStream {
    let address: SocketAddr = dev.base_url["http://".len()..].parse().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {LARGE_RESPONSE} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    // The server may have closed the connection for a later one.
    let _ = client.write_all(head.as_bytes()).await;
    client
}

#[tokio::test]
async fn unread_connections_leave_room_for_authenticated_clients() {
    let dev = Dev::with_open_files(300).await;
    let mut clients = Vec::new();
    for _ in 0..330 {
        clients.push(unread(&dev).await);
    }
    for _ in 0..3 {
        let request = dev.request(Method::GET, "/browsers");
        // Each on a connection of its own.
        let request = request.header("connection", "close");
        let answer = in_time("an authenticated response", Answer::of(request)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    // A browser starts, for which the server needs further descriptors.
    let browser = dev.browser(serde_json::json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let route = format!("/browsers/{id}/computer/get_mouse_position");
    let answer = in_time(
        "a forwarded response",
        dev.post(&route, serde_json::json!({})),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let failures = dev.log().matches("accept failed").count();
    assert!(failures <= 1, "{failures} lines about failed accepts");
    in_time("the end", dev.finish()).await;
    drop(clients);
}

#[tokio::test]
async fn unread_connections_do_not_delay_the_shutdown() {
    // A grace period that no test waits for.
    let dev = Dev::with(&["--stop-seconds", "300"]).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = unread(&dev).await;
        // The response arrives.
        in_time("the response", client.readable()).await.unwrap();
        clients.push(client);
    }
    in_time("the end", dev.finish()).await;
    drop(clients);
}
