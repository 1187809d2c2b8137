//! `POST /computer/scroll`

use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    recorder::{Recorder, run_action},
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
