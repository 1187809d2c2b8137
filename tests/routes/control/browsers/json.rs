//! `/browsers/{id}/json/…`: the DevTools HTTP endpoints.

use futures::{SinkExt, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite::Message};

use super::id;
use crate::support::dev::{Answer, Dev};

/// Sends a command to the DevTools at `url` and returns the result.
async fn send_command(url: &str, method: &str) -> Value {
    let (mut socket, _) = connect_async(url)
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    let command = json!({ "id": 1, "method": method }).to_string();
    socket.send(Message::text(command)).await.unwrap();
    let response = socket.next().await.unwrap().unwrap();
    serde_json::from_str::<Value>(response.to_text().unwrap()).unwrap()["result"].take()
}

#[tokio::test]
async fn debugger_urls_work_from_outside() {
    let dev = Dev::start().await;
    let browser = dev
        .browser(json!({ "start_url": "data:text/html,<title>One</title>" }))
        .await;
    let base = format!("/browsers/{}", id(&browser));

    for path in ["/json/version", "/json/version/"] {
        let version = dev.get(&format!("{base}{path}")).await;
        assert_eq!(version.status, 200, "{}", version.body);
        let url = version.body["webSocketDebuggerUrl"].as_str().unwrap();
        let public = format!("{}{base}/cdp?jwt=", dev.base_url.replacen("http", "ws", 1));
        assert!(url.starts_with(&public), "{url}");
        let product = send_command(url, "Browser.getVersion").await;
        assert_eq!(product["product"], version.body["Browser"]);
    }

    for path in ["/json/list", "/json"] {
        let list = dev.get(&format!("{base}{path}")).await;
        assert_eq!(list.status, 200, "{}", list.body);
        let page = list
            .body
            .as_array()
            .unwrap()
            .iter()
            .find(|target| target["type"] == "page")
            .unwrap();
        let url = page["webSocketDebuggerUrl"].as_str().unwrap();
        let tree = send_command(url, "Page.getFrameTree").await;
        assert_eq!(tree["frameTree"]["frame"]["url"], page["url"]);
    }
    dev.finish().await;
}

#[tokio::test]
async fn debugger_urls_use_host_of_request() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let path = format!("/browsers/{}/json/version", id(&browser));
    let request = dev
        .request(Method::GET, &path)
        .header("host", "browsers.example:8443");
    let version = Answer::of(request).await;
    let url = version.body["webSocketDebuggerUrl"].as_str().unwrap();
    assert!(
        url.starts_with("ws://browsers.example:8443/browsers/"),
        "{url}"
    );
    let head = dev.request(Method::HEAD, &path).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-type"], "application/json");
    dev.finish().await;
}
