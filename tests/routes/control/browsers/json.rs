//! `/browsers/{id}/json/…`: the DevTools HTTP endpoints.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::{SinkExt, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite::Message};

use super::id;
use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

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
        let frontend = page.get("devtoolsFrontendUrl").and_then(Value::as_str);
        assert!(
            frontend.is_none_or(|url| url.starts_with("/devtools/")),
            "{page}"
        );
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

/// Returns the claims of the session token in a URL.
fn claims(url: &str) -> Value {
    let token = url.split_once("?jwt=").unwrap().1;
    let payload = token.split('.').nth(1).unwrap();
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

#[tokio::test]
async fn token_obtained_by_a_token_expires_with_it() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let first = browser["cdp_ws_url"].as_str().unwrap();
    let token = first.split_once("?jwt=").unwrap().1;
    let path = format!("/browsers/{}/json/version?jwt={token}", id(&browser));
    let second = until("a token of a later second", async || {
        let version = Answer::of(dev.anonymous(Method::GET, &path)).await;
        let url = version.body["webSocketDebuggerUrl"].as_str()?.to_owned();
        (claims(&url)["iat"] != claims(first)["iat"]).then_some(url)
    })
    .await;
    assert_eq!(claims(&second)["exp"], claims(first)["exp"]);
    dev.finish().await;
}
