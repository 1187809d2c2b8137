//! `POST /computer/batch`

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    processes,
    recorder::{Recorder, action, position, run_batch},
    requests::wrong_fields,
    wait::until,
};

#[tokio::test]
async fn results_list_each_action() {
    let agent = Start::screen_alone().await;
    let results = run_batch(
        &agent,
        vec![
            action("move_mouse", json!({"x": 100, "y": 100})),
            action("sleep", json!({"duration_ms": 30})),
            action("click_mouse", json!({"x": 100, "y": 100})),
            action("type_text", json!({"text": "a"})),
            action("press_key", json!({"keys": ["a"]})),
            action("scroll", json!({"x": 1, "y": 1, "delta_y": 1})),
            action(
                "drag_mouse",
                json!({"path": [[1, 1], [2, 2]], "step_delay_ms": 0}),
            ),
            action("set_cursor", json!({"hidden": false})),
        ],
    )
    .await;
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert!(result["duration_us"].is_u64(), "{result}");
    }
    assert_eq!(results[6]["type"], "drag_mouse");
    assert!(results[1]["duration_us"].as_u64().unwrap() >= 30_000);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_batch_lists_each_invalid_action_and_plays_nothing() {
    let agent = Start::screen_alone().await;
    until("the screen of its size", async || {
        let beyond = json!({"x": 1920, "y": 1080});
        let request = agent.post("/computer/move_mouse").json(&beyond);
        (agent.answer(request).await.0 == StatusCode::BAD_REQUEST).then_some(())
    })
    .await;
    run_batch(&agent, vec![action("move_mouse", json!({"x": 7, "y": 8}))]).await;
    let good = action("move_mouse", json!({"x": 100, "y": 100}));
    let a_drag = |path: Value| action("drag_mouse", json!({"path": path}));
    let too_much = || action("sleep", json!({"duration_ms": 30_000}));
    for (actions, fields) in [
        (json!([]), vec!["actions"]),
        (json!(vec![&good; 1001]), vec!["actions"]),
        (json!({}), vec!["actions"]),
        (
            json!([good, {"type": "jump"}, 3]),
            vec!["actions[1].type", "actions[2]"],
        ),
        (
            json!([{}, {"type": "sleep"}]),
            vec!["actions[0].type", "actions[1].sleep"],
        ),
        (
            json!([
                good,
                action("move_mouse", json!({"x": "1", "y": -1})),
                action("move_mouse", json!({"x": 1.5, "y": 2}))
            ]),
            vec!["actions[1].move_mouse.x", "actions[2].move_mouse.x"],
        ),
        // Actions off the screen and malformed actions, together.
        (
            json!([
                action("move_mouse", json!({"x": 1920, "y": 1080})),
                action("click_mouse", json!({"x": 0, "y": 1080})),
                action("press_key", json!({"keys": ["nokey"]})),
                action("scroll", json!({"x": -1, "y": 0, "delta_y": 1})),
                good,
                a_drag(json!([[0, 0], [1, 1], [1919, 5000]])),
                action("type_text", json!({"text": "\u{1}"})),
            ]),
            vec![
                "actions[0].move_mouse.x",
                "actions[1].click_mouse.y",
                "actions[2].press_key.keys[0]",
                "actions[3].scroll.x",
                "actions[5].drag_mouse.path[2][1]",
                "actions[6].type_text.text",
            ],
        ),
        (
            json!([
                a_drag(json!([[1, 1]])),
                a_drag(json!([[1, 1], [2]])),
                a_drag(json!("x"))
            ]),
            vec![
                "actions[0].drag_mouse.path",
                "actions[1].drag_mouse.path[1]",
                "actions[2].drag_mouse.path",
            ],
        ),
        (
            json!([
                action("click_mouse", json!({"x": 1, "y": 1, "button": "third"})),
                action(
                    "click_mouse",
                    json!({"x": 1, "y": 1, "click_type": "down", "num_clicks": 2})
                ),
                action("click_mouse", json!({"x": 1, "y": 1, "num_clicks": 0})),
                action("scroll", json!({"x": 1, "y": 1})),
                action("scroll", json!({"x": 1, "y": 1, "delta_x": 1001})),
                action("sleep", json!({"duration_ms": 30_001})),
                action("set_cursor", json!({"hidden": 1})),
            ]),
            vec![
                "actions[0].click_mouse.button",
                "actions[1].click_mouse.num_clicks",
                "actions[2].click_mouse.num_clicks",
                "actions[3].scroll.delta_y",
                "actions[4].scroll.delta_x",
                "actions[5].sleep.duration_ms",
                "actions[6].set_cursor.hidden",
            ],
        ),
        // Ten and a half minutes.
        (
            json!((0..21).map(|_| too_much()).collect::<Vec<_>>()),
            vec!["actions[20].sleep"],
        ),
        (
            json!(vec![
                action("type_text", json!({"text": "a".repeat(65_536)}));
                4
            ]),
            vec!["actions[3].type_text"],
        ),
    ] {
        let body = json!({"actions": actions});
        let (status, answer) = agent
            .answer(agent.post("/computer/batch").json(&body))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(wrong_fields(&answer), fields, "{answer}");
        assert_eq!(position(&agent).await, json!({"x": 7, "y": 8}), "{answer}");
    }
    agent.stop().await;
}

/// Tries each option out of bounds and with another type.
#[tokio::test]
async fn options_out_of_bounds_are_rejected() {
    let agent = Start::screen_alone().await;
    let held: Vec<String> = ('a'..='i').map(String::from).collect();
    let at = json!({"x": 9, "y": 9});
    let pressed = json!({"keys": ["a"]});
    let path = json!({"path": [[1, 1], [9, 9]]});
    let typed = json!({"text": "a"});
    let words = [json!("yes"), json!(1)];
    let (mut bad, mut fields) = (Vec::new(), Vec::new());
    let mut add = |kind: &str, good: &Value, field: &str, values: &[Value]| {
        for value in values {
            let mut parameters = good.clone();
            parameters[field] = value.clone();
            fields.push(format!("actions[{}].{kind}.{field}", bad.len()));
            bad.push(action(kind, parameters));
        }
    };
    let beyond = |most: i64| [json!(-1), json!(most + 1), json!(0.5), json!("1")];
    add("click_mouse", &at, "num_clicks", &beyond(100));
    add("click_mouse", &at, "click_type", &words);
    add(
        "click_mouse",
        &at,
        "hold_keys",
        &[json!(held), json!("Shift")],
    );
    add("move_mouse", &at, "smooth", &words);
    add("move_mouse", &at, "duration_ms", &beyond(30_000));
    add("type_text", &typed, "delay", &beyond(10_000));
    add(
        "type_text",
        &typed,
        "text",
        &[json!("a".repeat(65_537)), json!(1)],
    );
    add(
        "press_key",
        &pressed,
        "keys",
        &[json!(vec!["a"; 101]), json!([]), json!("a")],
    );
    add("press_key", &pressed, "duration", &beyond(30_000));
    add(
        "scroll",
        &at,
        "delta_y",
        &[json!(-1001), json!(1001), json!(0.5)],
    );
    add("drag_mouse", &path, "path", &[json!(vec![[1, 1]; 1001])]);
    add("drag_mouse", &path, "button", &[json!("back")]);
    add("drag_mouse", &path, "delay", &beyond(30_000));
    add("drag_mouse", &path, "steps_per_segment", &beyond(1000));
    add("drag_mouse", &path, "steps_per_segment", &[json!(0)]);
    add("drag_mouse", &path, "step_delay_ms", &beyond(10_000));
    add("drag_mouse", &path, "smooth", &words);
    add("drag_mouse", &path, "duration_ms", &beyond(30_000));
    add("sleep", &json!({}), "duration_ms", &beyond(30_000));
    // Sorted like the errors.
    fields.sort();
    let before = position(&agent).await;
    let request = agent.post("/computer/batch");
    let (status, answer) = agent.answer(request.json(&json!({"actions": bad}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(wrong_fields(&answer), fields, "{answer}");
    assert_eq!(position(&agent).await, before);
    agent.stop().await;
}

#[tokio::test]
async fn thousand_actions_are_played() {
    let agent = Start::screen_alone().await;
    let moves = (1..=1000).map(|x| action("move_mouse", json!({"x": x, "y": 1000 - x})));
    run_batch(&agent, moves.collect()).await;
    assert_eq!(position(&agent).await, json!({"x": 1000, "y": 0}));
    agent.stop().await;
}

#[tokio::test]
async fn batch_is_planned_for_the_screen_size_at_its_start() {
    let agent = Start::on_screen()
        .with(["--viewport", "1024x768"])
        .ready()
        .await;
    let corner = async |x: i64, y: i64| {
        let place = json!({"x": x, "y": y});
        let request = agent.post("/computer/move_mouse").json(&place);
        agent.answer(request).await.0
    };
    for (width, height) in [(1024, 768), (1600, 1200), (800, 600), (1280, 720)] {
        let size = json!({"width": width, "height": height});
        agent.ok(agent.put("/display").json(&size)).await;
        assert_eq!(corner(width, height - 1).await, StatusCode::BAD_REQUEST);
        assert_eq!(corner(width - 1, height).await, StatusCode::BAD_REQUEST);
        assert_eq!(corner(width - 1, height - 1).await, StatusCode::OK);
    }
    agent.stop().await;
}

#[tokio::test]
async fn batches_of_two_clients_are_not_interleaved() {
    const ROUNDS: usize = 20;
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    let client = async |key: &str| {
        for _ in 0..ROUNDS {
            let press = || action("press_key", json!({"keys": [key]}));
            let pause = || action("sleep", json!({"duration_ms": 2}));
            run_batch(&agent, vec![press(), pause(), press(), pause(), press()]).await;
        }
    };
    tokio::join!(client("a"), client("b"), client("c"));
    let keys = recorder.keys(3 * ROUNDS * 6).await;
    let presses: Vec<&str> = keys.split(' ').filter(|key| key.starts_with('+')).collect();
    for batch in presses.chunks(3) {
        assert!(batch.iter().all(|key| *key == batch[0]), "{presses:?}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn batch_is_rejected_when_the_queue_is_full() {
    let agent = Start::screen_alone().await;
    let sleep = json!({"actions": [action("sleep", json!({"duration_ms": 30_000}))]});
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..40 {
        clients.spawn(agent.post("/computer/batch").json(&sleep).send());
    }
    // One is played and 32 are queued.
    for _ in 0..40 - 33 {
        let answer = clients.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers().contains_key("retry-after"));
    }
    clients.abort_all();
    until("room", async || {
        let body = json!({"actions": [action("sleep", json!({"duration_ms": 0}))]});
        let request = agent.post("/computer/batch").json(&body);
        (agent.answer(request).await.0 == StatusCode::OK).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn batch_waits_for_a_restarting_browser() {
    let agent = Start::on_screen().ready().await;
    let chromium = u32::try_from(agent.chromium_number("pid").await).unwrap();
    processes::signal(chromium, Signal::SIGKILL);
    agent
        .chromium_when("its end noticed", |status| status["pid"] != chromium)
        .await;
    run_batch(&agent, vec![action("move_mouse", json!({"x": 5, "y": 6}))]).await;
    let status = agent.ok(agent.get("/chromium")).await;
    assert_eq!(status["generation"], 2, "{status}");
    agent.stop().await;
}

#[tokio::test]
async fn lost_screen_fails_the_batch_and_the_next_screen_works() {
    let agent = Start::on_screen().ready().await;
    let display = agent.display_pid().await;
    let actions = json!({"actions": [
        action("move_mouse", json!({"x": 30, "y": 40})),
        action("sleep", json!({"duration_ms": 30_000})),
        action("move_mouse", json!({"x": 50, "y": 60})),
    ]});
    let batch = tokio::spawn(agent.post("/computer/batch").json(&actions).send());
    until("the move", async || {
        (position(&agent).await == json!({"x": 30, "y": 40})).then_some(())
    })
    .await;
    processes::signal(display, Signal::SIGKILL);
    let answer = batch.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.headers()["x-should-retry"], "false");
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["message"], "action 1 (sleep) failed");
    let details = answer["details"].as_array().unwrap();
    let detail = |code: &str| {
        let mut of = details.iter().filter(|detail| detail["code"] == code);
        of.next().unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (detail("index"), detail("type")),
        ("1".into(), "sleep".into())
    );
    let results: Value = serde_json::from_str(&detail("results")).unwrap();
    let oks: Vec<_> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["ok"])
        .collect();
    assert_eq!(oks, [&json!(true), &json!(false)]);

    agent
        .chromium_when("the next Chromium", |status| status["generation"] == 2)
        .await;
    run_batch(&agent, vec![action("move_mouse", json!({"x": 5, "y": 6}))]).await;
    assert_eq!(position(&agent).await, json!({"x": 5, "y": 6}));
    agent.stop().await;
}
