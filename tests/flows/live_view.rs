//! The live view through control, by its links alone.

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    dev::Dev,
    live::{Photo, open, until_live},
    page::Page,
    wait::until,
};

async fn observer() -> TestAgent {
    Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await
}

async fn middle_pixel(page: &mut Page) -> serde_json::Value {
    page.evaluate(
        "(() => { const s = document.getElementById('screen'); \
         return [...s.getContext('2d').getImageData(s.width / 2, s.height / 2, 1, 1).data] })()",
    )
    .await
}

async fn until_middle_is(page: &mut Page, color: &serde_json::Value) {
    until("the colour", async || {
        (middle_pixel(page).await == *color).then_some(())
    })
    .await;
}

async fn click_the_middle(page: &mut Page) {
    let place = page
        .evaluate(
            "(() => { const b = document.getElementById('screen').getBoundingClientRect(); \
             return [b.left + b.width / 2, b.top + b.height / 2] })()",
        )
        .await;
    for kind in ["mousePressed", "mouseReleased"] {
        let event =
            json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
        page.call("Input.dispatchMouseEvent", event).await;
    }
}

async fn press_a_key(page: &mut Page) {
    for kind in ["keyDown", "keyUp"] {
        let event = json!({"type": kind, "key": "a", "code": "KeyA", "text": "a"});
        page.call("Input.dispatchKeyEvent", event).await;
    }
}

#[tokio::test]
async fn links_show_the_browser_its_restart_and_its_end() {
    let dev = Dev::start().await;
    let start = "data:text/html,<title>shown</title><body style='background:rgb(0,0,255)'><script>\
        onmousedown = () => document.body.style.background = 'rgb(0,255,0)'; \
        onkeydown = () => document.body.style.background = 'rgb(0,0,255)'</script>";
    let request = json!({"viewport": {"width": 1024, "height": 768}, "start_url": start, "timeout_seconds": 600});
    let created = dev.post("/browsers", request).await;
    assert_eq!(created.status, 201, "{}\n{}", created.body, dev.log());
    let id = created.body["session_id"].as_str().unwrap().to_owned();
    let observer = observer().await;
    let (blue, green) = (json!([0, 0, 255, 255]), json!([0, 255, 0, 255]));
    for (link, read_only, name) in [
        ("browser_live_view_url", false, "live-view-through-control"),
        (
            "browser_live_view_read_only_url",
            true,
            "live-view-through-control-read-only",
        ),
    ] {
        let url = created.body[link].as_str().unwrap();
        let mut page = open(&observer, url).await;
        until_live(&mut page).await;
        until_middle_is(&mut page, &blue).await;
        if !read_only {
            click_the_middle(&mut page).await;
            until_middle_is(&mut page, &green).await;
            press_a_key(&mut page).await;
            until_middle_is(&mut page, &blue).await;
        }
        let hidden = "document.getElementById('read-only').hidden";
        assert_eq!(page.evaluate(hidden).await, json!(!read_only));
        Photo::take(&mut page, name).await;
    }

    // The agent is killed: the page reports it and reconnects to the next one.
    let mut page = Page::of(&observer).await;
    page.evaluate("window.states = [document.body.dataset.state]; \
        new MutationObserver(() => states.push(document.body.dataset.state)).observe(document.body, {attributeFilter: ['data-state']}); 0")
        .await;
    let agents = dev.descendants_with(" agent ");
    assert!(!agents.is_empty());
    for agent in agents {
        kill(agent, Signal::SIGKILL).unwrap();
    }
    page.until("states.length > 2 && states.at(-1)", |state| {
        state == "live"
    })
    .await;

    // The browser is deleted: the page stops reconnecting.
    dev.delete(&format!("/browsers/{id}")).await;
    page.until("document.body.dataset.state", |state| state == "ended")
        .await;
    let message = page
        .evaluate("document.getElementById('message').textContent")
        .await;
    assert_eq!(message, "The browser has ended.");
    Photo::take(&mut page, "live-view-ended").await;
    observer.stop().await;
    dev.finish().await;
}
