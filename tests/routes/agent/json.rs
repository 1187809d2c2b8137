//! `GET /json/version`, `/json/list`, `/json`

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{
    agent::{Start, TestAgent},
    wait::until,
    websocket::Client,
};

/// Opens a tab, and returns its id.
async fn open_tab(client: &mut Client) -> String {
    let params = json!({"url": "about:blank"});
    let created = client.call("Target.createTarget", params).await;
    created["result"]["targetId"].as_str().unwrap().to_owned()
}

async fn listed_tabs(agent: &TestAgent) -> Vec<String> {
    let list = agent.ok(agent.get("/json/list")).await;
    let tabs = list.as_array().unwrap().iter();
    tabs.filter(|target| target["type"] == "page")
        .map(|target| target["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn json_waits_for_chromium_and_returns_urls_of_the_agent() {
    let agent = Start::headless().listening().await;
    // This requests it at once, while Chromium starts.
    let version = agent.ready().await;
    assert!(version["Browser"].as_str().unwrap().contains("Chrome/"));
    let authority = agent.base_url.strip_prefix("http://").unwrap();
    let expected_prefix = format!("ws://{authority}/devtools/browser/");
    let address = version["webSocketDebuggerUrl"].as_str().unwrap();
    assert!(address.starts_with(&expected_prefix), "{address}");
    assert_eq!(agent.ok(agent.get("/json/version/")).await, version);

    for path in ["/json/list", "/json"] {
        let list = agent.ok(agent.get(path)).await;
        let page = list
            .as_array()
            .unwrap()
            .iter()
            .find(|target| target["type"] == "page")
            .unwrap();
        assert_eq!(page["url"], "about:blank");
        let address = page["webSocketDebuggerUrl"].as_str().unwrap();
        assert!(
            address.starts_with(&format!("ws://{authority}/devtools/page/")),
            "{address}"
        );
    }
    let named = agent.get("/json/version").header("host", "berth.example");
    let address = agent.ok(named).await["webSocketDebuggerUrl"].clone();
    assert!(
        address
            .as_str()
            .unwrap()
            .starts_with("ws://berth.example/devtools/browser/")
    );
    agent.stop().await;
}

#[tokio::test]
async fn tabs_are_listed_by_their_last_use() {
    for start in [Start::headless(), Start::on_screen()] {
        let agent = start.ready().await;
        let mut client = Client::connect(&agent.ws_url("/cdp")).await;
        let first = listed_tabs(&agent).await.remove(0);
        let (a, b) = (open_tab(&mut client).await, open_tab(&mut client).await);
        assert_eq!(
            listed_tabs(&agent).await,
            [&b, &a, &first].map(String::as_str)
        );
        // A tab that hangs is in front as well.
        let mut hung = Client::connect(&agent.ws_url(&format!("/devtools/page/{a}"))).await;
        hung.start_call("Runtime.evaluate", json!({"expression": "for (;;) {}"}))
            .await;
        for target in [&first, &a] {
            let params = json!({ "targetId": target });
            client.call("Target.activateTarget", params).await;
            assert_eq!(&listed_tabs(&agent).await[0], target);
        }
        client
            .call("Target.closeTarget", json!({ "targetId": a }))
            .await;
        until("the tab has been closed", async || {
            (listed_tabs(&agent).await.len() == 2).then_some(())
        })
        .await;
        agent.stop().await;
    }
}

#[tokio::test]
async fn abandoned_list_leaves_no_tab_attached() {
    let agent = Start::headless()
        .with(["--warm-workers", "0"])
        .ready()
        .await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    for _ in 0..3 {
        open_tab(&mut client).await;
    }
    for round in 0..50 {
        // Each request is dropped at another moment.
        let limit = Duration::from_micros(100 * round);
        let _ = timeout(limit, agent.get("/json/list").send()).await;
    }
    until("no tab is attached", async || {
        let targets = client.call("Target.getTargets", json!({})).await;
        let targets = targets["result"]["targetInfos"].as_array().unwrap().clone();
        let is_attached = |target: &Value| target["attached"] == true;
        (targets.len() == 4 && !targets.iter().any(is_attached)).then_some(())
    })
    .await;
    agent.stop().await;
}
