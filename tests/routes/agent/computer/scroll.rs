//! `POST /computer/scroll`

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    recorder::{Recorder, action, run_action, run_batch},
    xrecord::{Event, Input, XRecord},
};

/// Returns the sum of the deltas of one axis.
fn sum(seen: &[Value], axis: &str) -> f64 {
    let deltas = seen.iter().filter_map(|event| event[axis].as_f64());
    deltas.sum()
}

#[tokio::test]
async fn scroll_turns_the_wheel_by_notches() {
    const NOTCH: f64 = 120.0;
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    for (across, down) in [(0, 1), (0, -4), (3, 0), (-2, 5)] {
        let scroll = json!({"x": 300, "y": 400, "delta_x": across, "delta_y": down});
        run_action(&agent, "scroll", scroll).await;
        let seen = recorder
            .take_when("all notches", |seen| {
                sum(seen, "dy") == NOTCH * f64::from(down)
                    && sum(seen, "dx") == NOTCH * f64::from(across)
            })
            .await;
        let wheel = seen.iter().filter(|event| event["type"] == "wheel");
        assert!(
            wheel
                .clone()
                .all(|event| event["x"] == 300 && event["y"] == 400)
        );
    }
    let held = json!({"x": 300, "y": 400, "delta_y": 3, "hold_keys": ["Ctrl"]});
    run_action(&agent, "scroll", held).await;
    let seen = recorder
        .take_when("all notches", |seen| sum(seen, "dy") == NOTCH * 3.0)
        .await;
    let mut wheel = seen.iter().filter(|event| event["type"] == "wheel");
    assert!(wheel.all(|event| event["held"] == "Control"), "{seen:?}");
    agent.stop().await;
}

#[tokio::test]
async fn input_waits_until_the_page_has_a_scroll_before_it() {
    const NOTCHES: usize = 5;
    // The server counts whole milliseconds.
    const DELAY_MS: u32 = 49;
    let agent = Start::screen_alone().await;
    let mut input = XRecord::on(&agent).await;
    let scroll = json!({"x": 300, "y": 400, "delta_y": NOTCHES});
    let held = json!({"x": 300, "y": 400, "delta_y": NOTCHES, "hold_keys": ["Ctrl"]});
    let (click, press) = (json!({"x": 500, "y": 100}), json!({"keys": ["a"]}));
    for actions in [
        vec![("scroll", &scroll), ("click_mouse", &click)],
        vec![("scroll", &scroll), ("press_key", &press)],
        vec![("scroll", &held)],
    ] {
        let batch = actions
            .iter()
            .map(|(kind, fields)| action(kind, (*fields).clone()));
        run_batch(&agent, batch.collect()).await;
        assert_waited(&mut input, NOTCHES, DELAY_MS).await;
        for (route, fields) in actions {
            run_action(&agent, route, fields.clone()).await;
        }
        assert_waited(&mut input, NOTCHES, DELAY_MS).await;
    }
    let started_at = Instant::now();
    run_action(&agent, "scroll", scroll).await;
    let screenshot = agent.post("/computer/screenshot").json(&json!({}));
    assert_eq!(screenshot.send().await.unwrap().status(), StatusCode::OK);
    assert!(started_at.elapsed() >= Duration::from_millis(50));
    agent.stop().await;
}

/// Asserts that the next release of a key or button is that long after the last notch.
async fn assert_waited(input: &mut XRecord, notches: usize, delay_ms: u32) {
    let is_notch = |event: &&Event| {
        matches!(
            event.input,
            Input::Button {
                number: 5,
                down: true
            }
        )
    };
    let is_release = |event: &&Event| {
        matches!(
            event.input,
            Input::Key { down: false, .. }
                | Input::Button {
                    number: 1,
                    down: false
                }
        )
    };
    let events = input
        .take_when("a scroll and a release", |events| {
            events.iter().filter(is_notch).count() == notches
                && events.iter().filter(is_release).count() == 1
        })
        .await;
    let last_notch = events.iter().rfind(is_notch).expect("a notch");
    let release = events.iter().find(is_release).expect("a release");
    assert!(release.at - last_notch.at >= delay_ms, "{events:?}");
}
