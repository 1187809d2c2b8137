//! `POST /computer/click_mouse`

use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    recorder::{Recorder, run_action},
};

/// Returns kind, position, button and held keys of an event.
fn summary(event: &Value) -> Value {
    json!([
        event["type"],
        event["x"],
        event["y"],
        event["button"],
        event["held"]
    ])
}

#[tokio::test]
async fn every_button_is_pressed_at_its_position() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    for (name, number) in [
        ("left", 0),
        ("middle", 1),
        ("right", 2),
        ("back", 3),
        ("forward", 4),
    ] {
        let (x, y) = (300 + number * 10, 400);
        run_action(
            &agent,
            "click_mouse",
            json!({"x": x, "y": y, "button": name}),
        )
        .await;
        let seen = recorder.take_of(&["mousedown", "mouseup"], 2).await;
        let expected = [
            json!(["mousedown", x, y, number, ""]),
            json!(["mouseup", x, y, number, ""]),
        ];
        assert_eq!(seen.iter().map(summary).collect::<Vec<_>>(), expected);
    }
    agent.stop().await;
}

#[tokio::test]
async fn clicks_are_counted_and_keys_held() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let click = json!({"x": 300, "y": 400, "num_clicks": 3, "hold_keys": ["Shift", "ctrl"]});
    run_action(&agent, "click_mouse", click).await;
    let seen = recorder
        .take_of(&["mousedown", "dblclick", "keydown", "keyup"], 8)
        .await;
    let kinds: Vec<&str> = seen
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "keydown",
            "keydown",
            "mousedown",
            "mousedown",
            "dblclick",
            "mousedown",
            "keyup",
            "keyup"
        ]
    );
    let details: Vec<_> = seen
        .iter()
        .filter_map(|event| event["detail"].as_i64())
        .collect();
    assert_eq!(details, [1, 2, 2, 3]);
    let presses = || seen.iter().filter(|event| event["type"] == "mousedown");
    assert!(presses().all(|press| press["held"] == "Shift+Control"));
    agent.stop().await;
}

#[tokio::test]
async fn button_stays_down_until_a_later_call_releases_it() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let press = |x: i32, click_type: &str| json!({"x": x, "y": 400, "click_type": click_type});
    run_action(&agent, "click_mouse", press(300, "down")).await;
    run_action(&agent, "move_mouse", json!({"x": 350, "y": 400})).await;
    run_action(&agent, "press_key", json!({"keys": ["a"]})).await;
    let seen = recorder
        .take_of(&["mousedown", "mouseup", "keyup"], 2)
        .await;
    assert_eq!(seen.len(), 2, "{seen:?}");
    run_action(&agent, "click_mouse", press(400, "up")).await;
    let seen = recorder.take_of(&["mousedown", "mouseup"], 1).await;
    assert_eq!(summary(&seen[0]), json!(["mouseup", 400, 400, 0, ""]));
    agent.stop().await;
}
