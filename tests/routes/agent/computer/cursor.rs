//! `POST /computer/cursor`

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::Start,
    painter::{BLUE, Painter, region, screenshot},
    recorder::run_action,
    requests::wrong_fields,
};

#[tokio::test]
async fn cursor_is_hidden_and_shown_repeatedly() {
    let agent = Start::screen_alone().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(BLUE);
    run_action(&agent, "move_mouse", json!({"x": 300, "y": 200})).await;
    let is_visible = async || {
        let picture = screenshot(&agent, &region(290, 190, 20, 20)).await;
        (0..20).any(|x| (0..20).any(|y| picture.at(x, y) != BLUE))
    };
    assert!(is_visible().await);
    for hidden in [true, true, false, false, true] {
        run_action(&agent, "cursor", json!({"hidden": hidden})).await;
        assert_eq!(is_visible().await, !hidden);
    }
    for body in [json!({}), json!({"hidden": "yes"})] {
        let (status, answer) = agent
            .answer(agent.post("/computer/cursor").json(&body))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(wrong_fields(&answer), ["hidden"]);
    }
    agent.stop().await;
}
