//! `POST /computer/drag_mouse`

use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    recorder::{Recorder, act},
};

fn told(event: &Value) -> (&str, i64, i64) {
    let kind = event["type"].as_str().unwrap();
    (
        kind,
        event["x"].as_i64().unwrap(),
        event["y"].as_i64().unwrap(),
    )
}

/// Without moves to where the pointer is already: what is told again of a pressed button.
fn ways(seen: &[Value]) -> Vec<(&str, i64, i64)> {
    let mut ways: Vec<_> = seen
        .iter()
        .filter(|event| event["x"].is_i64())
        .map(told)
        .collect();
    ways.dedup();
    ways
}

/// Whether all of `part` is in `whole`, in that order.
fn is_part_of<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|wanted| rest.any(|found| found == wanted))
}

fn released(seen: &[Value]) -> bool {
    seen.iter().any(|event| event["type"] == "mouseup")
}

#[tokio::test]
async fn it_goes_from_point_to_point_with_the_button_held() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let drag = json!({
        "path": [[300, 300], [400, 300], [400, 500]], "button": "right", "delay": 50,
        "steps_per_segment": 2, "step_delay_ms": 120, "hold_keys": ["Shift"],
    });
    act(&agent, "drag_mouse", drag).await;
    let seen = recorder.take_when("the release", released).await;
    let ways = ways(&seen);
    let presses: Vec<_> = ways.iter().filter(|way| way.0 != "mousemove").collect();
    assert_eq!(presses, [&("mousedown", 300, 300), &("mouseup", 400, 500)]);
    let moves: Vec<_> = ways
        .iter()
        .filter(|way| way.0 == "mousemove")
        .map(|way| (way.1, way.2))
        .collect();
    let planned = [(300, 300), (350, 300), (400, 300), (400, 400), (400, 500)];
    assert!(is_part_of(&moves, &planned), "{moves:?}");
    let within = seen.iter().filter(|event| event["type"] != "keyup");
    assert!(
        within.clone().all(|event| event["held"] == "Shift"),
        "{seen:?}"
    );
    let at = |kind: &str| seen.iter().position(|event| event["type"] == kind).unwrap();
    let (press, release) = (at("mousedown"), at("mouseup"));
    assert_eq!(seen[press]["button"], 2);
    for (at, event) in seen
        .iter()
        .enumerate()
        .filter(|(_, event)| event["x"].is_i64())
    {
        let is_held = (press..release).contains(&at);
        assert_eq!(event["buttons"], if is_held { 2 } else { 0 }, "{seen:?}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn what_is_draggable_is_dropped_where_it_should_be() {
    let agent = Start::on_screen().ready().await;
    // A slider, which follows the mouse, and reaches its end only where the mouse does.
    let slider = "<input type=range id=slider min=0 max=100 value=0 style='left: 0; top: 300px; width: 400px; height: 40px'>\
        <script>window.editing = true</script>";
    let mut recorder = Recorder::with(&agent, slider).await;
    let top = recorder.0.evaluate("outerHeight - innerHeight").await;
    let y = top.as_i64().unwrap() + 320;
    let drag =
        json!({"path": [[10, y], [200, y + 30], [400, y]], "smooth": true, "duration_ms": 500});
    act(&agent, "drag_mouse", drag).await;
    recorder.take_when("the release", released).await;
    recorder
        .0
        .until("slider.value", |value| value == "100")
        .await;
    agent.stop().await;
}
