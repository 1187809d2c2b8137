//! `GET /live`, `/live/socket`, `/live/view`, `/live/view/socket`

use nix::sys::signal::Signal;
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::json;
use tokio_tungstenite::tungstenite::Error;

use crate::support::{
    agent::{Start, TestAgent},
    live::{Photo, Viewer, open, until_live},
    page::Page,
    processes,
    wait::until,
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

/// Paints the whole page.
async fn paint(page: &mut Page, color: &str) {
    page.show(&format!(
        "<!doctype html><title>{color}</title><body style='background:{color}'>"
    ))
    .await;
}

fn shows(viewer: &Viewer, color: u32) -> bool {
    viewer.at(viewer.width / 2, viewer.height / 2) == Some(color)
}

#[tokio::test]
async fn the_page_is_one_document_that_nobody_else_has_a_part_in() {
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
async fn nothing_of_it_is_there_without_the_token() {
    let agent = Start::without_browser().listening().await;
    for path in PAGES.into_iter().chain(SOCKETS) {
        let answer = agent.http.get(agent.url(path)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_browser_without_a_display_has_nothing_to_show() {
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
async fn pages_of_other_sites_do_not_get_at_it() {
    let agent = Start::on_screen().without_token().listening().await;
    for path in PAGES.into_iter().chain(SOCKETS) {
        let request = agent.http.get(agent.url(path));
        let foreign = request.header("origin", "https://elsewhere.example");
        let (status, _) = agent.answer(foreign).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_viewer_sees_the_screen_and_what_changes_once_it_has_drawn_the_last() {
    let agent = agent().await;
    let mut page = Page::of(&agent).await;
    paint(&mut page, "#0000ff").await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    assert_eq!(
        viewer.told("hello").await,
        json!({"type": "hello", "control": false})
    );
    assert_eq!(
        viewer.told("browser").await,
        json!({"type": "browser", "state": "running"})
    );
    viewer
        .watch_until("the page", |viewer| shows(viewer, 0x0000ff))
        .await;
    assert_eq!((viewer.width, viewer.height), (1024, 768));

    // It draws no more: whatever changes, it gets one frame at most.
    paint(&mut page, "#ff0000").await;
    let before = viewer.frames;
    let behind = viewer.frame().await;
    for color in ["#00ffff", "#ffff00", "#ff00ff", "#00ff00"] {
        paint(&mut page, color).await;
    }
    assert_eq!(viewer.frames, before + 1);
    viewer.seen(behind).await;
    viewer
        .watch_until("the latest", |viewer| shows(viewer, 0x00ff00))
        .await;
    // Of those between it has seen few: they were gone by then.
    agent.stop().await;
}

#[tokio::test]
async fn a_small_change_is_sent_as_a_small_picture() {
    let agent = agent().await;
    let mut page = Page::of(&agent).await;
    page.show("<!doctype html><body style='background:#fff'><div id=box style='position:fixed;left:500px;top:300px;width:20px;height:20px'>")
        .await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer
        .watch_until("the page", |viewer| shows(viewer, 0xffffff))
        .await;
    let whole = viewer.bytes;
    // The browser may draw something of its own as well: not each time.
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
async fn who_only_looks_on_is_closed_out_when_it_acts() {
    let agent = agent().await;
    for message in [
        json!({"type": "pointer_down", "x": 1, "y": 1, "button": "left"}),
        json!({"type": "key_down", "code": "KeyA", "key": "a"}),
        json!({"type": "paste", "text": "words"}),
        json!({"type": "copy"}),
        json!({"type": "release"}),
    ] {
        let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
        viewer.say(message.clone()).await;
        let closed = viewer.closed().await;
        let expected = (1008, "this live view is read-only".to_owned());
        assert_eq!(closed, expected, "{message}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn what_the_page_never_says_ends_the_connection_and_tells_why() {
    let agent = agent().await;
    for (message, reason) in [
        (json!({"type": "seen"}), "sequence"),
        (json!({"type": "fly"}), "tag"),
        (json!([1]), ""),
    ] {
        let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
        viewer.say(message.clone()).await;
        let (code, told) = viewer.closed().await;
        assert_eq!(code, 1008, "{message}: {told}");
        assert!(told.contains(reason), "{message}: {told}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn there_are_places_for_eight() {
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
async fn a_screen_of_another_size_is_shown_whole() {
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
async fn a_browser_that_dies_is_told_of_and_its_successor_is_shown() {
    let agent = agent().await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer.frame().await;
    let pid = agent.chromium_number("pid").await;
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    let told = viewer.told("browser").await;
    assert_eq!(told["state"], "restarting");
    let mut states = vec![told["state"].clone()];
    while states.last() != Some(&json!("running")) {
        states.push(viewer.told("browser").await["state"].clone());
    }
    let mut page = Page::of(&agent).await;
    paint(&mut page, "#0000ff").await;
    viewer
        .watch_until("its successor", |viewer| shows(viewer, 0x0000ff))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn viewers_are_told_when_the_agent_stops() {
    let agent = agent().await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
    viewer.frame().await;
    let (_, (code, reason)) = tokio::join!(agent.stop(), viewer.closed());
    assert_eq!((code, reason.as_str()), (1001, "the agent is stopping"));
}

/// Four fields of colour, and what is typed.
const FIELDS: &str = "<!doctype html><title>shown</title><style>body{margin:0;display:grid;grid-template:1fr 1fr/1fr 1fr;height:100vh;font:600 42px sans-serif}\
    div{display:grid;place-items:center;color:#fff}</style>\
    <div style='background:#c0392b'>one<div></div></div><div style='background:#27ae60'>two</div>\
    <div style='background:#2980b9'>three</div><div style='background:#f4f4f4;color:#222'>four</div>";

#[tokio::test]
async fn a_real_browser_shows_it_and_may_do_nothing_on_the_read_only_page() {
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
    let looker = Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut page = open(&looker, &shown.url("/live/view")).await;
    until_live(&mut page).await;

    let corners = "[...document.querySelectorAll('#screen')].map(c => { const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height] })[0]";
    let place = page.evaluate(corners).await;
    let side = |index: usize| place[index].as_f64().unwrap();
    let (left, top, width, height) = (side(0), side(1), side(2), side(3));
    assert!((width / height - 1024. / 768.).abs() < 0.01, "{place}");
    // Beside the words, in the lower half, which no bar of the browser covers.
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
                .all(|(seen, wanted)| seen.abs_diff(*wanted) < 12)
        };
        fields.iter().all(alike).then_some(())
    })
    .await;
    assert_eq!(
        page.evaluate("document.getElementById('read-only').hidden")
            .await,
        json!(false)
    );

    // Nothing of this is even sent: it would end the connection.
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
    shown.stop().await;
    // It says so, and goes on trying.
    page.until("document.body.dataset.state", |state| state == "connecting")
        .await;
    Photo::take(&mut page, "live-view-disconnected").await;
    looker.stop().await;
}

/// A page with a field that fills it, which tells of all that is done to it.
const FIELD: &str = "<!doctype html><title>field</title><style>body{margin:0}textarea{width:100vw;height:100vh;border:0;padding:12px;font:32px sans-serif;box-sizing:border-box}</style>\
    <textarea id=field autofocus></textarea><script>window.events = []; \
    for (const type of ['mousedown', 'mouseup', 'keydown', 'keyup', 'wheel', 'contextmenu']) addEventListener(type, e => \
    events.push([type, type.startsWith('key') ? e.key : type === 'wheel' ? Math.sign(e.deltaY) : e.button]), true)</script>";

async fn field(agent: &TestAgent) -> Page {
    let mut page = Page::of(agent).await;
    page.show(FIELD).await;
    // From the address bar into the page, which may take none of it before it is drawn.
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
        for _ in 0..100 {
            let last = page.evaluate("events.at(-1)").await;
            if last == json!(["keyup", mark]) {
                return Some(());
            }
        }
        None
    })
    .await;
    page.evaluate("events = []; 0").await;
    page
}

async fn events_are(page: &mut Page, wanted: serde_json::Value) {
    page.until("events", |events| *events == wanted).await;
}

#[tokio::test]
async fn what_a_viewer_does_is_done_there() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    assert_eq!(
        viewer.told("hello").await,
        json!({"type": "hello", "control": true})
    );
    for message in [
        json!({"type": "pointer_move", "x": 500, "y": 400}),
        json!({"type": "pointer_down", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "pointer_up", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "wheel", "x": 512, "y": 400, "delta_x": 0, "delta_y": 120}),
    ] {
        viewer.say(message).await;
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
        viewer.say(message).await;
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
    let pointer = viewer.told_when("pointer", |told| told["x"] == 512).await;
    assert_eq!(pointer["y"], 400);
    agent.stop().await;
}

#[tokio::test]
async fn what_a_viewer_holds_is_released_when_it_leaves() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    for message in [
        json!({"type": "pointer_down", "x": 512, "y": 400, "button": "left"}),
        json!({"type": "key_down", "code": "ControlLeft", "key": "Control"}),
    ] {
        viewer.say(message).await;
    }
    events_are(&mut page, json!([["mousedown", 0], ["keydown", "Control"]])).await;
    drop(viewer);
    page.until("events.map(e => e[0]).sort()", |kinds| {
        *kinds == json!(["keydown", "keyup", "mousedown", "mouseup"])
    })
    .await;
    // One that only lost the focus says so itself.
    page.evaluate("events = []; 0").await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    viewer
        .say(json!({"type": "key_down", "code": "AltLeft", "key": "Alt"}))
        .await;
    events_are(&mut page, json!([["keydown", "Alt"]])).await;
    viewer.say(json!({"type": "release"})).await;
    events_are(&mut page, json!([["keydown", "Alt"], ["keyup", "Alt"]])).await;
    agent.stop().await;
}

#[tokio::test]
async fn the_clipboard_goes_both_ways() {
    let agent = agent().await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    viewer
        .say(json!({"type": "paste", "text": "pasted wörds"}))
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
        viewer.say(message).await;
    }
    let told = viewer.told("clipboard").await;
    assert_eq!(told["text"], "to be copied");
    // Without a text of its own it pastes what was copied there.
    page.evaluate("field.value = ''; 0").await;
    viewer.say(json!({"type": "paste"})).await;
    page.until("field.value", |value| value == "to be copied")
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn nothing_that_is_typed_or_copied_is_in_the_log() {
    const CANARY: &str = "canary-7c1e";
    let agent = Start::on_screen()
        .with(["--viewport", "1024x768@25"])
        .logging("trace,hyper=info")
        .ready()
        .await;
    let mut page = field(&agent).await;
    let mut viewer = Viewer::connect(&agent.ws_url("/live/socket")).await;
    viewer.say(json!({"type": "paste", "text": CANARY})).await;
    page.until("field.value", |value| value == CANARY).await;
    viewer.say(json!({"type": "text", "text": CANARY})).await;
    let twice = format!("{CANARY}{CANARY}");
    page.until("field.value", |value| value == twice.as_str())
        .await;
    viewer
        .say(json!({"type": "key_down", "code": CANARY.repeat(9), "key": CANARY}))
        .await;
    let (code, reason) = viewer.closed().await;
    assert_eq!(code, 1008);
    assert!(!reason.contains(CANARY), "{reason}");
    let log = agent.log();
    assert!(log.contains("TRACE"), "all is logged that may be");
    let line = log.lines().find(|line| line.contains(CANARY));
    assert_eq!(line, None);
    agent.stop().await;
}

/// Where on the page of a live view a pixel of its screen is.
const PLACE: &str = "(x, y) => { const s = document.getElementById('screen'), b = s.getBoundingClientRect(); \
    return [b.left + (x + .5) * b.width / s.width, b.top + (y + .5) * b.height / s.height] }";

async fn mouse(page: &mut Page, kind: &str, (x, y): (u32, u32), button: &str) {
    let place = page.evaluate(&format!("({PLACE})({x}, {y})")).await;
    let event =
        json!({"type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1});
    page.call("Input.dispatchMouseEvent", event).await;
}

async fn strike(page: &mut Page, kind: &str, key: &str, code: &str, modifiers: u32) {
    let mut event = json!({"type": kind, "key": key, "code": code, "modifiers": modifiers});
    if kind == "keyDown" && key.chars().count() == 1 && modifiers & 2 == 0 {
        event["text"] = key.into();
    }
    page.call("Input.dispatchKeyEvent", event).await;
}

#[tokio::test]
async fn a_real_browser_has_hands_there() {
    let shown = Start::on_screen()
        .with(["--viewport", "1024x768@25"])
        .without_token()
        .ready()
        .await;
    let mut field = field(&shown).await;
    let looker = Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut page = open(&looker, &shown.url("/live")).await;
    until_live(&mut page).await;
    mouse(&mut page, "mouseMoved", (300, 400), "none").await;
    mouse(&mut page, "mousePressed", (300, 400), "left").await;
    mouse(&mut page, "mouseReleased", (300, 400), "left").await;
    events_are(&mut field, json!([["mousedown", 0], ["mouseup", 0]])).await;
    for key in ["h", "é", "!"] {
        strike(&mut page, "keyDown", key, "KeyH", 0).await;
        strike(&mut page, "keyUp", key, "KeyH", 0).await;
    }
    field.until("field.value", |value| value == "hé!").await;
    // As an input method or the keyboard of a phone types.
    page.call("Input.insertText", json!({"text": " 漢字 "}))
        .await;
    field
        .until("field.value", |value| value == "hé! 漢字 ")
        .await;
    page.evaluate("const data = new DataTransfer(); data.setData('text/plain', 'pasted'); \
        document.activeElement.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})); 0")
        .await;
    field
        .until("field.value", |value| value == "hé! 漢字 pasted")
        .await;

    // What is copied there comes to the looker's own clipboard.
    page.evaluate("navigator.clipboard.writeText = async text => { window.taken = text }; 0")
        .await;
    for key in ["a", "c"] {
        let code = format!("Key{}", key.to_uppercase());
        strike(&mut page, "rawKeyDown", "Control", "ControlLeft", 2).await;
        strike(&mut page, "rawKeyDown", key, &code, 2).await;
        strike(&mut page, "keyUp", key, &code, 2).await;
        strike(&mut page, "keyUp", "Control", "ControlLeft", 0).await;
    }
    page.until("window.taken", |taken| taken == "hé! 漢字 pasted")
        .await;
    // Or is offered at a click, where it may not come by itself.
    page.evaluate("navigator.clipboard.writeText = async () => { throw 'not allowed' }; 0")
        .await;
    strike(&mut page, "rawKeyDown", "Control", "ControlLeft", 2).await;
    strike(&mut page, "rawKeyDown", "x", "KeyX", 2).await;
    strike(&mut page, "keyUp", "x", "KeyX", 2).await;
    strike(&mut page, "keyUp", "Control", "ControlLeft", 0).await;
    field.until("field.value", |value| value == "").await;
    page.until("document.getElementById('copy').hidden", |hidden| {
        hidden == false
    })
    .await;

    // What is held is released when the page loses the focus.
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
    looker.stop().await;
}
