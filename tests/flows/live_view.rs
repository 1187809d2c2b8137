//! The live view through control: by its links alone.

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    dev::Dev,
    live::{Photo, open, until_live},
    page::Page,
    wait::until,
};

async fn looker() -> TestAgent {
    Start::headless()
        .with(["--viewport", "1280x800"])
        .ready()
        .await
}

async fn middle(page: &mut Page) -> serde_json::Value {
    page.evaluate(
        "(() => { const s = document.getElementById('screen'); \
         return [...s.getContext('2d').getImageData(s.width / 2, s.height / 2, 1, 1).data] })()",
    )
    .await
}

#[tokio::test]
async fn its_links_show_the_browser_its_death_and_its_end() {
    let dev = Dev::start().await;
    let start = "data:text/html,<title>shown</title><body style='background:rgb(0,0,255)'>";
    let wishes = json!({"viewport": {"width": 1024, "height": 768}, "start_url": start, "timeout_seconds": 600});
    let created = dev.post("/browsers", wishes).await;
    assert_eq!(created.status, 201, "{}\n{}", created.body, dev.log());
    let id = created.body["session_id"].as_str().unwrap().to_owned();
    let looker = looker().await;
    let blue = json!([0, 0, 255, 255]);
    for (link, read_only, name) in [
        ("browser_live_view_url", false, "live-view-through-control"),
        (
            "browser_live_view_read_only_url",
            true,
            "live-view-through-control-read-only",
        ),
    ] {
        let url = created.body[link].as_str().unwrap();
        let mut page = open(&looker, url).await;
        until_live(&mut page).await;
        until("the page", async || {
            (middle(&mut page).await == blue).then_some(())
        })
        .await;
        let hidden = "document.getElementById('read-only').hidden";
        assert_eq!(page.evaluate(hidden).await, json!(!read_only));
        Photo::take(&mut page, name).await;
    }

    // Its agent is killed: the page says so, and shows the next one by itself.
    let mut page = Page::of(&looker).await;
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

    // It ends: there is nothing to wait for any more.
    dev.delete(&format!("/browsers/{id}")).await;
    page.until("document.body.dataset.state", |state| state == "ended")
        .await;
    let told = page
        .evaluate("document.getElementById('told').textContent")
        .await;
    assert_eq!(told, "The browser has ended.");
    Photo::take(&mut page, "live-view-ended").await;
    looker.stop().await;
    dev.finish().await;
}
