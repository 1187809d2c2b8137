use std::{fs::File, os::unix::fs::FileExt};

use serde_json::json;

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

/// Returns the number of texts in the writable memory of this process whose bytes are `byte` of
/// their positions.
fn count_in_memory(length: usize, byte: impl Fn(usize) -> u8) -> usize {
    const PART: usize = 1 << 20;
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut part = vec![0; PART + length];
    let mut count = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        for position in (start..end).step_by(PART) {
            let size = part.len().min(end - position);
            // Some pages of the kernel cannot be read.
            let read = memory.read_at(&mut part[..size], position as u64);
            let texts = part[..read.unwrap_or(0)].windows(length);
            let matches = |text: &&[u8]| (0..length).all(|index| text[index] == byte(index));
            count += texts.filter(matches).count();
        }
    }
    count
}

#[tokio::test]
async fn command_leaves_no_copy_of_its_parameters_in_memory() {
    // Computed, so that it is only where it was written to.
    let byte = |index: usize| b'a' + u8::try_from(index * index * 7 / 5 % 26).unwrap();
    let secret = || {
        Zeroizing::new(
            (0..3000)
                .map(|index| char::from(byte(index)))
                .collect::<String>(),
        )
    };
    let is_there = || count_in_memory(500, |index| byte(1000 + index)) > 0;
    let (calls, mut queue) = mpsc::channel(1);
    let cdp = Cdp {
        calls,
        last_id: Arc::default(),
        call_timeout: CALL_TIMEOUT,
        observed: Arc::default(),
    };
    let send = async || {
        let text = secret();
        let params = [Some(("any", text.as_str()))];
        cdp.send_params("A.b", &params, None).await.unwrap()
    };
    send().await;
    assert!(is_there(), "in the queue");
    assert!(queue.recv().await.unwrap().text.len() > 3000);
    assert!(!is_there(), "of a command that was sent");
    send().await;
    assert!(is_there(), "in the queue");
    drop(queue);
    assert!(!is_there(), "of a command that was not sent");
}
