//! Downloads.

use super::*;

#[test]
fn download_behavior_of_a_worker_keeps_the_agents_directory() {
    let mut scene = Scene::running("S");
    scene.relay.download_settings = DownloadSettings {
        directory: "/state/downloads".into(),
        events_context: Some("EVENTS".into()),
    };
    let mut set_behavior = |params: Value| {
        scene.worker(json!({"id": 7, "method": "Browser.setDownloadBehavior", "params": params}));
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
    assert_eq!(set_behavior(default_context), (events, true));
    let own_context = json!({"behavior": "allow", "browserContextId": "OWN", "downloadPath": "/elsewhere", "eventsEnabled": true});
    let fixed = json!({
        "behavior": "allowAndName", "browserContextId": "OWN",
        "downloadPath": "/state/downloads", "eventsEnabled": true,
    });
    assert_eq!(set_behavior(own_context), (fixed, false));
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
