//! `POST /computer/press_key`

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::Start,
    recorder::{Recorder, run_action},
    requests::wrong_fields,
};

/// The number of spare keycodes of the keyboard of Xvfb.
const SPARE_KEYS: usize = 18;

#[tokio::test]
async fn keys_and_combinations_are_pressed_and_released() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    for (keys, count, expected) in [
        (json!(["a"]), 2, "+a -a"),
        (json!(["A"]), 4, "+Shift +A -A -Shift"),
        (json!(["Return", "esc"]), 4, "+Enter -Enter +Escape -Escape"),
        (json!(["Ctrl+C"]), 4, "+Control +c -c -Control"),
        (
            json!(["ctrl+shift+k"]),
            6,
            "+Control +Shift +K -K -Shift -Control",
        ),
        (json!(["cmd+ArrowUp"]), 4, "+Meta +ArrowUp -ArrowUp -Meta"),
        (json!(["F5", "page_down"]), 4, "+F5 -F5 +PageDown -PageDown"),
        (
            json!(["Ctrl++"]),
            6,
            "+Control +Shift ++ -+ -Shift -Control",
        ),
        (json!(["space", "!"]), 6, "+  -  +Shift +! -! -Shift"),
    ] {
        run_action(&agent, "press_key", json!({"keys": keys})).await;
        assert_eq!(recorder.keys(count).await, expected, "{keys}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn keys_are_held_for_the_duration() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let held = json!({"keys": ["a", "Ctrl+b"], "duration": 100, "hold_keys": ["Alt", "ctrl"]});
    run_action(&agent, "press_key", held).await;
    let expected = "+Alt +Control +a +b -b -a -Control -Alt";
    assert_eq!(recorder.keys(8).await, expected);
    // A key that is held long enough is repeated, as on any keyboard.
    run_action(
        &agent,
        "press_key",
        json!({"keys": ["x"], "duration": 1500}),
    )
    .await;
    let seen = recorder
        .take_when("the release", |seen| {
            seen.iter().any(|event| event["type"] == "keyup")
        })
        .await;
    assert!(seen.iter().any(|event| event["repeat"] == true), "{seen:?}");
    agent.stop().await;
}

#[tokio::test]
async fn key_missing_from_the_keyboard_is_pressed() {
    let agent = Start::on_screen().ready().await;
    let field = "<input id=field autofocus><script>window.editing = true; field.focus()</script>";
    let mut recorder = Recorder::with(&agent, field).await;
    let keys = json!({"keys": ["eacute", "U20AC", "漢", "KP_7", "Greek_alpha"]});
    run_action(&agent, "press_key", keys).await;
    recorder
        .0
        .until("field.value", |value| value == "é€漢7α")
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn unknown_keys_are_rejected() {
    let agent = Start::screen_alone().await;
    let many = vec!["a"; 101];
    for (body, fields) in [
        (json!({}), vec!["keys"]),
        (json!({"keys": []}), vec!["keys"]),
        (json!({"keys": many}), vec!["keys"]),
        (json!({"keys": "a"}), vec!["keys"]),
        (
            json!({"keys": ["a", "nokey", "Ctrl+nokey", 3]}),
            vec!["keys[1]", "keys[2]", "keys[3]"],
        ),
        (
            json!({"keys": ["a"], "duration": 30_001, "hold_keys": ["x y"]}),
            vec!["duration", "hold_keys[0]"],
        ),
        (
            json!({"keys": ["a"], "hold_keys": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}),
            vec!["hold_keys"],
        ),
        // Each key of a combination counts.
        (
            json!({"keys": ["a"], "hold_keys": ["a+b+c", "d+e+f", "g+h+i"]}),
            vec!["hold_keys"],
        ),
    ] {
        let (status, answer) = agent
            .answer(agent.post("/computer/press_key").json(&body))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(wrong_fields(&answer), fields, "{body}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn no_key_stays_down_if_too_many_need_a_keycode() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let unbound = |first: char, count: u32| -> Vec<String> {
        let all = (0..count).filter_map(|next| char::from_u32(first as u32 + next));
        all.map(String::from).collect()
    };
    let many = json!({"keys": unbound('\u{4e00}', 100), "duration": 1});
    let request = agent.post("/computer/press_key").json(&many);
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert_eq!(answer["inner_error"]["code"], "no_key");
    let seen = recorder
        .take_when("each released", |seen| {
            let count = |kind: &str| seen.iter().filter(|event| event["type"] == kind).count();
            count("keydown") > 0 && count("keydown") == count("keyup")
        })
        .await;
    assert_eq!(seen.len(), 2 * SPARE_KEYS, "{seen:?}");
    // Other keys can be bound again.
    let others = json!({"keys": unbound('\u{5e00}', SPARE_KEYS as u32), "duration": 1});
    run_action(&agent, "press_key", others).await;
    assert_eq!(
        recorder.keys(2 * SPARE_KEYS).await.split(' ').count(),
        2 * SPARE_KEYS
    );
    agent.stop().await;
}
