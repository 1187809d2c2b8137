use super::*;
use crate::system::cdp::{
    multiplexer::{Multiplexer, tests::FakeChromium},
    tab::Tab,
};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);

async fn connect(multiplexer: &Multiplexer, chromium: &mut FakeChromium) -> (Cdp, String) {
    let connecting = Cdp::connect(multiplexer, CALL_TIMEOUT);
    let (cdp, session) = tokio::join!(connecting, chromium.accept());
    (cdp.unwrap(), session)
}

#[tokio::test]
async fn unknown_messages_do_not_end_the_connection() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let (cdp, session) = connect(&multiplexer, &mut chromium).await;
    for _ in 0..3 {
        for before in [
            r#"{"method":"Nothing.weKnow","params":{"deep":[{"new":null}]},"sessionId":"S"}"#,
            r#"{"method":"Target.targetCreated","params":{"targetInfo":{"type":"hologram"}},"sessionId":"SESSION"}"#,
            r#"{"method":"No.params","sessionId":"SESSION"}"#,
            r#"{"neither":"event nor answer","sessionId":"SESSION"}"#,
            r#"{"id":4711,"result":{},"sessionId":"SESSION"}"#,
            r#"{"id":"not a number","sessionId":"SESSION"}"#,
            r#"["no object"]"#,
            r#"{"method":7,"sessionId":"SESSION"}"#,
        ] {
            chromium.send(before.replace("SESSION", &session)).await;
        }
        let answer = async {
            let call = chromium.next().await.unwrap();
            chromium.reply(&call, json!({"targetId": "T"})).await;
        };
        let (tab, ()) = tokio::join!(cdp.open_tab("about:blank"), answer);
        assert_eq!(tab.unwrap().id, "T");
    }
}

#[tokio::test]
async fn busy_page_is_navigated() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let (cdp, _) = connect(&multiplexer, &mut chromium).await;
    let tab = Tab {
        id: "T".into(),
        url: "about:blank".into(),
    };
    let session = "A".repeat(32);
    let answer = async {
        let mut navigated_url = None;
        loop {
            let call = chromium.next().await.unwrap();
            match call["method"].as_str().unwrap() {
                // It does not answer.
                "Page.navigate" => navigated_url = Some(call["params"]["url"].clone()),
                "Page.getFrameTree" => {
                    let error = json!({"code": -32000, "message": "busy"});
                    let reply = json!({"id": call["id"], "error": error, "sessionId": session});
                    chromium.send(reply.to_string()).await;
                }
                "Target.attachToTarget" => {
                    let root = call["sessionId"].as_str().unwrap();
                    chromium.announce("attachedToTarget", root, &session).await;
                    chromium.reply(&call, json!({ "sessionId": session })).await;
                }
                method => {
                    assert_eq!(method, "Target.detachFromTarget");
                    chromium.reply(&call, json!({})).await;
                    return navigated_url;
                }
            }
        }
    };
    let navigating = cdp.navigate(&tab, "about:start", Duration::from_millis(1));
    let (navigated, url) = tokio::join!(navigating, answer);
    navigated.unwrap();
    assert_eq!(url, Some("about:start".into()));
}

#[tokio::test]
async fn pending_call_fails_when_the_connection_closes() {
    let (multiplexer, mut chromium) = FakeChromium::start();
    let (cdp, _) = connect(&multiplexer, &mut chromium).await;
    let end = async {
        chromium.next().await;
        drop(chromium);
    };
    let (tab, ()) = tokio::join!(cdp.open_tab("about:blank"), end);
    assert!(matches!(tab, Err(CdpError::Closed)));
}
