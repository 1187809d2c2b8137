//! `POST /computer/get_mouse_position`

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::Start,
    recorder::{action, position, run_action},
    wait::{in_time, until},
};

#[tokio::test]
async fn position_is_returned() {
    let agent = Start::screen_alone().await;
    for (x, y) in [(0, 0), (100, 200), (1919, 1079)] {
        run_action(&agent, "move_mouse", json!({"x": x, "y": y})).await;
        assert_eq!(position(&agent).await, json!({"x": x, "y": y}));
    }
    agent.stop().await;
}

#[tokio::test]
async fn position_is_returned_during_a_batch() {
    let agent = Start::screen_alone().await;
    let at = json!({"x": 10, "y": 20});
    // Longer than any timeout of this test.
    let pause_action = || action("sleep", json!({"duration_ms": 30_000}));
    let moved = action("move_mouse", at.clone());
    let actions = [
        moved,
        pause_action(),
        pause_action(),
        pause_action(),
        pause_action(),
    ];
    let batch = agent.post("/computer/batch");
    let sleeping = tokio::spawn(batch.json(&json!({"actions": actions})).send());
    until("the move", async || {
        (position(&agent).await == at).then_some(())
    })
    .await;
    // Invalid actions are rejected at once, too.
    let body = json!({"x": 10_000, "y": 0});
    let (status, _) = agent
        .answer(agent.post("/computer/move_mouse").json(&body))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!sleeping.is_finished());
    sleeping.abort();
    // The next batch starts once the client has disconnected.
    in_time(
        "the next one's turn",
        run_action(&agent, "move_mouse", json!({"x": 5, "y": 5})),
    )
    .await;
    agent.stop().await;
}
