//! Connections whose clients do not read.

use std::net::SocketAddr;

use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

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

/// Opens a connection, sends a request without a key and reads the status of the response. The
/// connection stays open.
async fn send_on_new_connection(dev: &Dev, path: &str) -> (BufReader<TcpStream>, u16) {
    let address: SocketAddr = dev.base_url["http://".len()..].parse().unwrap();
    let mut client = BufReader::new(TcpStream::connect(address).await.unwrap());
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let mut line = String::new();
    client.read_line(&mut line).await.unwrap();
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (client, status.unwrap_or_else(|| panic!("{line:?}")))
}

#[tokio::test]
async fn links_do_not_lock_out_keys() {
    // 32 connections may be authenticated.
    let dev = Dev::with_open_files(256).await;
    let mut clients = Vec::new();
    for (is_deleted, expected) in [(true, 410), (false, 200)] {
        let browser = dev.browser(json!({})).await;
        let id = browser["session_id"].as_str().unwrap();
        let url = browser["cdp_ws_url"].as_str().unwrap();
        let token = url.split_once("?jwt=").unwrap().1;
        if is_deleted {
            dev.delete(&format!("/browsers/{id}")).await;
        }
        let path = format!("/browsers/{id}/json/version?jwt={token}");
        let mut statuses = Vec::new();
        for _ in 0..40 {
            let sent = send_on_new_connection(&dev, &path);
            let (client, status) = in_time("a response", sent).await;
            statuses.push(status);
            clients.push(client);
        }
        let is_expected = |status: &&u16| **status == expected;
        let count = statuses.iter().filter(is_expected).count();
        assert_eq!(count, if is_deleted { 40 } else { 8 }, "{statuses:?}");
        let request = dev.request(Method::GET, "/browsers");
        let request = request.header("connection", "close");
        let answer = in_time("an authenticated response", Answer::of(request)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
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
