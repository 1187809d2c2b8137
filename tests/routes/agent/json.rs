//! `GET /json/version`, `/json/list`, `/json`

use crate::support::agent::Start;

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
