//! `POST /computer/screenshot`

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::Start,
    painter::{BLUE, GREEN, Painter, RED, region, screenshot},
    processes,
    requests::wrong_fields,
    wait::until,
};

/// Returns an agent without a browser: only the root window is visible.
fn bare_screen() -> Start {
    Start::on_screen().with(["--chromium", "/bin/true", "--viewport", "641x481"])
}

#[tokio::test]
async fn screenshot_shows_the_screen_or_a_region() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(RED);
    painter.fill(100, 200, 3, 5, GREEN);
    let full = screenshot(&agent, &json!({})).await;
    assert_eq!((full.width, full.height), (641, 481));
    assert_eq!(full.at(99, 200), RED);
    assert_eq!(full.at(100, 200), GREEN);
    assert_eq!(full.at(102, 204), GREEN);
    assert_eq!(full.at(103, 204), RED);
    assert_eq!(full.at(640, 480), RED);

    let part = screenshot(&agent, &region(99, 203, 5, 3)).await;
    assert_eq!((part.width, part.height), (5, 3));
    let row = |y| [0, 1, 2, 3, 4].map(|x| part.at(x, y));
    assert_eq!(row(1), [RED, GREEN, GREEN, GREEN, RED]);
    assert_eq!(row(2), [RED; 5]);
    agent.stop().await;
}

#[tokio::test]
async fn screenshot_includes_the_cursor() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(BLUE);
    let around = region(290, 190, 20, 20);
    let covered = async || {
        let image = screenshot(&agent, &around).await;
        let pixels = (0..20).flat_map(|y| (0..20).map(move |x| (x, y)));
        pixels.filter(|&(x, y)| image.at(x, y) != BLUE).count()
    };
    assert_eq!(covered().await, 0);
    painter.point_at(300, 200);
    assert!(covered().await > 10);
    painter.point_at(0, 0);
    assert_eq!(covered().await, 0);
    agent.stop().await;
}

#[tokio::test]
async fn screenshot_follows_resized_and_restarted_screens() {
    let agent = Start::on_screen()
        .with(["--viewport", "640x480"])
        .ready()
        .await;
    let size = async || {
        let image = screenshot(&agent, &json!({})).await;
        (image.width, image.height)
    };
    assert_eq!(size().await, (640, 480));
    let larger = json!({"width": 1001, "height": 701});
    agent.ok(agent.put("/display").json(&larger)).await;
    assert_eq!(size().await, (1001, 701));
    let beyond = agent
        .post("/computer/screenshot")
        .json(&region(1000, 0, 2, 1));
    let (status, answer) = agent.answer(beyond).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(wrong_fields(&answer), ["region"]);
    let smaller = json!({"width": 320, "height": 240});
    agent.ok(agent.put("/display").json(&smaller)).await;
    assert_eq!(size().await, (320, 240));

    let pid = agent.display_pid().await;
    processes::signal(pid, Signal::SIGKILL);
    until("another screen", async || {
        (agent.display_pid().await != pid).then_some(())
    })
    .await;
    // Its size is set shortly after it has started.
    until("an image of the new screen", async || {
        let request = agent.post("/computer/screenshot").json(&json!({}));
        let (status, _) = agent.answer(request).await;
        (status == StatusCode::OK).then_some(())
    })
    .await;
    agent.ready().await;
    assert_eq!(size().await, (320, 240));
    agent.stop().await;
}

#[tokio::test]
async fn memory_of_the_pixels_is_released_after_the_last_screenshot() {
    let agent = bare_screen().listening().await;
    Painter::on(&agent).await;
    for _ in 0..2 {
        screenshot(&agent, &json!({})).await;
        assert!(maps_screen(agent.pid()));
        until("the screen to be unmapped", async || {
            (!maps_screen(agent.pid())).then_some(())
        })
        .await;
    }
    agent.stop().await;
}

/// Whether the process has mapped memory that it shares with the X server.
fn maps_screen(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.contains("memfd:screen")
}

#[tokio::test]
async fn invalid_regions_are_rejected_with_one_detail_each() {
    let agent = bare_screen().listening().await;
    Painter::on(&agent).await;
    for (body, fields) in [
        (json!({"region": 1}), vec!["region"]),
        (
            json!({"region": {}}),
            vec!["region.height", "region.width", "region.x", "region.y"],
        ),
        (
            json!({"region": {"x": -1, "y": 1.5, "width": 0, "height": "1"}}),
            vec!["region.height", "region.width", "region.x", "region.y"],
        ),
        (region(4000, 0, 1, 5000), vec!["region.height", "region.x"]),
        (region(600, 0, 42, 1), vec!["region"]),
        (region(0, 481, 1, 1), vec!["region"]),
    ] {
        let request = agent.post("/computer/screenshot").json(&body);
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(wrong_fields(&answer), fields, "{body}");
    }
    agent.stop().await;
}
