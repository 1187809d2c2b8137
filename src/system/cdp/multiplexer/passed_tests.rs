//! Routes that another multiplexer continues, with a Chromium of the test.

use std::mem::ManuallyDrop;

use serde_json::json;

use super::{
    tests::{Client, FakeChromium, OPTIONS},
    *,
};
use crate::system::cdp::cbor::tests::value_to_cbor;

/// Passes the clients on, as from one program to the next.
async fn pass(multiplexer: &Multiplexer, kept: &Client) -> (Multiplexer, AdoptedConnections) {
    let passed = multiplexer.pass(vec![kept.receiver.client()]).await;
    let passed = passed.unwrap();
    let text = serde_json::to_string(&passed).unwrap();
    // The descriptors in the text are those of this process.
    let _ = ManuallyDrop::new(passed);
    Multiplexer::adopt(serde_json::from_str(&text).unwrap()).unwrap()
}

#[tokio::test]
async fn passed_client_continues_and_others_are_detached() {
    let (first, mut chromium) = FakeChromium::start();
    let mut kept = Client::connect(&first, &mut chromium).await;
    let mut other = Client::connect(&first, &mut chromium).await;
    let child = "C".repeat(32);
    chromium
        .announce("attachedToTarget", &kept.root, &child)
        .await;
    kept.received().await;
    kept.send(json!({"id": 4, "method": "A.b", "sessionId": child}).to_string())
        .await;
    let unanswered = chromium.next().await.unwrap();
    // One message that is not received before, and the start of another one.
    let event = |name: &str| json!({"method": name, "params": {}, "sessionId": child}).to_string();
    let cut = value_to_cbor(&event("E.cut"));
    let (start, rest) = cut.split_at(cut.len() / 2);
    chromium.send(event("E.complete")).await;
    // It has been read when the other client has a reply.
    other.assert_quiet(&mut chromium).await;
    chromium.send_bytes(start.to_vec()).await;

    let (second, mut connections) = pass(&first, &kept).await;
    assert_eq!(kept.received().await["method"], "E.complete");
    assert_eq!(other.end().await, End::BrowserGone);
    let detached = chromium.next().await.unwrap();
    assert_eq!(detached["method"], "Target.detachFromTarget");
    assert_eq!(detached["params"]["sessionId"], other.root);
    assert!(first.has_ended() && !second.has_ended());

    let client = kept.receiver.client();
    let (sender, receiver) = connections.take(client, OPTIONS).unwrap();
    assert!(connections.take(client, OPTIONS).is_none());
    let mut kept = Client {
        sender,
        receiver,
        root: kept.root,
    };
    chromium.send_bytes(rest.to_vec()).await;
    assert_eq!(kept.received().await["method"], "E.cut");
    chromium.reply(&unanswered, json!({"late": true})).await;
    assert_eq!(
        kept.received().await,
        json!({"id": 4, "result": {"late": true}, "sessionId": child})
    );
    // Ids on the pipe are not used again, and further clients get sessions of their own.
    kept.send(json!({"id": 5, "method": "A.b"}).to_string())
        .await;
    let call = chromium.next().await.unwrap();
    assert_ne!(call["id"], unanswered["id"]);
    chromium.reply(&call, json!({})).await;
    assert_eq!(kept.received().await, json!({"id": 5, "result": {}}));
    let mut next = Client::connect(&second, &mut chromium).await;
    assert_ne!(next.receiver.client(), client);
    next.assert_quiet(&mut chromium).await;
    kept.assert_quiet(&mut chromium).await;
}

#[tokio::test]
async fn connection_that_is_not_taken_ends() {
    let (first, mut chromium) = FakeChromium::start();
    let kept = Client::connect(&first, &mut chromium).await;
    let (_second, connections) = pass(&first, &kept).await;
    drop(connections);
    let detached = chromium.next().await.unwrap();
    assert_eq!(detached["method"], "Target.detachFromTarget");
    assert_eq!(detached["params"]["sessionId"], kept.root);
}

#[tokio::test]
async fn client_that_connects_meanwhile_is_detached_when_chromium_has_answered() {
    let (first, mut chromium) = FakeChromium::start();
    let kept = Client::connect(&first, &mut chromium).await;
    let connecting = first.connect(Endpoint::Browser, OPTIONS);
    let attaching = async {
        let call = chromium.next().await.unwrap();
        let (second, _connections) = pass(&first, &kept).await;
        let session = "D".repeat(32);
        chromium.reply(&call, json!({ "sessionId": session })).await;
        let detached = chromium.next().await.unwrap();
        assert_eq!(detached["params"]["sessionId"], session);
        second
    };
    let (connected, _second) = tokio::join!(connecting, attaching);
    assert!(matches!(connected, Err(ConnectError::Gone)));
}
