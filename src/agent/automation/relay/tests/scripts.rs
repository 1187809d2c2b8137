//! Page choice, phases and the end of a worker.

use super::*;

#[test]
fn warm_worker_gets_no_page_traffic_until_a_script_settles() {
    let mut scene = Scene::with_tab("A");
    scene
        .worker(json!({"id": 2, "method": "Network.enable", "sessionId": "A", "params": {"x": 1}}));
    assert_eq!(scene.messages(), [Message::Worker("reply 2".into())]);
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
        .take_actions()
        .iter()
        .map(|out| match out {
            RelayAction::ToBrowser(text) => serde_json::from_slice(text).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(enabled[0]["method"], "Network.enable");
    assert_eq!(enabled[0]["params"], json!({"x": 1}));
    assert_eq!(enabled[0]["sessionId"], "A");
    assert!(enabled[0]["id"].as_i64() >= Some(FIRST_RELAY_ID));
    assert_eq!(enabled[1]["method"], "Page.getFrameTree");
    assert_eq!(enabled.len(), 2);
    scene.event("A", "Network.requestWillBeSent");
    assert_eq!(scene.to_worker(), ["Network.requestWillBeSent"]);
}

#[test]
fn worker_that_is_behind_gets_no_page_traffic_between_calls() {
    let mut scene = Scene::running("A");
    for (is_behind, rests, expected) in [(true, false, 1), (false, true, 1), (true, true, 0)] {
        if rests {
            scene.relay.rest();
        }
        scene.relay.set_worker_behind(is_behind);
        scene.event("A", "Runtime.consoleAPICalled");
        assert_eq!(scene.to_worker().len(), expected, "{is_behind} {rests}");
    }
}

#[test]
fn only_tab_is_chosen_after_it_has_answered() {
    let mut scene = Scene::with_tab("A");
    scene.relay.settle(scene.now);
    assert_eq!(
        scene.choose_page(),
        PageChoice::Wait(scene.now + SETTLE_TIMEOUT)
    );
    scene.reply_to_probe(FIRST_RELAY_ID + 1, "A", "https://example.com/");
    assert_eq!(scene.choose_page(), PageChoice::Tab("T-A".into()));
}

#[test]
fn fresh_page_is_chosen_when_no_tab_is_usable() {
    assert_eq!(Scene::new().choose_page(), PageChoice::Fresh);
    for unfit in [
        "chrome://newtab/",
        "chrome://new-tab-page/",
        "devtools://devtools/x.html",
    ] {
        let mut scene = Scene::with_tab("A");
        scene.relay.settle(scene.now);
        scene.reply_to_probe(FIRST_RELAY_ID + 1, "A", unfit);
        assert_eq!(scene.choose_page(), PageChoice::Fresh, "{unfit}");
    }
}

#[test]
fn page_choice_follows_chromiums_order_and_skips_hung_tabs() {
    let mut scene = Scene::with_tab("A");
    scene.attach("B", "page", json!({}));
    scene.reply_to_probe(FIRST_RELAY_ID + 1, "B", "https://b.example/");
    scene.messages();
    scene.relay.settle(scene.now);
    let probes: HashMap<String, i64> = scene
        .messages()
        .into_iter()
        .filter_map(|message| match message {
            Message::Browser(id, _, session) => Some((session, id)),
            _ => None,
        })
        .collect();
    scene.reply_to_probe(probes["B"], "B", "https://b.example/");
    let order = ["T-A".to_owned(), "T-B".to_owned()];
    let front = |scene: &Scene, hung: &str| {
        scene
            .relay
            .choose_page(Some(&order), |target| target == hung, scene.now)
    };
    // The tab in front has a second to answer, unless it is known to be hung.
    assert_eq!(front(&scene, "T-A"), PageChoice::Tab("T-B".into()));
    assert_eq!(
        front(&scene, ""),
        PageChoice::Wait(scene.now + SETTLE_TIMEOUT)
    );
    let since = scene.now;
    scene.advance(SETTLE_TIMEOUT);
    assert_eq!(
        front(&scene, ""),
        PageChoice::Wait(since + HUNG_TAB_TIMEOUT)
    );
    scene.advance(HUNG_TAB_TIMEOUT - SETTLE_TIMEOUT);
    assert_eq!(front(&scene, ""), PageChoice::Tab("T-B".into()));
    scene.reply_to_probe(probes["A"], "A", "https://example.com/");
    assert_eq!(front(&scene, ""), PageChoice::Tab("T-A".into()));
}

#[test]
fn commands_that_act_are_rejected_between_calls_of_an_executor() {
    let add_script = "Page.addScriptToEvaluateOnNewDocument";
    for (method, params, is_sent) in [
        ("Runtime.evaluate", json!({}), false),
        ("Runtime.runScript", json!({}), false),
        ("Input.insertText", json!({}), false),
        ("Page.navigate", json!({}), false),
        ("Page.setDocumentContent", json!({}), false),
        ("Page.captureScreenshot", json!({}), false),
        ("DOM.setOuterHTML", json!({}), false),
        ("Storage.setCookies", json!({}), false),
        ("Target.createTarget", json!({}), false),
        ("Target.closeTarget", json!({}), false),
        (add_script, json!({ "runImmediately": true }), false),
        (add_script, json!({ "worldName": "x" }), false),
        ("Fetch.continueRequest", json!({}), true),
        ("Page.handleJavaScriptDialog", json!({}), true),
        ("Emulation.setEmulatedMedia", json!({}), true),
    ] {
        let mut scene = Scene::running("A");
        scene.relay.rest();
        for (id, session) in [(30, Some("A")), (31, Some("")), (32, None)] {
            scene.worker(
                json!({"id": id, "method": method, "params": params, "sessionId": session}),
            );
        }
        let sent = scene.to_browser();
        assert_eq!(sent.len(), if is_sent { 3 } else { 0 }, "{method} {params}");
    }
}

#[test]
fn new_tabs_are_set_up_between_calls_of_an_executor() {
    let mut scene = Scene::running("A");
    scene.relay.rest();
    scene.attach("B", "page", json!({}));
    scene.messages();
    let method = "Page.addScriptToEvaluateOnNewDocument";
    let of_setup = json!({"source": "", "runImmediately": true});
    let of_script = json!({"source": ""});
    for (id, session, params, answered_by) in [
        (30, "B", &of_setup, method),
        (31, "B", &of_script, "error 31"),
        (32, "A", &of_setup, "error 32"),
    ] {
        scene.worker(json!({"id": id, "method": method, "params": params, "sessionId": session}));
        let expected = match answered_by == method {
            true => Message::Browser(id, method.into(), session.into()),
            false => Message::Worker(answered_by.into()),
        };
        assert_eq!(scene.messages(), [expected]);
    }
}

#[test]
fn quiesce_waits_for_commands_of_a_dead_worker_and_terminate_stops_them() {
    let mut scene = Scene::running("A");
    assert!(!scene.relay.quiesce(scene.now));
    scene.worker(json!({"id": 40, "method": "Runtime.callFunctionOn", "sessionId": "A"}));
    scene.messages();
    assert!(scene.relay.quiesce(scene.now));
    assert_eq!(scene.to_browser(), ["Page.getFrameTree A"]);
    scene.relay.terminate();
    assert_eq!(scene.to_browser(), ["Runtime.terminateExecution A"]);
    scene.reply_to_probe(FIRST_RELAY_ID + 2, "A", "https://example.com/");
    assert!(scene.relay.is_quiet());
    scene.browser(json!({"id": 40, "result": {}, "sessionId": "A"}));

    scene.worker(json!({"id": 41, "method": "Target.createTarget"}));
    assert!(scene.relay.quiesce(scene.now));
    scene.browser(json!({"id": 41, "result": {"targetId": "T"}}));
    assert!(scene.relay.is_quiet());

    // A command that was not sent is not waited for.
    let unsent = json!({"id": 42, "method": "Target.createTarget"});
    scene.worker(unsent.clone());
    scene.relay.cancel_unsent(unsent.to_string().as_bytes());
    assert!(!scene.relay.quiesce(scene.now));
}

#[test]
fn invalid_worker_messages_are_violations() {
    let mut relay = new_relay();
    for (text, violation) in [
        ("nonsense", Violation::NotCdp),
        (r#"{"method":"X"}"#, Violation::NotCdp),
        (r#"{"id":1073741824,"method":"X"}"#, Violation::ReservedId),
        (r#"{"id":-1,"method":"X"}"#, Violation::ReservedId),
        (
            r#"{"id":1,"method":"Page.enable","method":"Browser.close"}"#,
            Violation::NotCdp,
        ),
    ] {
        assert_eq!(
            relay.from_worker(Bytes::from_static(text.as_bytes())),
            Err(violation)
        );
    }
    let pending = Bytes::from_static(br#"{"id":1,"method":"Page.enable"}"#);
    assert_eq!(relay.from_worker(pending.clone()), Ok(()));
    assert_eq!(relay.from_worker(pending), Err(Violation::DuplicateId));
    let flood = (2..=MAX_PENDING_COMMANDS as i64 + 1)
        .map(|id| relay.from_worker(format!(r#"{{"id":{id},"method":"Page.enable"}}"#).into()));
    assert_eq!(flood.last(), Some(Err(Violation::PendingCommands)));
}
