use futures::SinkExt;
use tokio::net::TcpListener;
use tokio_tungstenite::{accept_async, tungstenite::Message as Frame};

use super::*;
use crate::system::cdp::devtools::Tab;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a DevTools server that sends `before` ahead of each reply, and returns its URL.
async fn start_devtools(before: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        while let Some(Ok(Frame::Text(call))) = socket.next().await {
            let call: serde_json::Value = serde_json::from_str(&call).unwrap();
            for message in before {
                socket.send(Frame::Text((*message).into())).await.unwrap();
            }
            let reply = serde_json::json!({"id": call["id"], "result": {"targetId": "T"}});
            socket
                .send(Frame::Text(reply.to_string().into()))
                .await
                .unwrap();
        }
    });
    format!("ws://{address}/devtools/browser/x")
}

#[tokio::test]
async fn unknown_messages_do_not_end_the_connection() {
    let url = start_devtools(&[
        r#"{"method":"Nothing.weKnow","params":{"deep":[{"new":null}]},"sessionId":"S"}"#,
        r#"{"method":"Target.targetCreated","params":{"targetInfo":{"type":"hologram"}}}"#,
        r#"{"method":"No.params"}"#,
        r#"{"neither":"event nor answer"}"#,
        r#"{"id":4711,"result":{}}"#,
        r#"{"id":"not a number"}"#,
        "not even JSON",
    ])
    .await;
    let cdp = Cdp::connect(&url, CALL_TIMEOUT).await.unwrap();
    for _ in 0..3 {
        assert_eq!(cdp.open_tab("about:blank").await.unwrap().id, "T");
    }
}

#[tokio::test]
async fn busy_page_is_navigated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (url_sender, navigated_url) = oneshot::channel();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        let mut url_sender = Some(url_sender);
        while let Some(Ok(Frame::Text(call))) = socket.next().await {
            let call: serde_json::Value = serde_json::from_str(&call).unwrap();
            let mut reply = serde_json::json!({"id": call["id"]});
            match call["method"].as_str().unwrap() {
                "Page.navigate" => {
                    let url_sender = url_sender.take().expect("one navigation");
                    url_sender.send(call["params"]["url"].clone()).unwrap();
                    continue;
                }
                "Page.getFrameTree" => {
                    reply["error"] = serde_json::json!({"code": -32000, "message": "busy"});
                }
                _ => reply["result"] = serde_json::json!({"sessionId": "S"}),
            }
            let reply = Frame::Text(reply.to_string().into());
            socket.send(reply).await.unwrap();
        }
    });
    let cdp = Cdp::connect(&format!("ws://{address}/"), CALL_TIMEOUT)
        .await
        .unwrap();
    let tab = Tab {
        id: "T".into(),
        url: "about:blank".into(),
    };
    let max_wait = Duration::from_millis(1);
    cdp.navigate(&tab, "about:start", max_wait).await.unwrap();
    assert_eq!(navigated_url.await.unwrap(), "about:start");
}

#[tokio::test]
async fn pending_call_fails_when_the_connection_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        socket.next().await;
    });
    let cdp = Cdp::connect(&format!("ws://{address}/"), CALL_TIMEOUT)
        .await
        .unwrap();
    assert!(matches!(
        cdp.open_tab("about:blank").await,
        Err(CdpError::Closed)
    ));
}
