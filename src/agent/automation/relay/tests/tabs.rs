//! Attaching, announcing and releasing tabs.

use super::*;

/// Replays what Chromium 156 sent while one tab was healthy, one had been opened by
/// `window.open('data:…')`, and one was in an endless loop.
#[test]
fn worker_sees_only_the_healthy_tab_of_a_recorded_browser() {
    let recorded = include_str!("recorded/hung_tabs.jsonl");
    let mut scene = Scene {
        relay: new_relay(),
        now: Instant::now(),
    };
    scene.worker(json!({"id": 1, "method": "Browser.getVersion"}));
    scene.worker(json!({"id": 2, "method": "Target.setAutoAttach"}));
    for line in recorded.lines() {
        scene
            .relay
            .from_browser(Bytes::from_static(line.as_bytes()), scene.now)
            .unwrap();
    }
    assert_eq!(scene.to_worker(), ["reply 1", "Target.attachedToTarget"]);
    scene.advance(AUTO_ATTACH_HOLD_TIMEOUT);
    assert_eq!(scene.to_worker(), ["reply 2"]);
    assert_eq!(scene.relay.tab_count(), 3);
    scene.advance(HUNG_TAB_TIMEOUT - AUTO_ATTACH_HOLD_TIMEOUT);
    assert_eq!(
        scene.messages(),
        [Message::Other(RelayAction::TabHung(
            "A7D4EF50B9CE47CEE82480A094EC0D2C".into()
        ))]
    );
    scene.relay.settle(scene.now);
    let (healthy, half) = (
        "023A8A7392F24A27D35464FE02AD9CC5",
        "FA3B5586BE657C1DA5EA25B0D7E4FB1B",
    );
    for message in scene.messages() {
        match message {
            Message::Browser(id, _, session) if session == healthy => {
                scene.reply_to_probe(id, healthy, "data:text/html,first");
            }
            Message::Browser(id, _, session) if session == half => {
                scene.reply_to_probe(id, half, "")
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        scene.choose_page(),
        PageChoice::Tab("3CBF9EE894D21CA244845AAD523B0435".into())
    );
}

#[test]
fn tab_is_announced_when_it_answers_late() {
    let mut scene = Scene::new();
    scene.attach("A", "page", json!({}));
    scene.browser(json!({"id": 1, "result": {}}));
    assert!(scene.to_worker().is_empty());
    assert_eq!(
        scene.relay.deadline(),
        Some(scene.now + AUTO_ATTACH_HOLD_TIMEOUT)
    );
    scene.advance(AUTO_ATTACH_HOLD_TIMEOUT);
    assert_eq!(scene.to_worker(), ["reply 1"]);
    scene.event("A", "Page.lifecycleEvent");
    assert!(scene.to_worker().is_empty());
    scene.reply_to_probe(FIRST_RELAY_ID, "A", "about:blank");
    assert_eq!(scene.to_worker(), ["Target.attachedToTarget"]);
    scene.event("A", "Page.lifecycleEvent");
    assert_eq!(scene.to_worker(), ["Page.lifecycleEvent"]);
}

#[test]
fn tab_is_announced_after_its_first_navigation() {
    let mut scene = Scene::new();
    scene.attach("A", "page", json!({}));
    scene.reply_to_probe(FIRST_RELAY_ID, "A", "");
    assert!(scene.to_browser().contains(&"Page.enable A".to_owned()));
    scene.reply_to_probe(FIRST_RELAY_ID + 2, "A", "");
    scene.browser(json!({"id": 1, "result": {}}));
    // It does not delay auto-attach.
    assert_eq!(scene.to_worker(), ["reply 1"]);
    scene.event("A", "Page.frameNavigated");
    assert_eq!(scene.to_browser(), ["Page.getFrameTree A"]);
    scene.reply_to_probe(FIRST_RELAY_ID + 3, "A", "https://example.com/");
    assert_eq!(scene.to_worker(), ["Target.attachedToTarget"]);
}

#[test]
fn tab_closed_before_its_first_reply_is_never_announced() {
    let mut scene = Scene::new();
    scene.attach("A", "page", json!({}));
    scene.browser(json!({"id": 1, "result": {}}));
    let gone = json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "A", "targetId": "T-A"}});
    scene.browser(gone.clone());
    assert_eq!(scene.to_worker(), ["reply 1"]);

    let mut scene = Scene::with_tab("A");
    scene.browser(gone);
    assert_eq!(
        scene.messages(),
        [
            Message::Other(RelayAction::TabClosed("T-A".into())),
            Message::Worker("Target.detachedFromTarget".into())
        ]
    );
}

#[test]
fn tab_not_opened_by_the_script_is_released_at_once() {
    let mut scene = Scene::running("A");
    scene.attach("B", "page", json!({"waits": true}));
    scene.attach("W", "worker", json!({"waits": true, "parent": "A"}));
    let released = scene.to_browser();
    assert!(released.contains(&"Runtime.runIfWaitingForDebugger B".to_owned()));
    assert!(released.contains(&"Runtime.runIfWaitingForDebugger W".to_owned()));
}

#[test]
fn tab_opened_by_the_script_is_released_after_a_timeout() {
    let mut scene = Scene::running("A");
    scene.worker(
        json!({"id": 7, "method": "Target.createTarget", "params": {"url": "about:blank"}}),
    );
    scene.messages();
    scene.attach("B", "page", json!({"waits": true}));
    assert_eq!(
        scene.messages(),
        [Message::Worker("Target.attachedToTarget".into())]
    );
    scene.browser(json!({"id": 7, "result": {"targetId": "T-B"}}));
    scene.advance(DEBUGGER_RELEASE_TIMEOUT);
    assert_eq!(scene.to_browser(), ["Runtime.runIfWaitingForDebugger B"]);

    // A pop-up of a page in which the script acts counts as its own. Playwright releases it.
    let mut scene = Scene::running("A");
    scene.worker(json!({"id": 8, "method": "Input.dispatchMouseEvent", "sessionId": "A"}));
    scene.messages();
    scene.attach(
        "C",
        "page",
        json!({"waits": true, "info": {"openerId": "T-A"}}),
    );
    assert_eq!(
        scene.messages(),
        [Message::Worker("Target.attachedToTarget".into())]
    );
    scene.worker(json!({"id": 9, "method": "Runtime.runIfWaitingForDebugger", "sessionId": "C"}));
    scene.messages();
    scene.advance(DEBUGGER_RELEASE_TIMEOUT);
    assert!(scene.to_browser().is_empty());
}

#[test]
fn dialog_event_is_held_while_the_worker_is_idle() {
    let mut scene = Scene::with_tab("A");
    scene.event("A", "Page.javascriptDialogOpening");
    scene.event("A", "Page.javascriptDialogClosed");
    assert!(scene.to_worker().is_empty());
    // The event of a dialog that is still open is sent when a script settles.
    scene.event("A", "Page.javascriptDialogOpening");
    scene.relay.settle(scene.now);
    assert_eq!(scene.to_worker(), ["Page.javascriptDialogOpening"]);
    scene.event("A", "Page.javascriptDialogClosed");
    assert_eq!(scene.to_worker(), ["Page.javascriptDialogClosed"]);
}
