//! Downloads.

use super::*;

fn scene_with_directory() -> Scene {
    let mut scene = Scene::running("S");
    scene.relay.download_settings = DownloadSettings {
        directory: "/state/downloads".into(),
        events_context: Some("EVENTS".into()),
    };
    scene
}

#[test]
fn download_behavior_of_a_worker_keeps_the_agents_directory() {
    let mut scene = scene_with_directory();
    let set_behavior = |scene: &mut Scene, params: Value| {
        scene.worker(json!({"id": 7, "method": "Browser.setDownloadBehavior", "params": params}));
        scene.relay.pending_commands.clear();
        let actions = scene.relay.take_actions();
        let renews = actions.contains(&RelayAction::RenewDownloadSetting);
        let Some(RelayAction::ToBrowser(text)) = actions.into_iter().next_back() else {
            panic!("nothing for the browser");
        };
        let text: Value = serde_json::from_slice(&text).unwrap();
        (text["params"].clone(), renews)
    };
    let default_context =
        json!({"behavior": "allowAndName", "downloadPath": "/elsewhere", "eventsEnabled": true});
    let events =
        json!({"behavior": "default", "browserContextId": "EVENTS", "eventsEnabled": true});
    assert_eq!(
        set_behavior(&mut scene, default_context),
        (events.clone(), true)
    );
    let in_context = |id: &str| json!({"behavior": "allow", "browserContextId": id, "downloadPath": "/elsewhere", "eventsEnabled": true});
    // A context of another client keeps its setting.
    assert_eq!(
        set_behavior(&mut scene, in_context("OTHER")),
        (events, true)
    );
    scene.relay.contexts.insert("OWN".into());
    assert_eq!(
        set_behavior(&mut scene, in_context("OWN")),
        (fixed("allowAndName"), false)
    );
}

/// The parameters for a context of the script.
fn fixed(behavior: &str) -> Value {
    json!({
        "behavior": behavior, "browserContextId": "OWN",
        "downloadPath": "/state/downloads", "eventsEnabled": true,
    })
}

/// Returns the commands for the browser, reduced to method, parameters and session.
fn commands(scene: &mut Scene) -> Vec<(Value, Value, Value)> {
    let actions = scene.relay.take_actions().into_iter();
    actions
        .filter_map(|action| match action {
            RelayAction::ToBrowser(text) => serde_json::from_slice::<Value>(&text).ok(),
            _ => None,
        })
        .map(|command| {
            let member = |name: &str| command[name].clone();
            (member("method"), member("params"), member("sessionId"))
        })
        .collect()
}

#[test]
fn new_context_denies_downloads_and_ends_with_the_worker() {
    let mut scene = scene_with_directory();
    let create = json!({"disposeOnDetach": false, "proxyServer": "http://localhost:1"});
    scene.worker(json!({"id": 7, "method": "Target.createBrowserContext", "params": create}));
    let disposable = json!({"disposeOnDetach": true, "proxyServer": "http://localhost:1"});
    assert_eq!(
        commands(&mut scene),
        [(
            "Target.createBrowserContext".into(),
            disposable,
            Value::Null
        )]
    );
    scene.browser(json!({"id": 7, "result": {"browserContextId": "OWN"}}));
    let actions = scene.relay.take_actions();
    // The setting is sent before the worker can use the context.
    let [RelayAction::ToBrowser(denial), RelayAction::ToWorker(_)] = &actions[..] else {
        panic!("{actions:?}");
    };
    let denial: Value = serde_json::from_slice(denial).unwrap();
    assert_eq!(denial["method"], "Browser.setDownloadBehavior");
    assert_eq!(denial["params"], fixed("deny"));
}

#[test]
fn download_behavior_of_a_session_is_set_by_the_connection() {
    let mut scene = scene_with_directory();
    scene.relay.contexts.insert("OWN".into());
    let params = json!({"behavior": "allow", "browserContextId": "OWN", "downloadPath": "/x"});
    scene.worker(
        json!({"id": 7, "method": "Browser.setDownloadBehavior", "params": params, "sessionId": "S"}),
    );
    let method = Value::from("Browser.setDownloadBehavior");
    let events =
        json!({"behavior": "default", "browserContextId": "EVENTS", "eventsEnabled": false});
    assert_eq!(
        commands(&mut scene),
        [
            (method.clone(), fixed("allowAndName"), Value::Null),
            (method, events, "S".into())
        ]
    );
}

#[test]
fn download_behavior_of_a_page_is_not_forwarded() {
    let mut scene = scene_with_directory();
    let params = json!({"behavior": "allow", "downloadPath": "/etc"});
    scene.worker(
        json!({"id": 7, "method": "Page.setDownloadBehavior", "params": params, "sessionId": "S"}),
    );
    assert_eq!(
        scene.messages(),
        [
            Message::Other(RelayAction::RenewDownloadSetting),
            Message::Worker("reply 7".into())
        ]
    );
}

#[test]
fn complete_download_is_delivered_before_its_event_and_only_with_a_plain_guid() {
    let mut scene = Scene::running("S");
    let will_begin = |guid: &str| json!({"method": "Browser.downloadWillBegin", "params": {"guid": guid, "url": "u"}});
    let complete = |guid: &str| {
        json!({"method": "Browser.downloadProgress",
            "params": {"guid": guid, "state": "completed", "filePath": "/state/downloads/x"}})
    };
    let long = "a".repeat(65);
    for guid in ["", "../../x", "a/b", ".downloads", long.as_str()] {
        scene.browser(will_begin(guid));
        scene.browser(complete(guid));
        assert_eq!(scene.relay.take_actions(), [], "{guid}");
    }
    scene.browser(will_begin("ab-12"));
    assert_eq!(
        scene.relay.take_actions(),
        [
            RelayAction::DownloadStarted("ab-12".into()),
            RelayAction::ToWorker(will_begin("ab-12").to_string().into())
        ]
    );
    scene.browser(complete("ab-12"));
    let completed = CompletedDownload {
        guid: "ab-12".into(),
        path: Some("/state/downloads/x".into()),
        event: complete("ab-12").to_string().into(),
    };
    assert_eq!(
        scene.relay.take_actions(),
        [RelayAction::DownloadCompleted(completed)]
    );
    // Between two scripts of an executor, downloads are ignored.
    scene.relay.rest();
    scene.relay.take_actions();
    scene.browser(will_begin("cd-34"));
    scene.browser(complete("cd-34"));
    scene.browser(complete("ab-12"));
    assert_eq!(scene.relay.take_actions(), []);
}
