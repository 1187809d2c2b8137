//! The policy row by row, what it has to refuse in any case, and the document.

use std::{collections::HashSet, fmt::Write, fs, path::Path};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    table::{Row, TABLE},
    *,
};

fn names((_, _, names): &Row) -> impl Iterator<Item = &'static str> {
    names.split_ascii_whitespace()
}

#[test]
fn each_row_permits_its_callers_alone() {
    for row @ (domain, callers, _) in TABLE {
        for name in names(row) {
            for caller in Caller::ALL {
                let method = format!("{domain}.{name}");
                let expected = callers.contains(&caller);
                assert_eq!(is_allowed(caller, &method), expected, "{caller:?} {method}");
                let command = json!({"id": 1, "method": method}).to_string();
                let checked = check_command(caller, &method, command.as_bytes());
                // The carrier is checked further.
                if method != SEND_MESSAGE {
                    assert_eq!(checked.is_ok(), expected, "{caller:?} {method}");
                }
            }
        }
    }
}

#[test]
fn each_method_is_in_one_row_and_is_well_formed() {
    let is_word = |word: &str, is_first: fn(&char) -> bool| {
        word.chars().next().is_some_and(|first| is_first(&first))
            && word.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let (mut methods, mut rows) = (HashSet::new(), HashSet::new());
    for row @ (domain, callers, list) in TABLE {
        assert!(is_word(domain, char::is_ascii_uppercase), "{domain}");
        assert!(
            rows.insert((domain, callers.len(), callers.last().map(|c| c.place()))),
            "{domain} has two rows for {callers:?}"
        );
        assert!(names(row).next().is_some(), "{domain} has an empty row");
        assert!(names(row).is_sorted(), "{domain}: {list}");
        for name in names(row) {
            assert!(is_word(name, char::is_ascii_lowercase), "{domain}.{name}");
            assert!(methods.insert((domain, name)), "{domain}.{name} repeated");
        }
    }
    assert!(TABLE.is_sorted_by_key(|(domain, ..)| *domain));
    assert!(methods.len() > 650, "{}", methods.len());
}

#[test]
fn no_caller_may_call_more_than_the_one_that_it_is_part_of() {
    for (method, callers) in methods() {
        for (part, whole) in [
            (Caller::IdleExecutor, Caller::Script),
            (Caller::Viewer, Caller::Script),
            (Caller::Script, Caller::Client),
        ] {
            let has = |caller| callers.contains(&caller);
            assert!(!has(part) || has(whole), "{part:?} {method}");
        }
    }
}

#[test]
fn methods_outside_of_the_table_are_available_to_clients_alone() {
    for method in [
        "",
        ".",
        "Page",
        "Page.",
        ".enable",
        "Page.enable ",
        "page.enable",
        "Page.enable.disable",
        "Page.inventedLater",
        "InventedLater.enable",
    ] {
        for caller in Caller::ALL {
            let is_client = caller == Caller::Client;
            assert_eq!(is_allowed(caller, method), is_client, "{caller:?} {method}");
        }
    }
}

/// Callers of methods that matter to security or to common clients. Not derived from the table.
#[rustfmt::skip]
const EXPECTED: &[(&str, [bool; 4])] = &[
    // The protocol past the agent, and ports.         client script idle   viewer
    ("Target.exposeDevToolsProtocol",                  [false, false, false, false]),
    ("Target.openDevTools",                            [false, false, false, false]),
    ("Target.setRemoteLocations",                      [false, false, false, false]),
    ("Tethering.bind",                                 [false, false, false, false]),
    ("Tethering.unbind",                               [false, false, false, false]),
    ("Cast.enable",                                    [false, false, false, false]),
    ("Cast.setSinkToUse",                              [false, false, false, false]),
    ("Cast.startDesktopMirroring",                     [false, false, false, false]),
    ("Cast.startTabMirroring",                         [false, false, false, false]),
    // The machine, the whole browser, and other clients.
    ("Browser.close",                                  [true, false, false, false]),
    ("Browser.crash",                                  [true, false, false, false]),
    ("Browser.crashGpuProcess",                        [true, false, false, false]),
    ("Browser.executeBrowserCommand",                  [true, false, false, false]),
    ("Browser.getBrowserCommandLine",                  [true, false, false, false]),
    ("Browser.setDownloadBehavior",                    [true, true, true, false]),
    ("DOM.getFileInfo",                                [true, false, false, false]),
    ("DOM.setFileInputFiles",                          [true, true, false, false]),
    ("Extensions.loadUnpacked",                        [true, false, false, false]),
    ("FileSystem.getDirectory",                        [true, false, false, false]),
    ("Network.setCookieControls",                      [true, false, false, false]),
    ("PWA.install",                                    [true, false, false, false]),
    ("Page.crash",                                     [true, false, false, false]),
    ("Page.setWebLifecycleState",                      [true, false, false, false]),
    ("Emulation.setVirtualTimePolicy",                 [true, false, false, false]),
    ("SystemInfo.getInfo",                             [true, false, false, false]),
    ("Target.getDevToolsTarget",                       [true, false, false, false]),
    ("Target.sendMessageToTarget",                     [true, false, false, false]),
    // Devices, which Puppeteer uses.
    ("BluetoothEmulation.enable",                      [true, false, false, false]),
    ("DeviceAccess.enable",                            [true, false, false, false]),
    ("DeviceAccess.selectPrompt",                      [true, false, false, false]),
    // Acting in pages, and their content.
    ("Accessibility.getFullAXTree",                    [true, true, false, false]),
    ("DOM.getDocument",                                [true, true, false, false]),
    ("DOMStorage.getDOMStorageItems",                  [true, true, false, false]),
    ("Emulation.setUserAgentOverride",                 [true, true, true, false]),
    ("Fetch.enable",                                   [true, true, true, false]),
    ("IO.read",                                        [true, true, true, false]),
    ("IndexedDB.requestData",                          [true, true, false, false]),
    ("Input.dispatchKeyEvent",                         [true, true, false, false]),
    ("Input.dispatchMouseEvent",                       [true, true, false, false]),
    ("Log.enable",                                     [true, true, true, false]),
    ("Network.enable",                                 [true, true, true, false]),
    ("Network.getAllCookies",                          [true, true, false, false]),
    ("Network.getCookies",                             [true, true, false, false]),
    ("Network.getRequestPostData",                     [true, true, false, false]),
    ("Network.getResponseBody",                        [true, true, false, false]),
    ("Page.addScriptToEvaluateOnNewDocument",          [true, true, false, false]),
    ("Page.captureScreenshot",                         [true, true, false, false]),
    ("Page.close",                                     [true, true, false, false]),
    ("Page.enable",                                    [true, true, true, false]),
    ("Page.getFrameTree",                              [true, true, true, false]),
    ("Page.getNavigationHistory",                      [true, true, false, false]),
    ("Page.navigate",                                  [true, true, false, false]),
    ("Page.printToPDF",                                [true, true, false, false]),
    ("Page.startScreencast",                           [true, true, false, false]),
    ("Runtime.callFunctionOn",                         [true, true, false, false]),
    ("Runtime.enable",                                 [true, true, true, false]),
    ("Runtime.evaluate",                               [true, true, false, false]),
    ("Storage.getCookies",                             [true, true, false, false]),
    ("Target.attachToBrowserTarget",                   [true, true, false, false]),
    ("Target.attachToTarget",                          [true, true, false, false]),
    ("Target.closeTarget",                             [true, true, false, false]),
    ("Target.createTarget",                            [true, true, false, false]),
    ("Target.disposeBrowserContext",                   [true, true, false, false]),
    ("Target.setAutoAttach",                           [true, true, true, false]),
    ("Tracing.start",                                  [true, true, false, false]),
    // Reports.
    ("Browser.getVersion",                             [true, true, true, true]),
    ("Page.getLayoutMetrics",                          [true, true, false, true]),
    ("Target.getTargets",                              [true, true, false, true]),
];

#[test]
fn security_relevant_methods_have_the_expected_callers() {
    for (method, expected) in EXPECTED {
        let actual = Caller::ALL.map(|caller| is_allowed(caller, method));
        assert_eq!(actual, *expected, "{method}");
    }
}

/// Returns a command that carries `message` to a session.
fn carrier(message: impl Into<Value>) -> String {
    let params = json!({"sessionId": "S", "message": message.into()});
    json!({"id": 1, "method": SEND_MESSAGE, "params": params}).to_string()
}

/// Returns the refusal of a client's command that carries another one.
fn carried_refusal(command: &str) -> Option<String> {
    let checked = check_command(Caller::Client, SEND_MESSAGE, command.as_bytes());
    checked.err().map(|error| error.to_string())
}

#[test]
fn carried_commands_are_subject_to_the_policy_of_their_caller() {
    let bind = r#"{"id":1,"method":"Tethering.bind","params":{"port":1}}"#;
    let escaped = r#"{"id":1,"\u006dethod":"\u0054ethering.bind"}"#;
    let enable = r#"{"id":1,"method":"Page.enable"}"#;
    let in_session = r#"{"id":1,"method":"Page.enable","params":{"method":1},"sessionId":"T"}"#;
    for (message, is_permitted) in [
        (bind, false),
        (escaped, false),
        (enable, true),
        (in_session, true),
    ] {
        let mut command = message.to_owned();
        for depth in 1..=MAX_CARRIED_COMMANDS + 1 {
            command = carrier(command);
            let expected = if depth > MAX_CARRIED_COMMANDS {
                Some("Target.sendMessageToTarget: limit of commands within each other reached (4)")
            } else {
                (!is_permitted).then_some("Tethering.bind is not available to clients")
            };
            assert_eq!(carried_refusal(&command).as_deref(), expected, "{command}");
        }
    }
    for caller in [Caller::Script, Caller::IdleExecutor, Caller::Viewer] {
        let command = carrier(enable);
        let error = check_command(caller, SEND_MESSAGE, command.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(SEND_MESSAGE), "{error}");
    }
}

#[test]
fn carried_messages_that_are_no_commands_are_refused() {
    for message in [
        json!(null),
        json!({"id": 1, "method": "Page.enable"}),
        json!(""),
        json!("null"),
        json!("{"),
        json!("{}"),
        json!(r#"[1,"Page.enable",null,null]"#),
        json!(r#"{"id":1,"method":7}"#),
        json!(r#"{"id":1,"method":"Page.enable","method":"Tethering.bind"}"#),
        json!(r#"{"id":1,"method":"Page.enable","\u006dethod":"Tethering.bind"}"#),
        json!(r#"{"id":1,"id":2,"method":"Page.enable"}"#),
        json!(r#"{"id":1,"method":"Page.enable","params":{},"params":{}}"#),
        json!(r#"{"id":1,"method":"Page.enable","sessionId":"A","sessionId":"B"}"#),
        json!(r#"{"id":1,"method":"Page.enable","invented":1}"#),
        json!(r#"{"id":1,"method":"Page.enable"} {}"#),
        json!(r#"{"id":1,/* */"method":"Page.enable"}"#),
    ] {
        let refusal = carried_refusal(&carrier(message.clone())).unwrap_or_default();
        assert!(
            refusal.contains("not a DevTools command"),
            "{message}: {refusal}"
        );
    }
    let enable = r#"{\"id\":1,\"method\":\"Page.enable\"}"#;
    let bind = r#"{\"id\":1,\"method\":\"Tethering.bind\"}"#;
    for params in [
        String::new(),
        r#","params":null"#.to_owned(),
        r#","params":{"sessionId":"S"}"#.to_owned(),
        format!(r#","params":{{"message":"{enable}","message":"{bind}"}}"#),
        format!(r#","params":{{"message":"{enable}"}},"params":{{"message":"{bind}"}}"#),
        format!(r#","params":{{"message":"{enable}"}},"par\u0061ms":{{"message":"{bind}"}}"#),
    ] {
        let command = format!(r#"{{"id":1,"method":"{SEND_MESSAGE}"{params}}}"#);
        let refusal = carried_refusal(&command).unwrap_or_default();
        assert!(
            refusal.contains("not a DevTools command"),
            "{command}: {refusal}"
        );
    }
}

#[test]
fn error_shows_the_start_of_a_long_method() {
    let method = "é".repeat(10_000);
    let error = check_command(Caller::Viewer, &method, b"{}").unwrap_err();
    assert_eq!(
        error.to_string().chars().filter(|c| *c == 'é').count(),
        MAX_SHOWN_METHOD
    );
}

/// Returns the text as a JSON string with some of its characters escaped.
fn escape(text: &str, escaped: &[bool]) -> String {
    let mut json = String::from("\"");
    for (index, unit) in text.encode_utf16().enumerate() {
        let is_plain = (0x20..0x7f).contains(&unit) && unit != 0x22 && unit != 0x5c;
        match escaped[index % escaped.len()] || !is_plain {
            true => write!(json, "\\u{unit:04x}").unwrap(),
            false => json.push(char::from_u32(unit.into()).unwrap()),
        }
    }
    json.push('"');
    json
}

proptest! {
    #[test]
    fn no_spelling_of_a_carried_command_passes_the_policy(
        method in prop::sample::select(vec!["Tethering.bind", "Target.openDevTools", "Page.enable"]),
        levels in prop::collection::vec(
            (prop::collection::vec(any::<bool>(), 1..9), any::<bool>()),
            1..4,
        ),
    ) {
        let mut command = format!(r#"{{"id":1,"method":{}}}"#, escape(method, &levels[0].0));
        for (escaped, is_method_last) in &levels {
            let [name, message] = [escape(SEND_MESSAGE, escaped), escape(&command, escaped)];
            let method = format!("{}:{name}", escape("method", escaped));
            let params = format!(r#""params":{{{}:{message}}}"#, escape("message", escaped));
            command = match is_method_last {
                true => format!(r#"{{"id":1,{params},{method}}}"#),
                false => format!(r#" {{{method},"id":1,{params}}} "#),
            };
        }
        let refusal = carried_refusal(&command);
        let expected = (!is_allowed(Caller::Client, method))
            .then(|| format!("{method} is not available to clients"));
        prop_assert_eq!(refusal, expected, "{}", command);
    }

    #[test]
    fn random_bytes_carry_no_command(text in prop::collection::vec(any::<u8>(), 0..64)) {
        let checked = check_command(Caller::Client, SEND_MESSAGE, &text);
        prop_assert!(checked.is_err());
    }
}

/// Returns the methods of some rows as a Markdown table.
fn document_table(rows: impl Fn(&[Caller]) -> bool) -> String {
    let mut table = String::from("| domain | methods |\n|---|---|\n");
    for domain in TABLE.chunk_by(|(a, ..), (b, ..)| a == b) {
        let chosen = domain.iter().filter(|(_, callers, _)| rows(callers));
        let mut methods: Vec<&str> = chosen.flat_map(names).collect();
        methods.sort_unstable();
        if !methods.is_empty() {
            let methods = methods.join("`, `");
            writeln!(table, "| {} | `{methods}` |", domain[0].0).unwrap();
        }
    }
    table
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the variable with which all snapshots are accepted"
)]
fn document_lists_the_table() {
    const TABLES_FOLLOW: &str =
        "<!-- The rest is generated from src/system/cdp/policy/table.rs. -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/devtools.md");
    let document = fs::read_to_string(&path).unwrap();
    let (text, _) = document
        .split_once(TABLES_FOLLOW)
        .expect("the mark before the tables");
    let section = |title: &str, table: String| format!("\n## {title}\n\n{table}");
    let expected = [
        text.to_owned(),
        TABLES_FOLLOW.to_owned(),
        section("Refused to all", document_table(<[_]>::is_empty)),
        section(
            "Read-only viewers",
            document_table(|callers| callers.contains(&Caller::Viewer)),
        ),
        section(
            "Executors between calls",
            document_table(|callers| callers.contains(&Caller::IdleExecutor)),
        ),
        section(
            "Scripts",
            document_table(|callers| callers.contains(&Caller::Script)),
        ),
        section(
            "Clients alone",
            document_table(|callers| *callers == [Caller::Client]),
        ),
    ]
    .concat();
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        return fs::write(&path, expected).unwrap();
    }
    assert!(
        document == expected,
        "docs/devtools.md differs from the table. \
         INSTA_UPDATE=always make test T=document_lists_the_table rewrites it"
    );
}
