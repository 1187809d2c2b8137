//! `POST /computer/move_mouse`

use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    recorder::{Recorder, run_action},
    xrecord::{Event, Input, XRecord, move_duration_ms, positions},
};

fn position(event: &Value) -> (i64, i64) {
    (event["x"].as_i64().unwrap(), event["y"].as_i64().unwrap())
}

#[tokio::test]
async fn move_is_immediate_or_smooth() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let at_once = json!({"x": 200, "y": 300, "hold_keys": ["Alt"]});
    run_action(&agent, "move_mouse", at_once).await;
    let seen = recorder
        .take_when("the move", |seen| {
            seen.last().is_some_and(|event| event["type"] == "keyup")
        })
        .await;
    let moves: Vec<&Value> = seen
        .iter()
        .filter(|event| event["type"] == "mousemove")
        .collect();
    assert!(
        moves
            .iter()
            .all(|event| position(event) == (200, 300) && event["held"] == "Alt"),
        "{seen:?}"
    );
    assert!(!moves.is_empty());

    let smooth = json!({"x": 1200, "y": 900, "smooth": true, "duration_ms": 5000});
    run_action(&agent, "move_mouse", smooth).await;
    let seen = recorder
        .take_when("the end of the path", |seen| {
            seen.last()
                .is_some_and(|event| position(event) == (1200, 900))
        })
        .await;
    let path: Vec<(i64, i64)> = seen.iter().map(position).collect();
    assert!(path.len() >= 5, "{path:?}");
    assert!(path.is_sorted(), "{path:?}");
    // The straight line is y = 300 + (x - 200) * 0.6.
    let off = |(x, y): &(i64, i64)| (300 + (x - 200) * 6 / 10 - y).abs();
    assert!(path.iter().any(|at| off(at) > 10), "{path:?}");
    agent.stop().await;
}

#[tokio::test]
async fn smooth_move_has_its_duration_and_a_deterministic_path() {
    let agent = Start::screen_alone().await;
    let mut record = XRecord::on(&agent).await;
    let mut paths = Vec::new();
    // The default duration, a longer one, and that again.
    for (duration, least) in [(None, 500), (Some(2000), 2000), (Some(2000), 2000)] {
        run_action(&agent, "move_mouse", json!({"x": 100, "y": 100})).await;
        let to = json!({"x": 900, "y": 500, "smooth": true, "duration_ms": duration});
        run_action(&agent, "move_mouse", to).await;
        run_action(&agent, "press_key", json!({"keys": ["F9"]})).await;
        let is_over = |event: &Event| matches!(event.input, Input::Key { down, .. } if !down);
        let seen = record
            .take_when("the end of the path", |events| events.iter().any(is_over))
            .await;
        let duration_ms = move_duration_ms(&seen);
        assert!(duration_ms + 1 >= least, "{duration_ms} ms");
        let path = positions(&seen);
        assert!(path.len() > 50 && path.is_sorted(), "{path:?}");
        // The straight line is y = x / 2 + 50.
        let off = |(x, y): &(i64, i64)| (x / 2 + 50 - y).abs();
        assert!(path.iter().any(|at| off(at) > 8), "{path:?}");
        paths.push(path);
    }
    assert_eq!(paths[1], paths[2]);
    agent.stop().await;
}
