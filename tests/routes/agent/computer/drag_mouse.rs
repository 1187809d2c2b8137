//! `POST /computer/drag_mouse`

use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    recorder::{Recorder, run_action},
    xrecord::{Event, Input, XRecord, move_duration_ms, positions},
};

fn summary(event: &Value) -> (&str, i64, i64) {
    let kind = event["type"].as_str().unwrap();
    (
        kind,
        event["x"].as_i64().unwrap(),
        event["y"].as_i64().unwrap(),
    )
}

/// Returns the events without moves to the current position, which repeat a pressed button.
fn without_repeated_moves(seen: &[Value]) -> Vec<(&str, i64, i64)> {
    let mut without_repeated_moves: Vec<_> = seen
        .iter()
        .filter(|event| event["x"].is_i64())
        .map(summary)
        .collect();
    without_repeated_moves.dedup();
    without_repeated_moves
}

/// Returns whether `whole` contains all of `part`, in that order.
fn is_part_of<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut rest = whole.iter();
    part.iter()
        .all(|expected| rest.any(|found| found == expected))
}

fn released(seen: &[Value]) -> bool {
    seen.iter().any(|event| event["type"] == "mouseup")
}

#[tokio::test]
async fn drag_visits_all_points_with_the_button_held() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let drag = json!({
        "path": [[300, 300], [400, 300], [400, 500]], "button": "right", "delay": 50,
        "steps_per_segment": 2, "step_delay_ms": 120, "hold_keys": ["Shift"],
    });
    run_action(&agent, "drag_mouse", drag).await;
    let seen = recorder.take_when("the release", released).await;
    let without_repeated_moves = without_repeated_moves(&seen);
    let presses: Vec<_> = without_repeated_moves
        .iter()
        .filter(|way| way.0 != "mousemove")
        .collect();
    assert_eq!(presses, [&("mousedown", 300, 300), &("mouseup", 400, 500)]);
    let moves: Vec<_> = without_repeated_moves
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

/// Runs a drag with the left button and returns the events that the server received.
async fn received_events(agent: &TestAgent, record: &mut XRecord, drag: Value) -> Vec<Event> {
    run_action(agent, "drag_mouse", drag).await;
    let is_over = |events: &[Event]| {
        let last = events.last().map(|event| event.input);
        last == Some(Input::Button {
            number: 1,
            down: false,
        })
    };
    record.take_when("the release", is_over).await
}

/// Returns the delays between the press and the moves after it, in milliseconds, rounded down.
fn delays(events: &[Event]) -> Vec<u32> {
    let pressed = events.iter().position(|event| {
        event.input
            == Input::Button {
                number: 1,
                down: true,
            }
    });
    let pressed = pressed.expect("a press");
    let times: Vec<u32> = events[pressed..events.len() - 1]
        .iter()
        .map(|event| event.at)
        .collect();
    times.windows(2).map(|pair| pair[1] - pair[0] + 1).collect()
}

#[tokio::test]
async fn drag_has_the_requested_steps_and_delays() {
    let agent = Start::screen_alone().await;
    let mut record = XRecord::on(&agent).await;
    let drag = json!({
        "path": [[100, 100], [200, 100], [200, 300]], "delay": 80, "steps_per_segment": 4, "step_delay_ms": 30,
    });
    let seen = received_events(&agent, &mut record, drag).await;
    let way = positions(&seen);
    let across = (0..=4).map(|step| (100 + 25 * step, 100));
    let down = (1..=4).map(|step| (200, 100 + 50 * step));
    assert_eq!(way, across.chain(down).collect::<Vec<_>>());
    let waits = delays(&seen);
    assert!(waits[0] >= 80 + 30, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait >= 30), "{waits:?}");

    // The defaults.
    let seen = received_events(
        &agent,
        &mut record,
        json!({"path": [[100, 100], [200, 200]]}),
    )
    .await;
    let way = positions(&seen);
    let line = (0..=10).map(|step| (100 + 10 * step, 100 + 10 * step));
    assert_eq!(way, line.collect::<Vec<_>>());
    let waits = delays(&seen);
    assert!(waits.iter().all(|wait| *wait >= 50), "{waits:?}");
    agent.stop().await;
}

#[tokio::test]
async fn smooth_drag_follows_curves_for_its_duration() {
    let agent = Start::screen_alone().await;
    let mut record = XRecord::on(&agent).await;
    // Longer than the default, and the default.
    for (duration, least) in [(Some(4000), 4000), (None, 1000)] {
        let drag = json!({"path": [[100, 500], [500, 500], [900, 500]], "smooth": true, "duration_ms": duration});
        let seen = received_events(&agent, &mut record, drag).await;
        let way = positions(&seen);
        assert_eq!(way.first(), Some(&(100, 500)));
        assert!(way.contains(&(500, 500)), "{way:?}");
        assert_eq!(way.last(), Some(&(900, 500)));
        assert!(way.is_sorted_by_key(|(x, _)| *x), "{way:?}");
        assert!(way.len() > 50, "{way:?}");
        assert!(way.iter().any(|(_, y)| y.abs_diff(500) > 8), "{way:?}");
        let duration_ms = move_duration_ms(&seen);
        assert!(duration_ms + 1 >= least, "{duration_ms} ms");
    }
    agent.stop().await;
}

#[tokio::test]
async fn drag_moves_a_slider_to_its_end() {
    let agent = Start::on_screen().ready().await;
    // A slider follows the mouse, and reaches its end only with it.
    let slider = "<input type=range id=slider min=0 max=100 value=0 style='left: 0; top: 300px; width: 400px; height: 40px'>\
        <script>window.editing = true</script>";
    let mut recorder = Recorder::with(&agent, slider).await;
    let top = recorder.0.evaluate("outerHeight - innerHeight").await;
    let y = top.as_i64().unwrap() + 320;
    let drag =
        json!({"path": [[10, y], [200, y + 30], [400, y]], "smooth": true, "duration_ms": 500});
    run_action(&agent, "drag_mouse", drag).await;
    recorder.take_when("the release", released).await;
    recorder
        .0
        .until("slider.value", |value| value == "100")
        .await;
    agent.stop().await;
}
