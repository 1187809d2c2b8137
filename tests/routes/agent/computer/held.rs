//! Held keys and buttons are released whatever happens.

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

/// Returns the pressed buttons and modifiers, and whether any key is pressed.
fn down(x: &RustConnection) -> (u16, bool) {
    let root = x.setup().roots[0].root;
    let pointer = x.query_pointer(root).unwrap().reply().unwrap();
    let keys = x.query_keymap().unwrap().reply().unwrap().keys;
    (pointer.mask.bits(), keys.iter().any(|byte| *byte != 0))
}

const NOTHING: (u16, bool) = (0, false);

async fn wait_for_release(x: &RustConnection) {
    until("nothing held", async || (down(x) == NOTHING).then_some(())).await;
}

/// Returns the keysyms of each keycode.
pub fn keyboard(x: &RustConnection) -> Vec<Vec<u32>> {
    let (first, last) = (x.setup().min_keycode, x.setup().max_keycode);
    let request = x.get_keyboard_mapping(first, last - first + 1).unwrap();
    let keyboard = request.reply().unwrap();
    let width = usize::from(keyboard.keysyms_per_keycode);
    keyboard.keysyms.chunks(width).map(Vec::from).collect()
}

/// Returns the number of spare keycodes. The first keycode is unusable.
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
async fn disconnected_client_leaves_nothing_down() {
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
        wait_for_release(&x).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn failed_action_leaves_nothing_down() {
    let agent = Start::on_screen().ready().await;
    let x = screen::connect(&agent).await;
    let press = json!({"x": 300, "y": 300, "click_type": "down"});
    run_action(&agent, "click_mouse", press).await;
    assert_eq!(down(&x).0, KeyButMask::BUTTON1.bits());
    // More keys than there are spare keycodes, and no program that processes them.
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
    processes::stop(chromium).await;
    let (status, answer) = agent.answer(batch(&agent, &actions)).await;
    assert_eq!(down(&x), NOTHING);
    processes::signal(chromium, Signal::SIGCONT);
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    // Earlier actions are reported as done.
    assert_eq!(answer["message"], "action 2 (type_text) failed");
    assert_eq!(position(&agent).await, json!({"x": 310, "y": 310}));
    agent.stop().await;
}

#[tokio::test]
async fn frozen_screen_has_nothing_down_after_it_resumes() {
    let agent = Start::screen_alone().await;
    let x = screen::connect(&agent).await;
    let before = keyboard(&x);
    // As many as there are spare keycodes.
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
    // The reply means that all events are processed.
    position(&agent).await;
    let display = agent.display_pid().await;
    processes::stop(display).await;
    // One timeout for the request, and one for the cleanup.
    for _ in 0..2 {
        let request = agent.post("/computer/get_mouse_position");
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    }
    processes::signal(display, Signal::SIGCONT);
    let answer = in_time("its end", playing).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    wait_for_release(&x).await;
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
async fn frozen_screen_fails_every_kind_of_action() {
    let agent = Start::screen_alone().await;
    let x = screen::connect(&agent).await;
    let display = agent.display_pid().await;
    for (kind, parameters) in [
        ("press_key", json!({"keys": ["a"]})),
        ("click_mouse", json!({"x": 50, "y": 50})),
    ] {
        // Ensures that it is connected.
        position(&agent).await;
        processes::stop(display).await;
        let actions = json!([action(kind, parameters)]);
        let request = agent.answer(batch(&agent, &actions));
        let (status, answer) = in_time("an answer", request).await;
        processes::signal(display, Signal::SIGCONT);
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
        assert_eq!(answer["message"], format!("action 0 ({kind}) failed"));
        // The reply means that all requests are processed.
        position(&agent).await;
        assert_eq!(down(&x), NOTHING);
    }
    agent.stop().await;
}

#[tokio::test]
async fn batch_releases_held_input_at_its_end() {
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
