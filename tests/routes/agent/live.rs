//! `GET /live`, `/live/socket`, `/live/view`, `/live/view/socket`

use std::{future::Future, time::Duration};

use nix::sys::signal::Signal;
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::{Value, json};
use tokio::time::interval;
use tokio_tungstenite::tungstenite::Error;

use crate::support::{
    agent::{Start, TestAgent},
    live::{Photo, Viewer, ViewerEvent, open, open_noted, until_live},
    page::Page,
    processes,
    wait::until,
    websocket::Client,
};

const PAGES: [&str; 2] = ["/live", "/live/view"];
const SOCKETS: [&str; 2] = ["/live/socket", "/live/view/socket"];
const MAX_VIEWERS: usize = 8;

async fn agent() -> TestAgent {
    Start::on_screen()
        .with(["--viewport", "1024x768@25"])
        .ready()
        .await
}

/// Fills the page with a colour.
async fn paint(page: &mut Page, color: &str) {
    page.show(&format!(
        "<!doctype html><title>{color}</title><body style='background:{color}'>"
    ))
    .await;
}

/// Waits until the page has been drawn.
async fn drawn(page: &mut Page) {
    let twice =
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))";
    page.evaluate(twice).await;
}

fn shows(viewer: &Viewer, color: u32) -> bool {
    viewer.at(viewer.width / 2, viewer.height / 2) == Some(color)
}

#[tokio::test]
async fn page_is_self_contained() {
    let agent = agent().await;
    for path in PAGES {
        let answer = agent.get(path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let header = |headers: &HeaderMap, name| headers[name].to_str().unwrap().to_owned();
        let headers = answer.headers().clone();
        assert!(header(&headers, "content-type").starts_with("text/html"));
        assert_eq!(header(&headers, "cache-control"), "no-store");
        assert_eq!(header(&headers, "referrer-policy"), "no-referrer");
        let policy = header(&headers, "content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
        assert!(
            answer
                .text()
                .await
                .unwrap()
                .contains("<canvas id=\"screen\"")
        );
    }
    agent.stop().await;
}

#[tokio::test]
async fn routes_require_the_token() {
    let agent = Start::without_browser().listening().await;
    for path in PAGES.into_iter().chain(SOCKETS) {
        let answer = agent.http.get(agent.url(path)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn headless_browser_has_no_live_view() {
    let agent = Start::without_browser().listening().await;
    for path in PAGES.into_iter().chain(SOCKETS) {
        let (status, answer) = agent.answer(agent.get(path)).await;
        assert_eq!(
            (status, &answer["code"]),
            (StatusCode::CONFLICT, &json!("no_display")),
            "{path}"
        );
    }
    agent.stop().await;
}

#[tokio::test]
async fn cross_site_requests_are_rejected() {
    let agent = Start::on_screen().without_token().listening().await;
    for path in PAGES.into_iter().chain(SOCKETS) {
        let request = agent.http.get(agent.url(path));
        let foreign = request.header("origin", "https://elsewhere.example");
        let (status, _) = agent.answer(foreign).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    // A page may be linked to, but not embedded by another site. Other routes may not be linked to.
    let others = ["/user_data", "/json/version", "/metrics"];
    for path in PAGES.into_iter().chain(others) {
        let is_page = PAGES.contains(&path);
        let linked = if is_page {
            StatusCode::OK
        } else {
            StatusCode::FORBIDDEN
        };
        for (destination, expected) in [("document", linked), ("iframe", StatusCode::FORBIDDEN)] {
            let request = agent.http.get(agent.url(path));
            let navigation = request
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "navigate")
                .header("sec-fetch-dest", destination);
            let answer = navigation.send().await.unwrap();
            assert_eq!(answer.status(), expected, "{path} as {destination}");
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn viewer_gets_the_next_frame_after_acknowledging_the_last() {
    let agent = agent().await;
    let mut page = Page::of(&agent).await;
    paint(&mut page, "#0000ff").await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    assert_eq!(
        viewer.message("hello").await,
        json!({"type": "hello", "control": false})
    );
    assert_eq!(
        viewer.message("browser").await,
        json!({"type": "browser", "state": "running"})
    );
    viewer
        .watch_until("the page", |viewer| shows(viewer, 0x0000ff))
        .await;
    assert_eq!((viewer.width, viewer.height), (1024, 768));

    // It does not acknowledge: it gets no further frame, but still the pointer's position.
    paint(&mut page, "#ff0000").await;
    let behind = viewer.frame().await;
    for (x, color) in (100..).zip(["#00ffff", "#ffff00", "#ff00ff", "#00ff00"]) {
        paint(&mut page, color).await;
        drawn(&mut page).await;
        let place = json!({"x": x, "y": 50});
        agent
            .ok(agent.post("/computer/move_mouse").json(&place))
            .await;
        loop {
            match viewer.next().await {
                ViewerEvent::Message(message)
                    if message["type"] == "pointer" && message["x"] == x =>
                {
                    break;
                }
                ViewerEvent::Message(_) | ViewerEvent::Pointer => {}
                other => panic!("{other:?}"),
            }
        }
    }
    viewer.acknowledge(behind).await;
    viewer
        .watch_until("the latest", |viewer| shows(viewer, 0x00ff00))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn small_change_is_sent_as_a_small_image() {
    let agent = agent().await;
    let mut page = Page::of(&agent).await;
    page.show("<!doctype html><body style='background:#fff'><div id=box style='position:fixed;left:500px;top:300px;width:20px;height:20px'>")
        .await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer
        .watch_until("the page", |viewer| shows(viewer, 0xffffff))
        .await;
    let whole = viewer.bytes;
    // The browser may draw something else as well, but not each time.
    let mut colors = (1..).map(|color| 0x0012_3456 + color);
    until("a small picture of a small change", async || {
        let color = colors.next()?;
        let before = viewer.bytes;
        let paint = format!("box.style.background = '#{color:06x}'; 0");
        page.evaluate(&paint).await;
        viewer
            .watch_until("the box", |viewer| {
                (0..768).any(|y| viewer.at(510, y) == Some(color))
            })
            .await;
        ((viewer.bytes - before) * 20 < whole).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn read_only_view_is_closed_on_input() {
    let agent = agent().await;
    for message in [
        json!({"type": "pointer_down", "x": 1, "y": 1, "button": "left"}),
        json!({"type": "key_down", "code": "KeyA", "key": "a"}),
        json!({"type": "paste", "text": "words"}),
        json!({"type": "copy"}),
        json!({"type": "release"}),
    ] {
        let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
        viewer.send(message.clone()).await;
        let closed = viewer.closed().await;
        let expected = (1008, "this live view is read-only".to_owned());
        assert_eq!(closed, expected, "{message}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn invalid_message_closes_the_connection_with_a_reason() {
    let agent = agent().await;
    for (message, reason) in [
        (json!({"type": "seen"}), "sequence"),
        (json!({"type": "fly"}), "tag"),
        (json!([1]), ""),
    ] {
        let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
        viewer.send(message.clone()).await;
        let (code, close_reason) = viewer.closed().await;
        assert_eq!(code, 1008, "{message}: {close_reason}");
        assert!(close_reason.contains(reason), "{message}: {close_reason}");
    }
    let mut client = Client::connect(&agent.ws_url("/live/view/socket")).await;
    client.send_bytes(vec![1]).await;
    let close = client.closed().await.expect("a Close frame");
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1008, "messages must be JSON")
    );
    agent.stop().await;
}

#[tokio::test]
async fn viewer_limit_is_eight() {
    let agent = agent().await;
    let url = agent.ws_url("/live/view/socket");
    let mut viewers = Vec::new();
    for _ in 0..MAX_VIEWERS {
        viewers.push(Viewer::connect(&url).await);
    }
    match Viewer::try_connect(&url).await.err() {
        Some(Error::Http(answer)) => {
            assert_eq!(answer.status().as_u16(), 429);
            assert!(answer.headers().contains_key("retry-after"));
        }
        other => panic!("{other:?}"),
    }
    viewers.pop();
    until("a free place", async || {
        Viewer::try_connect(&url).await.ok()
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn resized_screen_is_shown_completely() {
    let agent = agent().await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer
        .watch_until("the screen", |viewer| viewer.width == 1024)
        .await;
    let size = json!({"width": 800, "height": 600});
    agent.ok(agent.put("/display").json(&size)).await;
    viewer
        .watch_until("the new size", |viewer| {
            (viewer.width, viewer.height) == (800, 600)
        })
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn browser_restart_is_reported_and_the_new_one_is_shown() {
    let agent = agent().await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer.frame().await;
    let pid = agent.chromium_number("pid").await;
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    let message = viewer.message("browser").await;
    assert_eq!(message["state"], "restarting");
    let mut states = vec![message["state"].clone()];
    while states.last() != Some(&json!("running")) {
        states.push(viewer.message("browser").await["state"].clone());
    }
    let mut page = Page::of(&agent).await;
    paint(&mut page, "#0000ff").await;
    viewer
        .watch_until("its successor", |viewer| shows(viewer, 0x0000ff))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn shutdown_closes_the_view_with_a_reason() {
    let agent = agent().await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer.frame().await;
    let (_, (code, reason)) = tokio::join!(agent.stop(), viewer.closed());
    assert_eq!(
        (code, reason.as_str()),
        (1001, "the server is shutting down")
    );
}

/// A page with four coloured fields.
const FIELDS: &str = "<!doctype html><title>shown</title><style>body{margin:0;display:grid;grid-template:1fr 1fr/1fr 1fr;height:100vh;font:600 42px sans-serif}\
    div{display:grid;place-items:center;color:#fff}</style>\
    <div style='background:#c0392b'>one<div></div></div><div style='background:#27ae60'>two</div>\
    <div style='background:#2980b9'>three</div><div style='background:#f4f4f4;color:#222'>four</div>";

#[tokio::test]
async fn read_only_page_shows_the_screen_and_sends_no_input() {
    let shown = Start::on_screen()
        .with(["--viewport", "1024x768@25"])
        .without_token()
        .ready()
        .await;
    let mut shown_page = Page::of(&shown).await;
    shown_page.show(FIELDS).await;
    shown_page
        .evaluate("window.events = []; for (const type of ['mousemove', 'mousedown', 'keydown']) addEventListener(type, () => events.push(type)); 0")
        .await;
    let observer = Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut page = open_noted(&observer, &shown.url("/live/view"), "").await;
    until_live(&mut page).await;

    let corners = "[...document.querySelectorAll('#screen')].map(c => { const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height] })[0]";
    let place = page.evaluate(corners).await;
    let side = |index: usize| place[index].as_f64().unwrap();
    let (left, top, width, height) = (side(0), side(1), side(2), side(3));
    assert!((width / height - 1024. / 768.).abs() < 0.01, "{place}");
    // Beside the words, below the browser's own bars.
    let fields = [
        (0.9, 0.35, [0x27, 0xae, 0x60]),
        (0.1, 0.9, [0x29, 0x80, 0xb9]),
        (0.9, 0.9, [0xf4, 0xf4, 0xf4]),
    ];
    until("all fields in their colours", async || {
        let photo = Photo::take(&mut page, "live-view-read-only").await;
        let alike = |(x, y, color): &(f64, f64, [u8; 3])| {
            let seen = photo.at((left + x * width) as u32, (top + y * height) as u32);
            seen.iter()
                .zip(color)
                .all(|(seen, expected)| seen.abs_diff(*expected) < 12)
        };
        fields.iter().all(alike).then_some(())
    })
    .await;
    assert_eq!(
        page.evaluate("document.getElementById('read-only').hidden")
            .await,
        json!(false)
    );

    // The page does not send these events: they would close the connection.
    let middle = json!({"type": "mousePressed", "x": left + width / 2., "y": top + height / 2., "button": "left", "clickCount": 1});
    page.call("Input.dispatchMouseEvent", middle).await;
    page.call(
        "Input.dispatchKeyEvent",
        json!({"type": "keyDown", "key": "a", "code": "KeyA", "text": "a"}),
    )
    .await;
    shown_page.evaluate("document.body.style.filter = 'none'; document.querySelector('div').style.background = '#000'; 0").await;
    page.until("(() => { const s = document.getElementById('screen'); return [...s.getContext('2d').getImageData(50, s.height * 0.35, 1, 1).data].slice(0, 3).every(c => c < 12) })()", |black| black == true).await;
    until_live(&mut page).await;
    assert_eq!(shown_page.evaluate("events").await, json!([]));
    let sent_messages = page
        .evaluate("[...new Set(sent.map(message => message.type))]")
        .await;
    assert_eq!(sent_messages, json!(["seen"]));
    shown.stop().await;
    // The page keeps reconnecting.
    page.until("document.body.dataset.state", |state| state == "connecting")
        .await;
    Photo::take(&mut page, "live-view-disconnected").await;
    observer.stop().await;
}

/// A page that is filled by a text field and records its events.
const FIELD: &str = "<!doctype html><title>field</title><style>body{margin:0}textarea{width:100vw;height:100vh;border:0;padding:12px;font:32px sans-serif;box-sizing:border-box}</style>\
    <textarea id=field autofocus></textarea><script>window.events = []; \
    for (const type of ['mousedown', 'mouseup', 'keydown', 'keyup', 'wheel', 'contextmenu']) addEventListener(type, e => \
    events.push([type, type.startsWith('key') ? e.key : type === 'wheel' ? Math.sign(e.deltaY) : e.button]), true)</script>";

async fn field(agent: &TestAgent) -> Page {
    let mut page = Page::of(agent).await;
    page.show(FIELD).await;
    // Moves the focus from the address bar into the page, which ignores input before it is drawn.
    // Keys come through before clicks do.
    let mut marks = ["F2", "F4", "F8", "F9"].into_iter().cycle();
    until("input that comes through", async || {
        let mark = marks.next()?;
        let click = json!({"x": 512, "y": 400});
        agent
            .ok(agent.post("/computer/click_mouse").json(&click))
            .await;
        let press = json!({"keys": [mark]});
        agent
            .ok(agent.post("/computer/press_key").json(&press))
            .await;
        let all = json!([
            ["mousedown", 0],
            ["mouseup", 0],
            ["keydown", mark],
            ["keyup", mark]
        ]);
        for _ in 0..100 {
            if page.evaluate("events.slice(-4)").await == all {
                return Some(());
            }
        }
        None
    })
    .await;
    page.evaluate("events = []; 0").await;
    page
}

async fn events_are(page: &mut Page, expected: Value) {
    page.until("events", |events| *events == expected).await;
}

/// Keeps reporting held input while `done` runs.
async fn while_holding<T>(viewer: &mut Viewer, done: impl Future<Output = T>) -> T {
    let holding = async {
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            viewer.send(json!({"type": "holding"})).await;
        }
    };
    tokio::select! {
        done = done => done,
        () = holding => unreachable!("runs forever"),
    }
}

#[tokio::test]
async fn viewer_input_reaches_the_browser() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    assert_eq!(
        viewer.message("hello").await,
        json!({"type": "hello", "control": true})
    );
    for message in [
        json!({"type": "pointer_move", "x": 500, "y": 400}),
        json!({"type": "pointer_down", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "pointer_up", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "wheel", "x": 512, "y": 400, "delta_x": 0, "delta_y": 120}),
    ] {
        viewer.send(message).await;
    }
    let clicked = json!([["mousedown", 0], ["mouseup", 0], ["wheel", 1]]);
    events_are(&mut page, clicked).await;
    page.evaluate("events = []; 0").await;
    let key = |kind: &str, code: &str, key: &str| json!({"type": format!("key_{kind}"), "code": code, "key": key});
    for message in [
        key("down", "ShiftLeft", "Shift"),
        key("down", "KeyA", "A"),
        key("up", "ShiftLeft", "Shift"),
        key("up", "KeyA", "a"),
        key("down", "KeyB", "b"),
        key("up", "KeyB", "b"),
        json!({"type": "text", "text": "é漢😀"}),
        key("down", "Enter", "Enter"),
        key("up", "Enter", "Enter"),
    ] {
        viewer.send(message).await;
    }
    page.until("field.value", |value| value == "Abé漢😀\n")
        .await;
    let events = page.evaluate("events.slice(0, 4)").await;
    let expected = json!([
        ["keydown", "Shift"],
        ["keydown", "A"],
        ["keyup", "Shift"],
        ["keyup", "a"]
    ]);
    assert_eq!(events, expected);
    let pointer = viewer
        .message_when("pointer", |message| message["x"] == 512)
        .await;
    assert_eq!(pointer["y"], 400);
    agent.stop().await;
}

#[tokio::test]
async fn short_text_is_typed_at_once_and_a_long_one_does_not_block_frames() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    // Lasts longer than all waits of this test together.
    let mut actions = vec![json!({"type": "sleep", "sleep": {"duration_ms": 30_000}}); 16];
    actions.insert(
        0,
        json!({"type": "press_key", "press_key": {"keys": ["F2"]}}),
    );
    let batch = json!({ "actions": actions });
    let batch = tokio::spawn(agent.post("/computer/batch").json(&batch).send());
    page.until("events.at(-1)", |last| *last == json!(["keyup", "F2"]))
        .await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    // A held Shift does not alter the text.
    for message in [
        json!({"type": "key_down", "code": "ShiftLeft", "key": "Shift"}),
        json!({"type": "text", "text": "7/é漢😀 Text"}),
        json!({"type": "key_down", "code": "KeyA", "key": "A"}),
        json!({"type": "key_up", "code": "KeyA"}),
        json!({"type": "key_up", "code": "ShiftLeft"}),
    ] {
        viewer.send(message).await;
    }
    page.until("field.value", |value| value == "7/é漢😀 TextA")
        .await;
    let long = "long ".repeat(100);
    viewer.send(json!({"type": "text", "text": long})).await;
    for (color, number) in [("#00ff00", 0x00ff00), ("#0000ff", 0x0000ff)] {
        let paint = format!("field.value = ''; field.style.background = '{color}'; 0");
        page.evaluate(&paint).await;
        viewer
            .watch_until("what changes meanwhile", |viewer| shows(viewer, number))
            .await;
    }
    assert!(!batch.is_finished());
    // The viewer's batch starts once the client has disconnected.
    batch.abort();
    page.until("field.value", |value| value == long.as_str())
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn held_input_of_a_silent_viewer_is_released() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    for message in [
        json!({"type": "pointer_down", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "key_down", "code": "ShiftLeft", "key": "Shift"}),
        json!({"type": "key_down", "code": "KeyA", "key": "A"}),
    ] {
        viewer.send(message).await;
    }
    // It answers pings, but its page sends nothing.
    let silent = async {
        loop {
            viewer.next().await;
        }
    };
    let released = "(() => { const up = events.filter(([type]) => type.endsWith('up')).map(([, input]) => input); \
        return ['A', 'Shift', 0].every(input => up.includes(input)) && up })()";
    tokio::select! {
        // Repeating keys are released first.
        all = page.until(released, Value::is_array) => assert_eq!(all[0], "A"),
        () = silent => unreachable!("runs forever"),
    }
    agent.stop().await;
}

#[tokio::test]
async fn invalid_text_is_reported() {
    let agent = agent().await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    for (text, reason) in [
        (
            "a".repeat(65_537),
            "The text must have at most 65536 characters.",
        ),
        (
            "a\u{1}".to_owned(),
            "The text has a character that cannot be typed, at index 1.",
        ),
    ] {
        viewer.send(json!({"type": "text", "text": text})).await;
        assert_eq!(viewer.message("notice").await["message"], reason);
    }
    agent.stop().await;
}

#[tokio::test]
async fn held_input_is_released_when_the_viewer_disconnects() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    for message in [
        json!({"type": "pointer_down", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "key_down", "code": "ControlLeft", "key": "Control"}),
    ] {
        viewer.send(message).await;
    }
    let pressed = json!([["mousedown", 0], ["keydown", "Control"]]);
    while_holding(&mut viewer, events_are(&mut page, pressed)).await;
    drop(viewer);
    page.until("events.map(e => e[0]).sort()", |kinds| {
        *kinds == json!(["keydown", "keyup", "mousedown", "mouseup"])
    })
    .await;
    // A page that lost the focus sends `release`.
    page.evaluate("events = []; 0").await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    viewer
        .send(json!({"type": "key_down", "code": "AltLeft", "key": "Alt"}))
        .await;
    let pressed = json!([["keydown", "Alt"]]);
    while_holding(&mut viewer, events_are(&mut page, pressed)).await;
    viewer.send(json!({"type": "release"})).await;
    events_are(&mut page, json!([["keydown", "Alt"], ["keyup", "Alt"]])).await;
    agent.stop().await;
}

#[tokio::test]
async fn clipboard_is_shared_in_both_directions() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    viewer
        .send(json!({"type": "paste", "text": "pasted wörds"}))
        .await;
    page.until("field.value", |value| value == "pasted wörds")
        .await;
    page.evaluate("field.value = 'to be copied'; field.select(); 0")
        .await;
    for message in [
        json!({"type": "key_down", "code": "ControlLeft", "key": "Control"}),
        json!({"type": "copy"}),
        json!({"type": "key_down", "code": "KeyC", "key": "c"}),
        json!({"type": "key_up", "code": "KeyC"}),
        json!({"type": "key_up", "code": "ControlLeft"}),
    ] {
        viewer.send(message).await;
    }
    let message = viewer.message("clipboard").await;
    assert_eq!(message["text"], "to be copied");
    // Copying the same text again is reported; copying without a selection is not.
    let press_copy = || {
        [
            json!({"type": "key_down", "code": "ControlLeft", "key": "Control"}),
            json!({"type": "copy"}),
            json!({"type": "key_down", "code": "KeyC", "key": "c"}),
            json!({"type": "key_up", "code": "KeyC"}),
            json!({"type": "key_up", "code": "ControlLeft"}),
        ]
    };
    for (selection, kind) in [
        ("field.select()", "clipboard"),
        ("field.setSelectionRange(0, 0)", "nothing_copied"),
    ] {
        page.evaluate(&format!("{selection}; 0")).await;
        for message in press_copy() {
            viewer.send(message).await;
        }
        let answers = ["clipboard", "nothing_copied"].map(Value::from);
        let message = loop {
            match viewer.next().await {
                ViewerEvent::Message(message) if answers.contains(&message["type"]) => {
                    break message;
                }
                ViewerEvent::Frame(sequence) => viewer.acknowledge(sequence).await,
                ViewerEvent::Message(_) | ViewerEvent::Pointer => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(message["type"], kind, "{message}");
    }
    // Without a text, the remote clipboard is pasted.
    page.evaluate("field.value = ''; 0").await;
    viewer.send(json!({"type": "paste"})).await;
    page.until("field.value", |value| value == "to be copied")
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn typed_and_copied_text_is_not_logged() {
    const CANARY: &str = "canary-7c1e";
    let agent = Start::on_screen()
        .with(["--viewport", "1024x768@25"])
        .logging("trace,hyper=info")
        .ready()
        .await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    viewer.send(json!({"type": "paste", "text": CANARY})).await;
    page.until("field.value", |value| value == CANARY).await;
    viewer.send(json!({"type": "text", "text": CANARY})).await;
    let twice = format!("{CANARY}{CANARY}");
    page.until("field.value", |value| value == twice.as_str())
        .await;
    viewer
        .send(json!({"type": "key_down", "code": CANARY.repeat(9), "key": CANARY}))
        .await;
    let (code, reason) = viewer.closed().await;
    assert_eq!(code, 1008);
    assert!(!reason.contains(CANARY), "{reason}");
    let log = agent.log();
    assert!(log.contains("TRACE"), "trace logging is on");
    let line = log.lines().find(|line| line.contains(CANARY));
    assert_eq!(line, None);
    agent.stop().await;
}

/// Maps a pixel of the screen to a position on the live view page.
const PLACE: &str = "(x, y) => { const s = document.getElementById('screen'), b = s.getBoundingClientRect(); \
    return [b.left + (x + .5) * b.width / s.width, b.top + (y + .5) * b.height / s.height] }";

async fn mouse(page: &mut Page, kind: &str, (x, y): (u32, u32), button: &str) {
    let place = page.evaluate(&format!("({PLACE})({x}, {y})")).await;
    let event =
        json!({"type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1});
    page.call("Input.dispatchMouseEvent", event).await;
}

const CTRL: u32 = 2;

async fn strike(page: &mut Page, kind: &str, key: &str, code: &str, modifiers: u32) {
    let event = json!({"type": kind, "key": key, "code": code, "modifiers": modifiers});
    page.call("Input.dispatchKeyEvent", event).await;
}

/// Presses a key and releases it at once, before it is repeated.
async fn tap(page: &mut Page, key: &str, code: &str, modifiers: u32) {
    let up = json!({"type": "keyUp", "key": key, "code": code, "modifiers": modifiers});
    let mut down = up.clone();
    if modifiers & CTRL == 0 {
        down["type"] = "keyDown".into();
        down["text"] = key.into();
    } else {
        down["type"] = "rawKeyDown".into();
    }
    page.call_in_a_row("Input.dispatchKeyEvent", [down, up])
        .await;
}

/// Dispatches a paste event with this text.
fn paste(text: &str) -> String {
    let text = Value::from(text);
    format!(
        "{{ const data = new DataTransfer(); data.setData('text/plain', {text}); document.getElementById('keys').dispatchEvent(\
         new ClipboardEvent('paste', {{clipboardData: data, bubbles: true, cancelable: true}})); 0 }}"
    )
}

#[tokio::test]
async fn page_controls_the_browser() {
    let shown = Start::on_screen()
        .with(["--viewport", "1024x768@25"])
        .without_token()
        .ready()
        .await;
    let mut field = field(&shown).await;
    let observer = Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut page = open(&observer, &shown.url("/live")).await;
    until_live(&mut page).await;
    mouse(&mut page, "mouseMoved", (300, 400), "none").await;
    mouse(&mut page, "mousePressed", (300, 400), "left").await;
    mouse(&mut page, "mouseReleased", (300, 400), "left").await;
    events_are(&mut field, json!([["mousedown", 0], ["mouseup", 0]])).await;
    for key in ["h", "é", "!"] {
        tap(&mut page, key, "KeyH", 0).await;
    }
    field.until("field.value", |value| value == "hé!").await;
    // Text from an input method or an on-screen keyboard.
    page.call("Input.insertText", json!({"text": " 漢字 "}))
        .await;
    field
        .until("field.value", |value| value == "hé! 漢字 ")
        .await;
    page.evaluate(&paste("pasted")).await;
    field
        .until("field.value", |value| value == "hé! 漢字 pasted")
        .await;

    // Remotely copied text is stored on the local clipboard.
    page.evaluate("navigator.clipboard.writeText = async text => { window.taken = text }; 0")
        .await;
    for key in ["a", "c"] {
        let code = format!("Key{}", key.to_uppercase());
        strike(&mut page, "rawKeyDown", "Control", "ControlLeft", 2).await;
        tap(&mut page, key, &code, 2).await;
        strike(&mut page, "keyUp", "Control", "ControlLeft", 0).await;
    }
    page.until("window.taken", |taken| taken == "hé! 漢字 pasted")
        .await;
    // If that is not permitted, a button offers it.
    page.evaluate("navigator.clipboard.writeText = async () => { throw 'not allowed' }; 0")
        .await;
    strike(&mut page, "rawKeyDown", "Control", "ControlLeft", 2).await;
    tap(&mut page, "x", "KeyX", 2).await;
    strike(&mut page, "keyUp", "Control", "ControlLeft", 0).await;
    field.until("field.value", |value| value == "").await;
    page.until("document.getElementById('copy').hidden", |hidden| {
        hidden == false
    })
    .await;
    // Until then the remote clipboard is newer than the local one.
    page.evaluate(&paste("older")).await;
    field
        .until("field.value", |value| value == "hé! 漢字 pasted")
        .await;
    // Another local program may have copied something since.
    page.evaluate(&format!("dispatchEvent(new Event('blur')); {}", paste("!")))
        .await;
    field
        .until("field.value", |value| value == "hé! 漢字 pasted!")
        .await;

    // Held input is released when the page loses the focus.
    field.evaluate("events = []; 0").await;
    strike(&mut page, "rawKeyDown", "Shift", "ShiftLeft", 8).await;
    events_are(&mut field, json!([["keydown", "Shift"]])).await;
    page.evaluate("dispatchEvent(new Event('blur')); 0").await;
    events_are(
        &mut field,
        json!([["keydown", "Shift"], ["keyup", "Shift"]]),
    )
    .await;

    Photo::take(&mut page, "live-view-typed").await;
    shown.stop().await;
    observer.stop().await;
}

/// Dispatches key events. `news()` returns the messages sent since, except the periodic ones.
const KEYS: &str = "window.strike = (type, init) => document.getElementById('keys').dispatchEvent( \
    new KeyboardEvent(type, {bubbles: true, cancelable: true, ...init})); \
    window.news = () => sent.splice(0).filter(message => !['seen', 'holding', 'pointer_move'].includes(message.type));";

/// Returns the messages that the page sends for these key events.
async fn sent_messages(page: &mut Page, strikes: &[(&str, Value)]) -> Value {
    let calls: Vec<String> = strikes
        .iter()
        .map(|(kind, init)| format!("strike('key{kind}', {init}); "))
        .collect();
    page.evaluate(&format!("news(); {}news()", calls.concat()))
        .await
}

fn key_down(code: &str, key: &str) -> Value {
    json!({"type": "key_down", "code": code, "key": key})
}

fn key_up(code: &str) -> Value {
    json!({"type": "key_up", "code": code})
}

#[tokio::test]
async fn page_handles_other_layouts_and_input_methods() {
    let shown = Start::on_screen().without_token().ready().await;
    let observer = Start::headless().ready().await;
    let mut page = open_noted(&observer, &shown.url("/live"), KEYS).await;
    until_live(&mut page).await;

    // Shortcuts use the key's position on keyboards of other scripts; text does not.
    let with = |mut init: Value, modifier: &str| {
        init[modifier] = true.into();
        init
    };
    let cyrillic = json!({"key": "с", "code": "KeyC"});
    let command = with(cyrillic.clone(), "ctrlKey");
    let copied = sent_messages(
        &mut page,
        &[("down", command.clone()), ("up", command.clone())],
    )
    .await;
    let copy = json!({"type": "copy"});
    assert_eq!(copied, json!([copy, key_down("KeyC", "c"), key_up("KeyC")]));
    let greek = json!({"key": "Τ", "code": "KeyT", "ctrlKey": true, "shiftKey": true});
    let new_tab = sent_messages(&mut page, &[("down", greek.clone()), ("up", greek)]).await;
    assert_eq!(new_tab, json!([key_down("KeyT", "T"), key_up("KeyT")]));
    let typed = sent_messages(&mut page, &[("down", cyrillic.clone()), ("up", cyrillic)]).await;
    assert_eq!(typed, json!([key_down("KeyC", "с"), key_up("KeyC")]));
    let umlaut = json!({"key": "ö", "code": "Semicolon", "ctrlKey": true});
    let latin = sent_messages(&mut page, &[("down", umlaut.clone()), ("up", umlaut)]).await;
    let expected = json!([key_down("Semicolon", "ö"), key_up("Semicolon")]);
    assert_eq!(latin, expected);

    // A Shift released during a composition is released; the Enter that ends it is ignored.
    let shift = json!({"key": "Shift", "code": "ShiftLeft"});
    let composing = with(shift.clone(), "isComposing");
    let enter = json!({"key": "Enter", "code": "Enter", "keyCode": 229});
    let composed = sent_messages(
        &mut page,
        &[("down", shift), ("up", composing), ("down", enter)],
    )
    .await;
    let expected = json!([key_down("ShiftLeft", "Shift"), key_up("ShiftLeft")]);
    assert_eq!(composed, expected);

    // The remote text is pasted, whatever the local clipboard has, unless nothing was copied.
    let copying = format!("strike('keydown', {command}); strike('keyup', {command});");
    let at_once = format!("news(); {copying} {}; news().at(-1)", paste("older"));
    assert_eq!(page.evaluate(&at_once).await, json!({"type": "paste"}));
    let later = format!("{}; news().at(-1)", paste("of here"));
    page.until(&later, |sent_messages| {
        *sent_messages == json!({"type": "paste", "text": "of here"})
    })
    .await;
    shown.stop().await;
    observer.stop().await;
}

#[tokio::test]
async fn keys_pressed_with_meta_are_released_at_once_on_a_mac() {
    const MAC: &str =
        "Object.defineProperty(navigator, 'userAgentData', {value: {platform: 'macOS'}});";
    let shown = Start::on_screen().without_token().ready().await;
    let observer = Start::headless().ready().await;
    let script = format!("{KEYS}{MAC}");
    let mut page = open_noted(&observer, &shown.url("/live"), &script).await;
    until_live(&mut page).await;
    let meta = json!({"key": "Meta", "code": "MetaLeft", "metaKey": true});
    let z = |repeat: bool| json!({"key": "z", "code": "KeyZ", "metaKey": true, "repeat": repeat});
    // There is no keyup for a key while Meta is held.
    let undone = sent_messages(
        &mut page,
        &[
            ("down", meta.clone()),
            ("down", z(false)),
            ("down", z(true)),
            ("up", json!({"key": "Meta", "code": "MetaLeft"})),
        ],
    )
    .await;
    let expected = json!([
        key_down("MetaLeft", "Control"),
        key_down("z", "z"),
        key_up("z"),
        key_down("z", "z"),
        key_up("z"),
        key_up("MetaLeft"),
    ]);
    assert_eq!(undone, expected);
    let c = json!({"key": "c", "code": "KeyC", "metaKey": true});
    let copied = sent_messages(&mut page, &[("down", meta), ("down", c)]).await;
    let expected = json!([
        key_down("MetaLeft", "Control"),
        {"type": "copy"},
        key_down("c", "c"),
        key_up("c"),
    ]);
    assert_eq!(copied, expected);
    shown.stop().await;
    observer.stop().await;
}

/// Makes the second connection fail; the request for the reason is answered by `answer`. Counts
/// connections and scheduled attempts.
const OFFLINE: &str = "let led = 0; window.connections = 0; window.planned = 0; const Real = WebSocket; \
    window.WebSocket = class extends Real { constructor(url) { connections += 1; super(led++ === 1 ? new URL('/nowhere', url) : url) } }; \
    window.fetch = () => new Promise((_, fail) => { window.answer = fail }); \
    const later = setTimeout; window.setTimeout = (done, time) => { planned += done.name === 'connect'; return later(done, time) };";

#[tokio::test]
async fn page_keeps_one_connection_if_the_close_reason_arrives_late() {
    let shown = Start::on_screen().without_token().ready().await;
    let observer = Start::headless().ready().await;
    let mut page = open_noted(&observer, &shown.url("/live/view"), OFFLINE).await;
    until_live(&mut page).await;
    page.evaluate("connection.close(); 0").await;
    page.until("typeof answer", |kind| kind == "function").await;
    // Back online before the reply.
    page.evaluate("planned = 0; dispatchEvent(new Event('online')); 0")
        .await;
    until_live(&mut page).await;
    let after = "answer(new Error('late')); new Promise(done => later(() => done([connections, planned]), 0))";
    assert_eq!(page.evaluate(after).await, json!([3, 0]));
    until_live(&mut page).await;
    shown.stop().await;
    observer.stop().await;
}
