//! Which targets wait for the worker.

use super::*;

/// Returns for each `Target.setAutoAttach` to the browser its session, and whether targets wait.
fn auto_attach(scene: &mut Scene) -> Vec<(String, bool)> {
    let actions = scene.relay.take_actions().into_iter();
    let commands = actions.filter_map(|action| match action {
        RelayAction::ToBrowser(bytes) => serde_json::from_slice::<Value>(&bytes).ok(),
        _ => None,
    });
    let mut found: Vec<_> = commands
        .filter(|command| command["method"] == "Target.setAutoAttach")
        .map(|command| {
            let session = command["sessionId"].as_str().unwrap_or_default().to_owned();
            assert_eq!(command["params"]["autoAttach"], true);
            (session, command["params"]["waitForDebuggerOnStart"] == true)
        })
        .collect();
    found.sort();
    found
}

fn request(scene: &mut Scene, id: i64, session: Option<&str>) {
    let mut command = json!({"id": id, "method": "Target.setAutoAttach",
        "params": {"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}});
    if let Some(session) = session {
        command["sessionId"] = session.into();
    }
    scene.worker(command);
}

fn pairs(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
    let pairs = expected.iter();
    pairs
        .map(|(id, waits)| ((*id).to_owned(), *waits))
        .collect()
}

#[test]
fn targets_wait_for_a_worker_while_its_script_runs() {
    let mut scene = Scene::with_tab("A");
    request(&mut scene, 2, None);
    request(&mut scene, 3, Some("A"));
    assert_eq!(auto_attach(&mut scene), pairs(&[("", false), ("A", false)]));
    scene.relay.settle(scene.now);
    assert_eq!(auto_attach(&mut scene), pairs(&[("", true), ("A", true)]));
    scene.relay.run();
    scene.attach("B", "page", json!({}));
    scene.reply_to_probe(FIRST_RELAY_ID + 5, "B", "about:blank");
    request(&mut scene, 4, Some("B"));
    assert_eq!(auto_attach(&mut scene), pairs(&[("B", true)]));
    scene.relay.rest();
    assert_eq!(
        auto_attach(&mut scene),
        pairs(&[("", false), ("A", false), ("B", false)])
    );
}

#[test]
fn worker_without_a_script_lets_a_target_run_after_a_while() {
    const RELEASE: &str = "Runtime.runIfWaitingForDebugger P";
    let mut scene = Scene::with_tab("A");
    scene.attach("P", "page", json!({}));
    assert!(!scene.to_browser().contains(&RELEASE.to_owned()));
    assert_eq!(scene.relay.deadline(), Some(scene.now + IDLE_RELEASE_DELAY));
    scene.relay.tick(scene.now + IDLE_RELEASE_DELAY);
    assert_eq!(scene.to_browser(), [RELEASE]);
}

#[test]
fn service_worker_of_a_script_waits_for_it() {
    let mut scene = Scene::running("A");
    scene.attach("S", "service_worker", json!({"waits": true}));
    assert!(scene.to_browser().is_empty());
    scene.relay.tick(scene.now + DEBUGGER_RELEASE_TIMEOUT);
    assert_eq!(scene.to_browser(), ["Runtime.runIfWaitingForDebugger S"]);
}

#[test]
fn service_worker_is_announced_once() {
    let mut scene = Scene::running("A");
    scene.attach("P", "service_worker", json!({"waits": true, "parent": "A"}));
    scene.event("P", "Runtime.executionContextCreated");
    assert!(scene.messages().is_empty());
    scene.attach("B", "service_worker", json!({"waits": true}));
    let announced = Message::Worker("Target.attachedToTarget".into());
    assert_eq!(scene.messages(), [announced]);
    scene.browser(
        json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "P"}, "sessionId": "A"}),
    );
    assert!(scene.messages().is_empty());
}

#[test]
fn worker_without_a_script_lets_no_target_run_at_once() {
    let mut scene = Scene::with_tab("A");
    scene.attach("W", "worker", json!({"parent": "A"}));
    scene.messages();
    let release =
        |id| json!({"id": id, "method": "Runtime.runIfWaitingForDebugger", "sessionId": "W"});
    scene.worker(release(2));
    assert_eq!(scene.messages(), [Message::Worker("reply 2".into())]);
    scene.relay.settle(scene.now);
    scene.relay.run();
    scene.messages();
    scene.worker(release(3));
    assert_eq!(scene.to_browser(), ["Runtime.runIfWaitingForDebugger W"]);
}

#[test]
fn long_command_is_sent_and_not_retained() {
    let mut scene = Scene::running("A");
    let filter = vec![json!({"type": "page"}); 1000];
    let command = json!({"id": 2, "method": "Target.setAutoAttach", "sessionId": "A",
        "params": {"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": filter}});
    scene.worker(command);
    assert_eq!(auto_attach(&mut scene), pairs(&[("A", true)]));
    scene.relay.rest();
    assert!(auto_attach(&mut scene).is_empty());
}
