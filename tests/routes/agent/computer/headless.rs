//! Mouse, keyboard and screenshots of a headless browser.

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    painter::{BLUE, RED, region, screenshot},
    processes,
    recorder::{action, position, run_action, run_batch},
    requests::wrong_fields,
    wait::{in_time, until},
};

/// A page that records its input events.
const RECORDER: &str = r"<!doctype html><meta charset=utf-8><body style='margin:0'>
<textarea id=a style='position:fixed;left:0;top:0;width:400px;height:200px'></textarea>
<div id=b contenteditable style='position:fixed;left:0;top:250px;width:400px;height:200px;white-space:pre-wrap'></div><script>
var seen = [];
addEventListener('contextmenu', event => event.preventDefault());
for (let type of ['mousedown', 'mouseup', 'click', 'dblclick', 'auxclick', 'contextmenu', 'wheel', 'mousemove'])
  addEventListener(type, e => seen.push([type, e.clientX, e.clientY, e.button, e.buttons, e.detail, e.ctrlKey, e.shiftKey, e.altKey, e.deltaX, e.deltaY]));
for (let type of ['keydown', 'keypress', 'keyup'])
  addEventListener(type, e => seen.push([type, e.key, e.code, e.keyCode, e.location, e.ctrlKey, e.shiftKey, e.altKey, e.metaKey, e.repeat]));
addEventListener('input', e => seen.push(['input', e.inputType, e.data]));
</script>";

/// Resolves once the page has been drawn.
const DRAWN: &str =
    "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";

async fn recorder(agent: &TestAgent) -> Page {
    let mut page = Page::of(agent).await;
    page.show(RECORDER).await;
    // A page receives mouse events once it has been drawn.
    page.evaluate(DRAWN).await;
    page
}

async fn headless() -> TestAgent {
    Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await
}

async fn batch(agent: &TestAgent, actions: &[Value]) -> (StatusCode, Value) {
    let request = agent.post("/computer/batch");
    agent
        .answer(request.json(&json!({"actions": actions})))
        .await
}

/// Returns actions of all kinds for a page whose top is at that position.
fn all_kinds_of_actions(top: i64) -> Vec<Value> {
    let at = |x: i64, y: i64| json!({"x": x, "y": top + y});
    let with = |mut fields: Value, more: Value| {
        let more = more.as_object().unwrap().clone();
        fields.as_object_mut().unwrap().extend(more);
        fields
    };
    vec![
        action("move_mouse", at(500, 500)),
        action("click_mouse", at(50, 50)),
        action("click_mouse", with(at(600, 300), json!({"num_clicks": 4}))),
        action(
            "click_mouse",
            with(at(620, 320), json!({"button": "right"})),
        ),
        action(
            "click_mouse",
            with(
                at(640, 340),
                json!({"button": "middle", "hold_keys": ["Ctrl", "Shift"]}),
            ),
        ),
        action(
            "click_mouse",
            with(at(660, 360), json!({"click_type": "down"})),
        ),
        action("move_mouse", at(680, 380)),
        action(
            "click_mouse",
            with(at(690, 390), json!({"click_type": "up"})),
        ),
        action(
            "drag_mouse",
            json!({"path": [[700, top + 300], [720, top + 310], [740, top + 330]], "step_delay_ms": 0, "button": "right"}),
        ),
        action("scroll", with(at(650, 350), json!({"delta_y": 2}))),
        action("scroll", with(at(650, 350), json!({"delta_x": -1}))),
        action("click_mouse", at(50, 50)),
        action("type_text", json!({"text": "Hello, World! ~{}_|\n"})),
        action(
            "press_key",
            json!({"keys": ["a", "Shift+b", "KP_Add", "Ctrl+a", "Delete", "x", "Left", "Shift+End"]}),
        ),
        action(
            "press_key",
            json!({"keys": ["y"], "hold_keys": ["Shift"], "duration": 1}),
        ),
        action(
            "press_key",
            json!({"keys": ["Home", "Page_Down", "F2", "Ctrl+ArrowRight", "Control_R", "Shift_R"]}),
        ),
        action("sleep", json!({"duration_ms": 1})),
    ]
}

/// Returns the recorded events without moves and wheel events, which may be merged, and the sum of
/// the wheel deltas.
async fn recorded_events(page: &mut Page) -> (Vec<Value>, [f64; 2]) {
    page.until("JSON.stringify(seen.at(-1))", |last| {
        last.as_str()
            .is_some_and(|last| last.contains("keyup") && last.contains("ShiftRight"))
    })
    .await;
    let seen = page.evaluate("seen").await;
    let (mut events, mut turned) = (Vec::new(), [0.0; 2]);
    for event in seen.as_array().unwrap() {
        match event[0].as_str().unwrap() {
            "mousemove" => {}
            "wheel" => {
                turned[0] += event[9].as_f64().unwrap();
                turned[1] += event[10].as_f64().unwrap();
            }
            _ => events.push(event.clone()),
        }
    }
    (events, turned)
}

#[tokio::test]
async fn page_receives_the_same_events_as_on_a_screen() {
    let on_screen = Start::on_screen()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut page = recorder(&on_screen).await;
    let top = page.evaluate("outerHeight - innerHeight").await;
    run_batch(&on_screen, all_kinds_of_actions(top.as_i64().unwrap())).await;
    let (expected, turned) = recorded_events(&mut page).await;
    let value = page.evaluate("a.value").await;
    on_screen.stop().await;
    assert!(expected.len() > 100, "{expected:?}");

    let agent = headless().await;
    let mut page = recorder(&agent).await;
    run_batch(&agent, all_kinds_of_actions(0)).await;
    let (seen, turned_here) = recorded_events(&mut page).await;
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(seen.get(index), Some(expected), "event {index}");
    }
    assert_eq!(seen.len(), expected.len());
    assert_eq!(turned_here, turned);
    assert_eq!(page.evaluate("a.value").await, value);
    assert_eq!(position(&agent).await, json!({"x": 50, "y": 50}));
    agent.stop().await;
}

#[tokio::test]
async fn text_in_any_script_is_typed() {
    const TEXT: &str = "Zażółć gęślą jaźń, Ελληνικά, Русский, עברית, العربية, हिन्दी, ไทย, 漢字かな交じり文, 한국어, \
        ქართული, Հայերեն, e\u{301}\u{327} 👩\u{200d}👩\u{200d}👧 🇨🇭 ½ “quotes” — A\tb";
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    let text = TEXT.replace('\t', " ");
    for (field, content) in [("a", "a.value"), ("b", "b.textContent")] {
        page.evaluate(&format!("{field}.focus()")).await;
        run_action(&agent, "type", json!({"text": text})).await;
        assert_eq!(page.evaluate(content).await, text);
    }
    run_action(&agent, "type", json!({"text": "ab", "delay": 1})).await;
    assert_eq!(page.evaluate("b.textContent").await, format!("{text}ab"));
    agent.stop().await;
}

#[tokio::test]
async fn caps_lock_is_ignored_by_text_and_stays_on() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    page.evaluate("a.focus()").await;
    run_action(&agent, "press_key", json!({"keys": ["Caps_Lock"]})).await;
    let text = json!({"text": "abcdef", "delay": 10_000});
    let leaving = tokio::spawn(agent.post("/computer/type").json(&text).send());
    page.until("a.value", |value| value == "a").await;
    leaving.abort();
    run_action(&agent, "press_key", json!({"keys": ["b"]})).await;
    run_action(&agent, "type", json!({"text": "cD"})).await;
    run_action(
        &agent,
        "press_key",
        json!({"keys": ["e", "Caps_Lock", "f"]}),
    )
    .await;
    assert_eq!(page.evaluate("a.value").await, "aBcDEf");
    agent.stop().await;
}

#[tokio::test]
async fn typed_text_is_not_logged() {
    const SECRET: &str = "correct-horse-battery-staple-é";
    let agent = Start::headless().logging("trace,hyper=info").ready().await;
    let mut page = recorder(&agent).await;
    page.evaluate("a.focus()").await;
    run_action(&agent, "type", json!({"text": SECRET})).await;
    assert_eq!(page.evaluate("a.value").await, SECRET);
    run_action(&agent, "press_key", json!({"keys": ["Ctrl+a", "é"]})).await;
    let log = agent.log();
    assert!(log.contains("TRACE"), "all is logged that may be");
    for trace in ["horse", "é", "dispatchKeyEvent", "keyDown", "KeyA"] {
        let line = log.lines().find(|line| line.contains(trace));
        assert_eq!(line, None, "{trace}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn input_without_a_browser_fails_like_a_screenshot() {
    let agent = Start::without_browser().listening().await;
    let place = json!({"x": 1, "y": 1});
    let (moved, taken) = tokio::join!(
        agent.answer(agent.post("/computer/move_mouse").json(&place)),
        agent.answer(agent.post("/computer/screenshot").json(&json!({}))),
    );
    assert_eq!(moved.0, StatusCode::SERVICE_UNAVAILABLE, "{}", moved.1);
    assert_eq!(moved, taken);
    agent.stop().await;
}

#[tokio::test]
async fn smooth_move_ends_at_its_target() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    assert_eq!(position(&agent).await, json!({"x": 0, "y": 0}));
    let way = json!({"x": 900, "y": 600, "smooth": true, "duration_ms": 2000});
    run_action(&agent, "move_mouse", way).await;
    assert_eq!(position(&agent).await, json!({"x": 900, "y": 600}));
    let moves = page.until("seen", |seen| {
        seen.as_array()
            .unwrap()
            .last()
            .is_some_and(|last| last[1] == 900 && last[2] == 600)
    });
    assert!(moves.await.as_array().unwrap().len() > 3);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_batch_is_rejected_and_plays_nothing() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    let height = page.evaluate("innerHeight").await.as_i64().unwrap();
    let (status, answer) = batch(
        &agent,
        &[
            action("move_mouse", json!({"x": 5, "y": 5})),
            action("move_mouse", json!({"x": 1280, "y": 5})),
            action("click_mouse", json!({"x": 1279, "y": height})),
            action("press_key", json!({"keys": ["nokey"]})),
            action("drag_mouse", json!({"path": [[1, 1]]})),
        ],
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(
        wrong_fields(&answer),
        [
            "actions[1].move_mouse.x",
            "actions[2].click_mouse.y",
            "actions[3].press_key.keys[0]",
            "actions[4].drag_mouse.path",
        ]
    );
    let (status, answer) = batch(
        &agent,
        &[
            action("move_mouse", json!({"x": 5, "y": 5})),
            action("set_cursor", json!({"hidden": true})),
        ],
    )
    .await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert_eq!(answer["code"], "no_display");
    let (status, answer) = agent
        .answer(
            agent
                .post("/computer/cursor")
                .json(&json!({"hidden": true})),
        )
        .await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::CONFLICT, &json!("no_display"))
    );
    assert_eq!(position(&agent).await, json!({"x": 0, "y": 0}));
    assert_eq!(page.evaluate("seen").await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn held_input_is_released_when_the_client_disconnects() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    let actions = [
        action(
            "click_mouse",
            json!({"x": 600, "y": 300, "click_type": "down"}),
        ),
        action(
            "press_key",
            json!({"keys": ["Shift+k"], "duration": 30_000}),
        ),
    ];
    let request = agent
        .post("/computer/batch")
        .json(&json!({"actions": actions}));
    let leaving = tokio::spawn(request.send());
    page.until(
        "seen.some(event => event[0] == 'keydown' && event[1] == 'K')",
        |is| *is == true,
    )
    .await;
    leaving.abort();
    let released =
        "['keyup', 'mouseup'].map(type => seen.filter(event => event[0] == type).length)";
    page.until(released, |seen| *seen == json!([2, 1])).await;
    let last = page
        .evaluate("seen.findLast(event => event[0] == 'mouseup')")
        .await;
    assert_eq!(
        last,
        json!([
            "mouseup", 600, 300, 0, 0, 1, false, false, false, null, null
        ])
    );
    // The next batch starts with nothing held.
    page.evaluate("seen = []").await;
    run_action(&agent, "click_mouse", json!({"x": 10, "y": 600})).await;
    let down = "seen.find(event => event[0] == 'mousedown')";
    let down = page.until(down, |down| down.is_array()).await;
    assert_eq!(
        down,
        json!([
            "mousedown",
            10,
            600,
            0,
            1,
            1,
            false,
            false,
            false,
            null,
            null
        ])
    );
    agent.stop().await;
}

#[tokio::test]
async fn batches_are_not_interleaved_and_do_not_block_other_requests() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    page.evaluate("a.focus()").await;
    let words = ["aaaa", "bbbb", "cccc", "dddd", "eeee"];
    let batches = words.map(|word| {
        let letter = action("press_key", json!({"keys": [&word[..1]]}));
        let agent = &agent;
        async move { run_batch(agent, vec![letter; 4]).await }
    });
    join_all(batches).await;
    let value = page.evaluate("a.value").await;
    let typed = value.as_str().unwrap();
    assert_eq!(typed.len(), 20);
    for word in words {
        assert!(typed.contains(word), "{typed}");
    }

    let asleep = action("sleep", json!({"duration_ms": 30_000}));
    let request = agent.post("/computer/batch");
    let moved = action("move_mouse", json!({"x": 7, "y": 8}));
    let sleeper = tokio::spawn(request.json(&json!({"actions": [moved, asleep]})).send());
    until("the move", async || {
        (position(&agent).await == json!({"x": 7, "y": 8})).then_some(())
    })
    .await;
    assert_eq!(screenshot(&agent, &json!({})).await.width, 1280);
    // Invalid batches are rejected at once, too.
    let wrong = [action("move_mouse", json!({"x": -1, "y": 0}))];
    let (status, answer) = in_time("a refusal", batch(&agent, &wrong)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert!(!sleeper.is_finished());
    sleeper.abort();
    run_action(&agent, "move_mouse", json!({"x": 1, "y": 2})).await;
    agent.stop().await;
}

#[tokio::test]
async fn closed_tab_fails_only_its_batch() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    let target = page
        .call("Target.createTarget", json!({"url": "about:blank"}))
        .await;
    until("the new tab in front", async || {
        let list = agent.ok(agent.get("/json/list")).await;
        (list[0]["id"] == target["targetId"]).then_some(())
    })
    .await;
    let actions = [
        action("press_key", json!({"keys": ["Shift"]})),
        action("move_mouse", json!({"x": 3, "y": 4})),
        action("press_key", json!({"keys": ["Shift"], "duration": 10_000})),
        action("move_mouse", json!({"x": 5, "y": 6})),
    ];
    let close = async {
        until("the move", async || {
            (position(&agent).await == json!({"x": 3, "y": 4})).then_some(())
        })
        .await;
        page.call("Target.closeTarget", target.clone()).await;
    };
    let ((status, answer), ()) = tokio::join!(batch(&agent, &actions), close);
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    let detail = |code: &str| {
        let mut details = answer["details"].as_array().unwrap().iter();
        details.find(|detail| detail["code"] == code).unwrap()["message"].clone()
    };
    let results: Value = serde_json::from_str(detail("results").as_str().unwrap()).unwrap();
    let results = results.as_array().unwrap();
    // The tab closes with the move or after it: if a key is held then, its release fails.
    let index = results.len() - 1;
    assert!((1..=3).contains(&index), "{answer}");
    assert_eq!(detail("index"), index.to_string());
    assert_eq!(detail("type"), actions[index]["type"]);
    assert!(results[..index].iter().all(|result| result["ok"] == true));
    assert_eq!(results[index]["ok"], false);
    // The tab behind it is in front now.
    run_action(&agent, "click_mouse", json!({"x": 700, "y": 300})).await;
    page.until("seen.some(event => event[0] == 'click')", |is| *is == true)
        .await;
    agent.ok(agent.post("/chromium/restart")).await;
    let mut page = recorder(&agent).await;
    run_action(&agent, "click_mouse", json!({"x": 700, "y": 300})).await;
    page.until("seen.some(event => event[0] == 'click')", |is| *is == true)
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn unconfirmed_actions_are_not_reported_as_done() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    // The page blocks from the first move on.
    page.evaluate("onmousemove = () => alert('stop'); 0").await;
    let actions = [
        action("sleep", json!({"duration_ms": 1})),
        action("move_mouse", json!({"x": 30, "y": 40})),
        action("click_mouse", json!({"x": 50, "y": 60})),
    ];
    let (status, answer) = batch(&agent, &actions).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert_eq!(answer["message"], "action 1 (move_mouse) failed");
    assert_eq!(answer["inner_error"]["code"], "not_taken");
    agent.stop().await;
}

#[tokio::test]
async fn confirmed_actions_are_reported_as_done_when_the_browser_dies() {
    let agent = headless().await;
    let mut page = recorder(&agent).await;
    let chromium = u32::try_from(agent.chromium_number("pid").await).unwrap();
    let actions = [
        action("move_mouse", json!({"x": 30, "y": 40})),
        action("sleep", json!({"duration_ms": 3_000})),
        action("click_mouse", json!({"x": 50, "y": 60})),
    ];
    let kill = async {
        let moved = "seen.some(event => event[0] == 'mousemove')";
        page.until(moved, |is| *is == true).await;
        // The reply to the move precedes the reply to this.
        page.evaluate(DRAWN).await;
        processes::signal(chromium, Signal::SIGKILL);
    };
    let ((status, answer), ()) = tokio::join!(batch(&agent, &actions), kill);
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert_eq!(answer["message"], "action 2 (click_mouse) failed");
    assert_eq!(answer["inner_error"]["code"], "screen_lost");
    agent.stop().await;
}

#[tokio::test]
async fn screenshot_shows_the_page_or_a_region() {
    const BOXES: &str = "<!doctype html><body style='margin:0;height:5000px'>\
        <div style='position:absolute;left:0;top:0;width:100px;height:100px;background:#f00'></div>\
        <div style='position:absolute;left:20px;top:1000px;width:100px;height:100px;background:#00f'></div>";
    let agent = headless().await;
    let mut page = Page::of(&agent).await;
    page.show(BOXES).await;
    page.evaluate(DRAWN).await;
    let height = page.evaluate("innerHeight").await.as_u64().unwrap() as u32;
    let whole = screenshot(&agent, &json!({})).await;
    assert_eq!((whole.width, whole.height), (1280, height));
    assert_eq!((whole.at(99, 99), whole.at(100, 99) == RED), (RED, false));
    // The visible part, not the top of the page.
    page.evaluate("scrollTo(0, 1000)").await;
    page.evaluate(DRAWN).await;
    let part = screenshot(&agent, &region(10, 0, 30, 20)).await;
    assert_eq!((part.width, part.height), (30, 20));
    assert_eq!(
        (part.at(9, 0) == BLUE, part.at(10, 0), part.at(29, 19)),
        (false, BLUE, BLUE)
    );
    for beyond in [region(1270, 0, 11, 1), region(0, height, 1, 1)] {
        let request = agent.post("/computer/screenshot").json(&beyond);
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(wrong_fields(&answer), ["region"]);
    }
    agent.stop().await;
}
