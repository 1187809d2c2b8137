//! `POST /computer/move_mouse`

use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    recorder::{Recorder, run_action},
    xrecord::{Event, Input, XRecord, move_duration_ms, positions},
};

fn place(event: &Value) -> (i64, i64) {
    (event["x"].as_i64().unwrap(), event["y"].as_i64().unwrap())
}

#[tokio::test]
async fn it_goes_at_once_or_as_a_hand_would() {
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
            .all(|event| place(event) == (200, 300) && event["held"] == "Alt"),
        "{seen:?}"
    );
    assert!(!moves.is_empty());

    let smooth = json!({"x": 1200, "y": 900, "smooth": true, "duration_ms": 5000});
    run_action(&agent, "move_mouse", smooth).await;
    let seen = recorder
        .take_when("the end of the way", |seen| {
            seen.last().is_some_and(|event| place(event) == (1200, 900))
        })
        .await;
    let way: Vec<(i64, i64)> = seen.iter().map(place).collect();
    assert!(way.len() >= 5, "{way:?}");
    assert!(way.is_sorted(), "{way:?}");
    // The straight way would be y = 300 + (x - 200) * 0.6.
    let off = |(x, y): &(i64, i64)| (300 + (x - 200) * 6 / 10 - y).abs();
    assert!(way.iter().any(|at| off(at) > 10), "{way:?}");
    agent.stop().await;
}

#[tokio::test]
async fn a_smooth_move_takes_its_time_and_the_same_way_each_time() {
    let agent = Start::screen_alone().await;
    let mut record = XRecord::on(&agent).await;
    let mut ways = Vec::new();
    // As long as a hand takes, longer, and that once more.
    for (duration, least) in [(None, 500), (Some(2000), 2000), (Some(2000), 2000)] {
        run_action(&agent, "move_mouse", json!({"x": 100, "y": 100})).await;
        let to = json!({"x": 900, "y": 500, "smooth": true, "duration_ms": duration});
        run_action(&agent, "move_mouse", to).await;
        run_action(&agent, "press_key", json!({"keys": ["F9"]})).await;
        let is_over = |event: &Event| matches!(event.input, Input::Key { down, .. } if !down);
        let seen = record
            .take_when("the end of the way", |events| events.iter().any(is_over))
            .await;
        let took = move_duration_ms(&seen);
        assert!(took + 1 >= least, "{took} ms");
        let way = positions(&seen);
        assert!(way.len() > 50 && way.is_sorted(), "{way:?}");
        // The straight way would be y = x / 2 + 50.
        let off = |(x, y): &(i64, i64)| (x / 2 + 50 - y).abs();
        assert!(way.iter().any(|at| off(at) > 8), "{way:?}");
        ways.push(way);
    }
    assert_eq!(ways[1], ways[2]);
    agent.stop().await;
}
