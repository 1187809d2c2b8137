//! The shared isolated world.

use super::*;

/// Returns the event of a new execution context.
fn context(session: &str, id: i64, name: &str, main: bool) -> Value {
    json!({
        "method": "Runtime.executionContextCreated",
        "params": {"context": {"id": id, "name": name, "auxData": {"isDefault": main, "frameId": "F"}}},
        "sessionId": session,
    })
}

/// The worker's name for its world.
const WORKER_NAME: &str = "__playwright_utility_world_page@1";

/// Returns a command of the worker that names its world.
fn command(id: i64, method: &str) -> Value {
    json!({"id": id, "method": method, "sessionId": "A",
        "params": {"source": "", "frameId": "F", "worldName": WORKER_NAME, "grantUniveralAccess": true}})
}

/// Takes the messages sent: whether each is for the worker, and its content.
fn texts(scene: &mut Scene) -> Vec<(bool, Value)> {
    let text = |bytes: &Bytes| serde_json::from_slice(bytes).unwrap();
    let actions = scene.relay.take_actions();
    actions
        .iter()
        .map(|action| match action {
            RelayAction::ToWorker(bytes) => (true, text(bytes)),
            RelayAction::ToBrowser(bytes) => (false, text(bytes)),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn warm_worker_uses_the_existing_shared_world() {
    let mut scene = Scene::with_tab("A");
    scene.browser(context("A", 1, "", true));
    scene.browser(context("A", 2, SHARED_WORLD, false));
    scene.browser(context(
        "A",
        3,
        "__playwright_utility_world_page@another",
        false,
    ));
    assert_eq!(scene.to_worker(), ["Runtime.executionContextCreated"]);
    scene.worker(command(8, "Page.addScriptToEvaluateOnNewDocument"));
    scene.worker(command(13, "Page.createIsolatedWorld"));
    let messages = texts(&mut scene);
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[0].1["params"]["context"]["name"], WORKER_NAME);
    assert_eq!(messages[1].1["id"], 8);
    assert_eq!(messages[2].1["result"]["executionContextId"], 2);
    // A second one in the same frame is hidden.
    scene.browser(context("A", 4, SHARED_WORLD, false));
    assert!(texts(&mut scene).is_empty());
    scene.relay.settle(scene.now);
    let messages = texts(&mut scene);
    assert_eq!(
        messages[0].1["method"],
        "Page.addScriptToEvaluateOnNewDocument"
    );
    assert_eq!(messages[0].1["params"]["worldName"], SHARED_WORLD);
    assert_eq!(messages[1].1["method"], "Page.getFrameTree");
}

#[test]
fn missing_shared_world_is_created_when_a_script_settles() {
    let mut scene = Scene::with_tab("A");
    scene.worker(command(13, "Page.createIsolatedWorld"));
    scene.browser(context("A", 1, "", true));
    scene.browser(context("A", 2, "", true));
    scene.browser(json!({"method": "Runtime.executionContextDestroyed", "sessionId": "A", "params": {"executionContextId": 1}}));
    scene.messages();
    scene.relay.settle(scene.now);
    assert_eq!(
        scene.to_browser(),
        ["Page.createIsolatedWorld A", "Page.getFrameTree A"]
    );
    scene.browser(context("A", 9, SHARED_WORLD, false));
    assert_eq!(
        texts(&mut scene)[0].1["params"]["context"]["name"],
        WORKER_NAME
    );
    scene.relay.run();
    scene.browser(
        json!({"method": "Runtime.executionContextsCleared", "sessionId": "A", "params": {}}),
    );
    scene.messages();
    scene.worker(command(20, "Page.createIsolatedWorld"));
    let messages = texts(&mut scene);
    assert!(!messages[0].0);
    assert_eq!(messages[0].1["params"]["worldName"], SHARED_WORLD);
}
