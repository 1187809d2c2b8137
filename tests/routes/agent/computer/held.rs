//! What is held down is up again, whatever happens.

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use x11rb::{
    connection::Connection,
    protocol::xproto::{ConnectionExt as _, KeyButMask},
    rust_connection::RustConnection,
};

use crate::support::{
    agent::{Start, TestAgent},
    processes,
    recorder::{action, position, run_action, run_batch},
    screen,
    wait::{in_time, until},
};

/// What the server says is down: buttons and modifiers, and whether any key is.
fn down(x: &RustConnection) -> (u16, bool) {
    let root = x.setup().roots[0].root;
    let pointer = x.query_pointer(root).unwrap().reply().unwrap();
    let keys = x.query_keymap().unwrap().reply().unwrap().keys;
    (pointer.mask.bits(), keys.iter().any(|byte| *byte != 0))
}

const NOTHING: (u16, bool) = (0, false);

async fn all_is_up(x: &RustConnection) {
    until("nothing held", async || (down(x) == NOTHING).then_some(())).await;
}

/// What is on each key, a list for each.
pub fn keyboard(x: &RustConnection) -> Vec<Vec<u32>> {
    let (first, last) = (x.setup().min_keycode, x.setup().max_keycode);
    let asked = x.get_keyboard_mapping(first, last - first + 1).unwrap();
    let keyboard = asked.reply().unwrap();
    let width = usize::from(keyboard.keysyms_per_keycode);
    keyboard.keysyms.chunks(width).map(Vec::from).collect()
}

/// How many keys could be put on it; the first of all is of no use.
fn room(keyboard: &[Vec<u32>]) -> usize {
    let rows = keyboard.iter().skip(1);
    rows.filter(|row| row.iter().all(|keysym| *keysym == 0))
        .count()
}

fn batch(agent: &TestAgent, actions: &Value) -> reqwest::RequestBuilder {
    agent
        .post("/computer/batch")
        .json(&json!({"actions": actions}))
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_down() {
    let agent = Start::screen_alone().await;
    let x = screen::connect(&agent).await;
    let pressed = action(
        "click_mouse",
        json!({"x": 50, "y": 50, "click_type": "down"}),
    );
    let held = json!({"keys": ["a", "é"], "duration": 30_000, "hold_keys": ["Shift", "Ctrl"]});
    let actions = json!([pressed, action("press_key", held)]);
    for _ in 0..3 {
        let leaving = tokio::spawn(batch(&agent, &actions).send());
        let all = KeyButMask::BUTTON1 | KeyButMask::SHIFT | KeyButMask::CONTROL;
        until("all held", async || {
            (down(&x) == (all.bits(), true)).then_some(())
        })
        .await;
        leaving.abort();
        all_is_up(&x).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn an_action_that_fails_leaves_nothing_down() {
    let agent = Start::on_screen().ready().await;
    let x = screen::connect(&agent).await;
    let press = json!({"x": 300, "y": 300, "click_type": "down"});
    run_action(&agent, "click_mouse", press).await;
    assert_eq!(down(&x).0, KeyButMask::BUTTON1.bits());
    // More keys than the keyboard has room for at once, and nobody to take them.
    let text: String = ('\u{4e00}'..'\u{4e80}').collect();
    let actions = json!([
        action("sleep", json!({"duration_ms": 1})),
        action(
            "click_mouse",
            json!({"x": 310, "y": 310, "button": "right", "click_type": "down"})
        ),
        action("type_text", json!({"text": text})),
        action("sleep", json!({"duration_ms": 1})),
    ]);
    let chromium = u32::try_from(agent.chromium_number("pid").await).unwrap();
    processes::signal(chromium, Signal::SIGSTOP);
    let (status, answer) = agent.answer(batch(&agent, &actions)).await;
    assert_eq!(down(&x), NOTHING);
    processes::signal(chromium, Signal::SIGCONT);
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    // What was done before it is told as done.
    assert_eq!(answer["message"], "action 2 (type_text) failed");
    assert_eq!(position(&agent).await, json!({"x": 310, "y": 310}));
    agent.stop().await;
}

#[tokio::test]
async fn a_screen_that_stands_still_for_a_while_is_left_with_nothing_down() {
    let agent = Start::screen_alone().await;
    let x = screen::connect(&agent).await;
    let before = keyboard(&x);
    // All there is room for.
    let keys: Vec<String> = ('\u{4e00}'..)
        .take(room(&before))
        .map(String::from)
        .collect();
    let held = json!({"keys": &keys, "duration": 30_000, "hold_keys": ["Ctrl"]});
    let press = |button: &str| json!({"x": 50, "y": 50, "button": button, "click_type": "down"});
    let actions = json!([
        action("click_mouse", press("right")),
        action("click_mouse", press("back")),
        action("press_key", held),
    ]);
    let playing = tokio::spawn(batch(&agent, &actions).send());
    until("all held", async || {
        let down = x.query_keymap().unwrap().reply().unwrap().keys;
        let count: u32 = down.iter().map(|byte| byte.count_ones()).sum();
        (count as usize == keys.len() + 1 && room(&keyboard(&x)) == 0).then_some(())
    })
    .await;
    // Once this is answered the last of them has been dealt with, and nothing is under way.
    position(&agent).await;
    let display = agent.display_pid().await;
    processes::signal(display, Signal::SIGSTOP);
    // It is given up once, and once more on the way back.
    for _ in 0..2 {
        let asked = agent.post("/computer/get_mouse_position");
        let (status, answer) = agent.answer(asked).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    }
    processes::signal(display, Signal::SIGCONT);
    let answer = in_time("its end", playing).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    all_is_up(&x).await;
    until("the keyboard as it was", async || {
        (keyboard(&x) == before).then_some(())
    })
    .await;
    run_batch(&agent, vec![action("type_text", json!({"text": "a漢é"}))]).await;
    assert_eq!(down(&x), NOTHING);
    assert_eq!(keyboard(&x), before);
    agent.stop().await;
}

#[tokio::test]
async fn a_screen_that_stands_still_is_given_up_whatever_it_is_asked_first() {
    let agent = Start::screen_alone().await;
    let x = screen::connect(&agent).await;
    let display = agent.display_pid().await;
    for (kind, what) in [
        ("press_key", json!({"keys": ["a"]})),
        ("click_mouse", json!({"x": 50, "y": 50})),
    ] {
        // It is connected by then.
        position(&agent).await;
        processes::signal(display, Signal::SIGSTOP);
        let actions = json!([action(kind, what)]);
        let asked = agent.answer(batch(&agent, &actions));
        let (status, answer) = in_time("an answer", asked).await;
        processes::signal(display, Signal::SIGCONT);
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
        assert_eq!(answer["message"], format!("action 0 ({kind}) failed"));
        // Whatever the screen was sent, it has answered by then.
        position(&agent).await;
        assert_eq!(down(&x), NOTHING);
    }
    agent.stop().await;
}

#[tokio::test]
async fn what_a_batch_holds_is_up_after_it() {
    let agent = Start::screen_alone().await;
    let x = screen::connect(&agent).await;
    let actions = json!([
        action(
            "press_key",
            json!({"keys": ["Ctrl+Shift+a", "漢"], "hold_keys": ["Alt"]})
        ),
        action(
            "click_mouse",
            json!({"x": 50, "y": 50, "num_clicks": 2, "hold_keys": ["Super"]})
        ),
        action("type_text", json!({"text": "ÄB漢"})),
        action(
            "drag_mouse",
            json!({"path": [[1, 1], [9, 9]], "step_delay_ms": 0, "hold_keys": ["Ctrl"]})
        ),
    ]);
    agent.ok(batch(&agent, &actions)).await;
    assert_eq!(down(&x), NOTHING);
    agent.stop().await;
}
