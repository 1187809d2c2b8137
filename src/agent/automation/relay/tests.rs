use serde_json::{Value, json};

use super::*;

/// A relay with a clock, whose worker has asked to be attached.
struct Scene {
    relay: Relay,
    now: Instant,
}

/// A message, by what the relay looks at: `id` or `method`, and the session.
#[derive(Debug, PartialEq)]
enum Sent {
    Browser(i64, String, String),
    Worker(String),
    Other(Out),
}

impl Scene {
    fn new() -> Self {
        let mut scene = Scene {
            relay: Relay::default(),
            now: Instant::now(),
        };
        scene.worker(
            json!({"id": 1, "method": "Target.setAutoAttach", "params": {"autoAttach": true}}),
        );
        let sent = scene.sent();
        assert!(
            matches!(&sent[..], [Sent::Browser(1, method, _)] if method == "Target.setAutoAttach")
        );
        scene
    }

    /// One healthy tab, attached and announced.
    fn with_tab(session: &str) -> Self {
        let mut scene = Scene::new();
        scene.attach(session, "page", json!({}));
        scene.browser(json!({"id": 1, "result": {}}));
        scene.answer(FIRST_OWN_ID, session, "https://example.com/");
        assert_eq!(scene.to_worker(), ["Target.attachedToTarget", "reply 1"]);
        scene
    }

    fn running(session: &str) -> Self {
        let mut scene = Self::with_tab(session);
        scene.relay.settle(scene.now);
        scene.sent();
        scene.answer(FIRST_OWN_ID + 1, session, "https://example.com/");
        scene.relay.run();
        scene.sent();
        scene
    }

    fn browser(&mut self, message: Value) {
        self.relay
            .from_browser(message.to_string().into(), self.now)
            .unwrap();
    }

    fn worker(&mut self, message: Value) {
        self.relay.from_worker(message.to_string().into()).unwrap();
    }

    fn attach(&mut self, session: &str, kind: &str, more: Value) {
        let mut info = json!({"targetId": format!("T-{session}"), "type": kind, "url": ""});
        info.as_object_mut()
            .unwrap()
            .extend(more["info"].as_object().cloned().unwrap_or_default());
        let mut event = json!({
            "method": "Target.attachedToTarget",
            "params": {"sessionId": session, "targetInfo": info, "waitingForDebugger": more["waits"] == true},
        });
        if let Some(parent) = more["parent"].as_str() {
            event["sessionId"] = parent.into();
        }
        self.browser(event);
    }

    fn answer(&mut self, id: i64, session: &str, url: &str) {
        self.browser(json!({"id": id, "result": {"frameTree": {"frame": {"id": "F", "url": url}}}, "sessionId": session}));
    }

    fn event(&mut self, session: &str, method: &str) {
        self.browser(json!({"method": method, "params": {}, "sessionId": session}));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.relay.tick(self.now);
    }

    fn sent(&mut self) -> Vec<Sent> {
        let text = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).unwrap();
        self.relay
            .take_out()
            .into_iter()
            .map(|out| match out {
                Out::ToBrowser(bytes) => {
                    let message = text(&bytes);
                    let word = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
                    Sent::Browser(
                        message["id"].as_i64().unwrap(),
                        word("method"),
                        word("sessionId"),
                    )
                }
                Out::ToWorker(bytes) => {
                    let message = text(&bytes);
                    Sent::Worker(match (message["id"].as_i64(), message["method"].as_str()) {
                        (Some(id), _) if message.get("error").is_some() => format!("error {id}"),
                        (Some(id), _) => format!("reply {id}"),
                        (None, Some(method)) => method.to_owned(),
                        (None, None) => panic!("{message}"),
                    })
                }
                other => Sent::Other(other),
            })
            .collect()
    }

    fn to_worker(&mut self) -> Vec<String> {
        self.sent()
            .into_iter()
            .filter_map(|sent| match sent {
                Sent::Worker(what) => Some(what),
                _ => None,
            })
            .collect()
    }

    fn to_browser(&mut self) -> Vec<String> {
        self.sent()
            .into_iter()
            .filter_map(|sent| match sent {
                Sent::Browser(_, method, session) => Some(format!("{method} {session}")),
                _ => None,
            })
            .collect()
    }

    fn front(&self) -> Front {
        self.relay.front(None, |_| false, self.now)
    }
}

/// What Chromium 156 said while one tab was healthy, one had been opened by `window.open('data:…')` and one looped.
#[test]
fn of_recorded_tabs_the_worker_sees_the_healthy_one_alone() {
    let recorded = include_str!("recorded/hung_tabs.jsonl");
    let mut scene = Scene {
        relay: Relay::default(),
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
    scene.pass(HOLD_ATTACH);
    assert_eq!(scene.to_worker(), ["reply 2"]);
    assert_eq!(scene.relay.tabs(), 3);
    scene.pass(SILENT_AFTER - HOLD_ATTACH);
    assert_eq!(
        scene.sent(),
        [Sent::Other(Out::Silent(
            "A7D4EF50B9CE47CEE82480A094EC0D2C".into()
        ))]
    );
    scene.relay.settle(scene.now);
    let (healthy, half) = (
        "023A8A7392F24A27D35464FE02AD9CC5",
        "FA3B5586BE657C1DA5EA25B0D7E4FB1B",
    );
    for sent in scene.sent() {
        match sent {
            Sent::Browser(id, _, session) if session == healthy => {
                scene.answer(id, healthy, "data:text/html,first");
            }
            Sent::Browser(id, _, session) if session == half => scene.answer(id, half, ""),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        scene.front(),
        Front::Tab("3CBF9EE894D21CA244845AAD523B0435".into())
    );
}

#[test]
fn a_tab_that_answers_late_is_announced_then() {
    let mut scene = Scene::new();
    scene.attach("A", "page", json!({}));
    scene.browser(json!({"id": 1, "result": {}}));
    assert!(scene.to_worker().is_empty());
    assert_eq!(scene.relay.deadline(), Some(scene.now + HOLD_ATTACH));
    scene.pass(HOLD_ATTACH);
    assert_eq!(scene.to_worker(), ["reply 1"]);
    scene.event("A", "Page.lifecycleEvent");
    assert!(scene.to_worker().is_empty());
    scene.answer(FIRST_OWN_ID, "A", "about:blank");
    assert_eq!(scene.to_worker(), ["Target.attachedToTarget"]);
    scene.event("A", "Page.lifecycleEvent");
    assert_eq!(scene.to_worker(), ["Page.lifecycleEvent"]);
}

#[test]
fn a_tab_without_a_first_navigation_is_announced_when_it_has_one() {
    let mut scene = Scene::new();
    scene.attach("A", "page", json!({}));
    scene.answer(FIRST_OWN_ID, "A", "");
    assert!(scene.to_browser().contains(&"Page.enable A".to_owned()));
    scene.answer(FIRST_OWN_ID + 2, "A", "");
    scene.browser(json!({"id": 1, "result": {}}));
    // It does not hold up the attaching.
    assert_eq!(scene.to_worker(), ["reply 1"]);
    scene.event("A", "Page.frameNavigated");
    assert_eq!(scene.to_browser(), ["Page.getFrameTree A"]);
    scene.answer(FIRST_OWN_ID + 3, "A", "https://example.com/");
    assert_eq!(scene.to_worker(), ["Target.attachedToTarget"]);
}

#[test]
fn a_tab_that_goes_before_it_answered_was_never_there() {
    let mut scene = Scene::new();
    scene.attach("A", "page", json!({}));
    scene.browser(json!({"id": 1, "result": {}}));
    let gone = json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "A", "targetId": "T-A"}});
    scene.browser(gone.clone());
    assert_eq!(scene.to_worker(), ["reply 1"]);

    let mut scene = Scene::with_tab("A");
    scene.browser(gone);
    assert_eq!(
        scene.sent(),
        [
            Sent::Other(Out::Gone("T-A".into())),
            Sent::Worker("Target.detachedFromTarget".into())
        ]
    );
}

#[test]
fn tabs_of_others_run_at_once() {
    for mut scene in [Scene::with_tab("A"), Scene::running("A")] {
        scene.attach("B", "page", json!({"waits": true}));
        scene.attach("W", "worker", json!({"waits": true, "parent": "A"}));
        let released = scene.to_browser();
        assert!(released.contains(&"Runtime.runIfWaitingForDebugger B".to_owned()));
        assert!(released.contains(&"Runtime.runIfWaitingForDebugger W".to_owned()));
    }
}

#[test]
fn its_own_tabs_wait_for_playwright_but_not_for_ever() {
    let mut scene = Scene::running("A");
    scene.worker(
        json!({"id": 7, "method": "Target.createTarget", "params": {"url": "about:blank"}}),
    );
    scene.sent();
    scene.attach("B", "page", json!({"waits": true}));
    assert_eq!(
        scene.sent(),
        [Sent::Worker("Target.attachedToTarget".into())]
    );
    scene.browser(json!({"id": 7, "result": {"targetId": "T-B"}}));
    scene.pass(RELEASE_AFTER);
    assert_eq!(scene.to_browser(), ["Runtime.runIfWaitingForDebugger B"]);

    // A pop-up of a page that the script acts in is its own as well; Playwright lets it run.
    let mut scene = Scene::running("A");
    scene.worker(json!({"id": 8, "method": "Input.dispatchMouseEvent", "sessionId": "A"}));
    scene.sent();
    scene.attach(
        "C",
        "page",
        json!({"waits": true, "info": {"openerId": "T-A"}}),
    );
    assert_eq!(
        scene.sent(),
        [Sent::Worker("Target.attachedToTarget".into())]
    );
    scene.worker(json!({"id": 9, "method": "Runtime.runIfWaitingForDebugger", "sessionId": "C"}));
    scene.sent();
    scene.pass(RELEASE_AFTER);
    assert!(scene.to_browser().is_empty());
}

#[test]
fn a_waiting_worker_is_left_in_peace_until_a_script_comes() {
    let mut scene = Scene::with_tab("A");
    scene
        .worker(json!({"id": 2, "method": "Network.enable", "sessionId": "A", "params": {"x": 1}}));
    assert_eq!(scene.sent(), [Sent::Worker("reply 2".into())]);
    for noise in [
        "Network.requestWillBeSent",
        "Runtime.consoleAPICalled",
        "Log.entryAdded",
    ] {
        scene.event("A", noise);
    }
    assert!(scene.to_worker().is_empty());
    scene.event("A", "Page.frameNavigated");
    assert_eq!(scene.to_worker(), ["Page.frameNavigated"]);
    scene.relay.settle(scene.now);
    let enabled: Vec<Value> = scene
        .relay
        .take_out()
        .iter()
        .map(|out| match out {
            Out::ToBrowser(text) => serde_json::from_slice(text).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(enabled[0]["method"], "Network.enable");
    assert_eq!(enabled[0]["params"], json!({"x": 1}));
    assert_eq!(enabled[0]["sessionId"], "A");
    assert!(enabled[0]["id"].as_i64() >= Some(FIRST_OWN_ID));
    assert_eq!(enabled[1]["method"], "Page.getFrameTree");
    assert_eq!(enabled.len(), 2);
    scene.event("A", "Network.requestWillBeSent");
    assert_eq!(scene.to_worker(), ["Network.requestWillBeSent"]);
}

/// A context as Chromium tells of it.
fn context(session: &str, id: i64, name: &str, main: bool) -> Value {
    json!({
        "method": "Runtime.executionContextCreated",
        "params": {"context": {"id": id, "name": name, "auxData": {"isDefault": main, "frameId": "F"}}},
        "sessionId": session,
    })
}

#[test]
fn workers_share_one_isolated_world() {
    let own = "__playwright_utility_world_page@1";
    let ask = |id: i64, method: &str| {
        json!({"id": id, "method": method, "sessionId": "A",
            "params": {"source": "", "frameId": "F", "worldName": own, "grantUniveralAccess": true}})
    };
    let texts = |scene: &mut Scene| -> Vec<(bool, Value)> {
        let text = |bytes: &Bytes| serde_json::from_slice(bytes).unwrap();
        let out = scene.relay.take_out();
        out.iter()
            .map(|out| match out {
                Out::ToWorker(bytes) => (true, text(bytes)),
                Out::ToBrowser(bytes) => (false, text(bytes)),
                other => panic!("{other:?}"),
            })
            .collect()
    };

    // A waiting worker makes none, and takes the one that is there.
    let mut scene = Scene::with_tab("A");
    scene.browser(context("A", 1, "", true));
    scene.browser(context("A", 2, WORLD, false));
    scene.browser(context(
        "A",
        3,
        "__playwright_utility_world_page@another",
        false,
    ));
    assert_eq!(scene.to_worker(), ["Runtime.executionContextCreated"]);
    scene.worker(ask(8, "Page.addScriptToEvaluateOnNewDocument"));
    scene.worker(ask(13, "Page.createIsolatedWorld"));
    let sent = texts(&mut scene);
    assert_eq!(sent.len(), 3);
    assert_eq!(sent[0].1["params"]["context"]["name"], own);
    assert_eq!(sent[1].1["id"], 8);
    assert_eq!(sent[2].1["result"]["executionContextId"], 2);
    // Of another one in the same frame it is not told.
    scene.browser(context("A", 4, WORLD, false));
    assert!(texts(&mut scene).is_empty());
    scene.relay.settle(scene.now);
    let sent = texts(&mut scene);
    assert_eq!(sent[0].1["method"], "Page.addScriptToEvaluateOnNewDocument");
    assert_eq!(sent[0].1["params"]["worldName"], WORLD);
    assert_eq!(sent[1].1["method"], "Page.getFrameTree");

    // Where there is none, it is made when a script comes.
    let mut scene = Scene::with_tab("A");
    scene.worker(ask(13, "Page.createIsolatedWorld"));
    scene.browser(context("A", 1, "", true));
    scene.browser(context("A", 2, "", true));
    scene.browser(json!({"method": "Runtime.executionContextDestroyed", "sessionId": "A", "params": {"executionContextId": 1}}));
    scene.sent();
    scene.relay.settle(scene.now);
    assert_eq!(
        scene.to_browser(),
        ["Page.createIsolatedWorld A", "Page.getFrameTree A"]
    );
    scene.browser(context("A", 9, WORLD, false));
    assert_eq!(texts(&mut scene)[0].1["params"]["context"]["name"], own);
    scene.relay.run();
    scene.browser(
        json!({"method": "Runtime.executionContextsCleared", "sessionId": "A", "params": {}}),
    );
    scene.sent();
    scene.worker(ask(20, "Page.createIsolatedWorld"));
    let sent = texts(&mut scene);
    assert!(!sent[0].0);
    assert_eq!(sent[0].1["params"]["worldName"], WORLD);
}

#[test]
fn an_idle_worker_leaves_dialogs_alone() {
    let mut scene = Scene::with_tab("A");
    scene.event("A", "Page.javascriptDialogOpening");
    scene.event("A", "Page.javascriptDialogClosed");
    assert!(scene.to_worker().is_empty());
    // One that nobody has closed is told of when a script comes.
    scene.event("A", "Page.javascriptDialogOpening");
    scene.relay.settle(scene.now);
    assert_eq!(scene.to_worker(), ["Page.javascriptDialogOpening"]);
    scene.event("A", "Page.javascriptDialogClosed");
    assert_eq!(scene.to_worker(), ["Page.javascriptDialogClosed"]);
}

#[test]
fn the_only_tab_is_in_front_once_it_has_answered() {
    let mut scene = Scene::with_tab("A");
    scene.relay.settle(scene.now);
    assert_eq!(scene.front(), Front::Wait(scene.now + SETTLE));
    scene.answer(FIRST_OWN_ID + 1, "A", "https://example.com/");
    assert_eq!(scene.front(), Front::Tab("T-A".into()));
}

#[test]
fn the_new_tab_page_and_nothing_ask_for_a_fresh_tab() {
    assert_eq!(Scene::new().front(), Front::Fresh);
    for unfit in [
        "chrome://newtab/",
        "chrome://new-tab-page/",
        "devtools://devtools/x.html",
    ] {
        let mut scene = Scene::with_tab("A");
        scene.relay.settle(scene.now);
        scene.answer(FIRST_OWN_ID + 1, "A", unfit);
        assert_eq!(scene.front(), Front::Fresh, "{unfit}");
    }
}

#[test]
fn chromiums_order_decides_and_a_hung_tab_is_skipped() {
    let mut scene = Scene::with_tab("A");
    scene.attach("B", "page", json!({}));
    scene.answer(FIRST_OWN_ID + 1, "B", "https://b.example/");
    scene.sent();
    scene.relay.settle(scene.now);
    let asked: HashMap<String, i64> = scene
        .sent()
        .into_iter()
        .filter_map(|sent| match sent {
            Sent::Browser(id, _, session) => Some((session, id)),
            _ => None,
        })
        .collect();
    scene.answer(asked["B"], "B", "https://b.example/");
    let order = ["T-A".to_owned(), "T-B".to_owned()];
    let front = |scene: &Scene, hung: &str| {
        scene
            .relay
            .front(Some(&order), |target| target == hung, scene.now)
    };
    // The tab in front has a second to answer, unless it is known to hang.
    assert_eq!(front(&scene, "T-A"), Front::Tab("T-B".into()));
    assert_eq!(front(&scene, ""), Front::Wait(scene.now + SETTLE));
    let since = scene.now;
    scene.pass(SETTLE);
    assert_eq!(front(&scene, ""), Front::Wait(since + SILENT_AFTER));
    scene.pass(SILENT_AFTER - SETTLE);
    assert_eq!(front(&scene, ""), Front::Tab("T-B".into()));
    scene.answer(asked["A"], "A", "https://example.com/");
    assert_eq!(front(&scene, ""), Front::Tab("T-A".into()));
}

#[test]
fn what_an_executor_left_behind_does_not_act_between_calls() {
    let mut scene = Scene::running("A");
    scene.relay.rest();
    scene.worker(json!({"id": 30, "method": "Runtime.evaluate", "sessionId": "A"}));
    scene.worker(json!({"id": 31, "method": "Fetch.continueRequest", "sessionId": "A"}));
    assert_eq!(
        scene.sent(),
        [
            Sent::Worker("error 30".into()),
            Sent::Browser(31, "Fetch.continueRequest".into(), "A".into())
        ]
    );
}

#[test]
fn a_dead_workers_commands_are_waited_for_and_their_code_is_stopped() {
    let mut scene = Scene::running("A");
    assert!(!scene.relay.quiesce(scene.now));
    scene.worker(json!({"id": 40, "method": "Runtime.callFunctionOn", "sessionId": "A"}));
    scene.sent();
    assert!(scene.relay.quiesce(scene.now));
    assert_eq!(scene.to_browser(), ["Page.getFrameTree A"]);
    scene.relay.terminate();
    assert_eq!(scene.to_browser(), ["Runtime.terminateExecution A"]);
    scene.answer(FIRST_OWN_ID + 2, "A", "https://example.com/");
    assert!(scene.relay.is_quiet());
    scene.browser(json!({"id": 40, "result": {}, "sessionId": "A"}));

    scene.worker(json!({"id": 41, "method": "Target.createTarget"}));
    assert!(scene.relay.quiesce(scene.now));
    scene.browser(json!({"id": 41, "result": {"targetId": "T"}}));
    assert!(scene.relay.is_quiet());

    // What was not sent is not waited for.
    let unsent = json!({"id": 42, "method": "Target.createTarget"});
    scene.worker(unsent.clone());
    scene.relay.unsent(unsent.to_string().as_bytes());
    assert!(!scene.relay.quiesce(scene.now));
}

#[test]
fn a_worker_that_breaks_the_rules_is_found_out() {
    let mut relay = Relay::default();
    for (text, violation) in [
        ("nonsense", Violation::NotCdp),
        (r#"{"method":"X"}"#, Violation::NotCdp),
        (r#"{"id":1073741824,"method":"X"}"#, Violation::ReservedId),
        (r#"{"id":-1,"method":"X"}"#, Violation::ReservedId),
    ] {
        assert_eq!(
            relay.from_worker(Bytes::from_static(text.as_bytes())),
            Err(violation)
        );
    }
    let flood = (0..=MAX_UNANSWERED as i64)
        .map(|id| relay.from_worker(format!(r#"{{"id":{id},"method":"X"}}"#).into()));
    assert_eq!(flood.last(), Some(Err(Violation::Unanswered)));
}

#[test]
fn a_workers_wish_for_downloads_leaves_the_browsers_setting_alone() {
    let mut scene = Scene::running("S");
    scene.relay.place = DownloadsPlace {
        folder: "/state/downloads".into(),
        events_context: Some("EVENTS".into()),
    };
    let mut asked = |params: Value| {
        scene.worker(json!({"id": 7, "method": "Browser.setDownloadBehavior", "params": params}));
        let out = scene.relay.take_out();
        let told = out.contains(&Out::Downloads);
        let Some(Out::ToBrowser(text)) = out.into_iter().next_back() else {
            panic!("nothing for the browser");
        };
        let text: Value = serde_json::from_slice(&text).unwrap();
        (text["params"].clone(), told)
    };
    let mine =
        json!({"behavior": "allowAndName", "downloadPath": "/elsewhere", "eventsEnabled": true});
    let events =
        json!({"behavior": "default", "browserContextId": "EVENTS", "eventsEnabled": true});
    assert_eq!(asked(mine), (events, true));
    let own = json!({"behavior": "allow", "browserContextId": "OWN", "downloadPath": "/elsewhere", "eventsEnabled": true});
    let fixed = json!({
        "behavior": "allowAndName", "browserContextId": "OWN",
        "downloadPath": "/state/downloads", "eventsEnabled": true,
    });
    assert_eq!(asked(own), (fixed, false));
}

#[test]
fn a_download_is_given_before_it_is_told_and_only_under_a_plain_name() {
    let mut scene = Scene::running("S");
    let begin = |guid: &str| json!({"method": "Browser.downloadWillBegin", "params": {"guid": guid, "url": "u"}});
    let complete = |guid: &str| {
        json!({"method": "Browser.downloadProgress",
            "params": {"guid": guid, "state": "completed", "filePath": "/state/downloads/x"}})
    };
    let long = "a".repeat(65);
    for guid in ["", "../../x", "a/b", ".downloads", long.as_str()] {
        scene.browser(begin(guid));
        scene.browser(complete(guid));
        assert_eq!(scene.relay.take_out(), [], "{guid}");
    }
    scene.browser(begin("ab-12"));
    assert_eq!(
        scene.relay.take_out(),
        [
            Out::Download("ab-12".into()),
            Out::ToWorker(begin("ab-12").to_string().into())
        ]
    );
    scene.browser(complete("ab-12"));
    let given = Downloaded {
        guid: "ab-12".into(),
        path: Some("/state/downloads/x".into()),
        event: complete("ab-12").to_string().into(),
    };
    assert_eq!(scene.relay.take_out(), [Out::Downloaded(given)]);
    // Between two scripts of an executor, downloads are others'.
    scene.relay.rest();
    scene.relay.take_out();
    scene.browser(begin("cd-34"));
    scene.browser(complete("cd-34"));
    scene.browser(complete("ab-12"));
    assert_eq!(scene.relay.take_out(), []);
}
