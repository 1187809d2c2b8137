//! Commands that a script may send to the browser, and others.

use std::fs;

use super::*;
use crate::system::cdp::policy::{self, Caller};

/// Sends a command and returns the error that the worker gets, if any. Then nothing is sent to the
/// browser.
fn refusal(scene: &mut Scene, command: &str) -> Option<String> {
    scene.relay.pending_commands.clear();
    scene.relay.from_worker(command.to_owned().into()).unwrap();
    let actions = scene.relay.take_actions();
    let errors: Vec<String> = actions
        .iter()
        .filter_map(|action| match action {
            RelayAction::ToWorker(text) => serde_json::from_slice::<Value>(text).ok(),
            _ => None,
        })
        .filter_map(|reply| Some(reply["error"]["message"].as_str()?.to_owned()))
        .collect();
    if !errors.is_empty() {
        assert_eq!(actions.len(), 1, "{command}: {actions:?}");
    }
    errors.into_iter().next()
}

/// Returns the command at the level of the browser and in a session.
fn commands(method: &str, params: &Value) -> [String; 2] {
    [
        json!({"id": 7, "method": method, "params": params}).to_string(),
        json!({"id": 7, "method": method, "params": params, "sessionId": "A"}).to_string(),
    ]
}

#[test]
fn methods_that_a_script_may_not_call_are_refused_by_name() {
    let mut scene = Scene::running("A");
    let unknown = ["", "Page", "page.enable", "Page.inventedLater"];
    let unknown = unknown.map(|method| (method.to_owned(), false));
    let listed =
        policy::methods().map(|(method, callers)| (method, callers.contains(&Caller::Script)));
    for (method, is_permitted) in listed.chain(unknown) {
        let message = format!("{method} is not available in a script");
        for command in commands(&method, &json!({"browserContextId": "OWN"})) {
            scene.relay.contexts.insert("OWN".into());
            let expected = (!is_permitted).then(|| message.clone());
            assert_eq!(refusal(&mut scene, &command), expected, "{command}");
        }
    }
    // Neither escapes nor the order of members hide a method.
    for command in [
        r#"{"id":7,"\u006dethod":"\u0042rowser.close"}"#,
        r#"{"sessionId":"A","params":{"method":"Page.enable"},"method":"Browser.close","id":7}"#,
    ] {
        let message = "Browser.close is not available in a script";
        assert_eq!(refusal(&mut scene, command).as_deref(), Some(message));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn parameters_beyond_the_script_are_refused() {
    let mut scene = Scene::running("A");
    let files = |paths: &[&str]| json!({ "files": paths });
    let drag = |paths: &[&str]| json!({"type": "drop", "data": {"items": [], "files": paths}});
    let to = |url: &str| json!({ "url": url });
    let rows = [
        (
            "DOM.setFileInputFiles",
            files(&["/state/scratch/7/a", "/state/scratch/7/b/c.txt"]),
            None,
        ),
        ("DOM.setFileInputFiles", files(&["/state/scratch/7"]), None),
        ("DOM.setFileInputFiles", json!({}), None),
        (
            "DOM.setFileInputFiles",
            files(&["/state/scratch/7/a", "/etc/passwd"]),
            Some("'/etc/passwd' is not in"),
        ),
        (
            "DOM.setFileInputFiles",
            files(&["/state/scratch/7/../8/a"]),
            Some("/state/scratch/7"),
        ),
        (
            "DOM.setFileInputFiles",
            files(&["/state/scratch/77"]),
            Some("permission denied"),
        ),
        (
            "DOM.setFileInputFiles",
            files(&["a"]),
            Some("permission denied"),
        ),
        (
            "DOM.setFileInputFiles",
            files(&[""]),
            Some("permission denied"),
        ),
        (
            "DOM.setFileInputFiles",
            json!({"files": "/etc/passwd"}),
            Some("invalid parameters"),
        ),
        ("Input.dispatchDragEvent", json!({"type": "drop"}), None),
        (
            "Input.dispatchDragEvent",
            drag(&["/state/scratch/7/a"]),
            None,
        ),
        (
            "Input.dispatchDragEvent",
            drag(&["/etc/passwd"]),
            Some("permission denied"),
        ),
        (
            "Target.createBrowserContext",
            json!({"proxyServer": "http://127.0.0.1:1"}),
            None,
        ),
        (
            "Target.createBrowserContext",
            json!({"originsWithUniversalNetworkAccess": ["http://a"]}),
            Some("originsWithUniversalNetworkAccess"),
        ),
        (
            "Target.createBrowserContext",
            json!([]),
            Some("invalid parameters"),
        ),
        (
            "Target.disposeBrowserContext",
            json!({"browserContextId": "OTHER"}),
            Some("has not created"),
        ),
        ("Target.createTarget", to("about:blank"), None),
        ("Target.createTarget", to(""), None),
        (
            "Target.createTarget",
            to("https://example.com/chrome:"),
            None,
        ),
        ("Target.createTarget", to("chrome://quit"), Some("'chrome:")),
        (
            "Target.createTarget",
            to(" \u{1}CHR\nOME://quit"),
            Some("Chromium's own pages"),
        ),
        (
            "Target.createTarget",
            to("devtools://devtools/bundled/inspector.html"),
            Some("'devtools:"),
        ),
        ("Page.navigate", to("file:///tmp/page.html"), None),
        ("Page.navigate", to("chrome://settings"), Some("'chrome:")),
        (
            "Page.navigate",
            to("View-Source:view-source:chrome://settings"),
            Some("Chromium's own pages"),
        ),
        ("Page.navigate", to("view-source:http://example.com"), None),
        (
            "Page.navigate",
            to(&format!("{}chrome:quit", "view-source:".repeat(1 << 20))),
            Some("Chromium's own pages"),
        ),
        (
            "Page.navigate",
            json!({"url": "https://example.com/", "transitionType": "address_bar"}),
            Some("`transitionType`"),
        ),
        (
            "Page.navigate",
            to("devtools://devtools/bundled/inspector.html"),
            Some("'devtools:"),
        ),
        (
            "Tracing.start",
            json!({"transferMode": "ReturnAsStream", "categories": "toplevel"}),
            None,
        ),
        (
            "Tracing.start",
            json!({"perfettoConfig": "AA=="}),
            Some("`perfettoConfig`"),
        ),
        (
            "Tracing.start",
            json!({"tracingBackend": "system"}),
            Some("`tracingBackend`"),
        ),
    ];
    for (method, params, expected) in rows {
        for command in commands(method, &params) {
            match (refusal(&mut scene, &command), expected) {
                (None, None) => {}
                (Some(message), Some(part)) => {
                    assert!(message.starts_with(&format!("{method}: ")), "{message}");
                    assert!(message.contains(part), "{message}");
                }
                (message, expected) => panic!("{command}: {message:?}, expected {expected:?}"),
            }
        }
    }
    // A parameter that occurs twice could be read differently by Chromium.
    let twice = r#"{"id":7,"method":"DOM.setFileInputFiles","params":{"files":[],"fi\u006ces":["/etc/passwd"]}}"#;
    let message = refusal(&mut scene, twice).unwrap();
    assert!(message.contains("duplicate field"), "{message}");
}

#[test]
fn tab_that_shows_a_page_of_chromium_is_only_left() {
    let mut scene = Scene::running("A");
    let navigate = |scene: &mut Scene, parent: Option<&str>, url: &str| {
        let frame = json!({"id": "F", "parentId": parent, "url": url});
        let method = "Page.frameNavigated";
        scene.browser(json!({"method": method, "params": {"frame": frame}, "sessionId": "A"}));
    };
    let evaluate = r#"{"id":7,"method":"Runtime.evaluate","sessionId":"A"}"#;
    for (parent, url, is_refused) in [
        (None, "https://example.com/", false),
        (Some("TOP"), "chrome://new-tab-page/", false),
        (None, "chrome://settings/", true),
        (Some("TOP"), "https://example.com/", true),
        (None, "https://example.com/", false),
    ] {
        navigate(&mut scene, parent, url);
        scene.messages();
        assert_eq!(refusal(&mut scene, evaluate).is_some(), is_refused, "{url}");
        for (id, method) in [(8, "Page.enable"), (9, "Page.navigate")] {
            let command = json!({"id": id, "method": method, "sessionId": "A"});
            assert_eq!(refusal(&mut scene, &command.to_string()), None, "{method}");
        }
    }
}

#[test]
fn contexts_of_a_worker_are_bounded() {
    let mut scene = Scene::running("A");
    let contexts = (0..MAX_CONTEXTS).map(|number| number.to_string());
    scene.relay.contexts.extend(contexts);
    let [create, _] = commands("Target.createBrowserContext", &json!({}));
    let message = refusal(&mut scene, &create).unwrap();
    assert!(
        message.contains("limit of browser contexts reached (1024)"),
        "{message}"
    );
    let [dispose, _] = commands(
        "Target.disposeBrowserContext",
        &json!({"browserContextId": "0"}),
    );
    assert_eq!(refusal(&mut scene, &dispose), None);
    assert_eq!(refusal(&mut scene, &create), None);
}

#[test]
fn methods_that_playwright_sends_are_permitted() {
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/dist/playwright.js");
    let bundle = fs::read_to_string(bundle).expect("the bundle, which `make build` creates");
    // Long lines are wrapped, within strings too.
    let bundle = bundle.replace("\\\n", "");
    let sent: HashSet<&str> = [".send(\"", "._sendMayFail(\""]
        .into_iter()
        .flat_map(|call| bundle.split(call).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|name| name.starts_with(char::is_uppercase) && name.contains('.'))
        .collect();
    assert!(sent.len() > 70, "{}", sent.len());
    for method in sent {
        assert!(policy::is_allowed(Caller::Script, method), "{method}");
    }
}
