//! `GET /docs/` in a browser.

use berth::api::groups;
use serde_json::{Value, json};

use crate::support::{agent::Start, websocket::Client};

/// A DevTools connection that records requests and violations of the content policy.
struct Recorder {
    client: Client,
    requests: Vec<String>,
    violations: Vec<Value>,
}

impl Recorder {
    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.client.start_call(method, params).await;
        let mut response = self.read_until(|message| message["id"] == id).await;
        assert!(response["error"].is_null(), "{method}: {response}");
        response["result"].take()
    }

    /// Records all messages up to the first that matches, and returns that one.
    async fn read_until(&mut self, is_last: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.client.next_text().await).unwrap();
            let params = &message["params"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = params["request"]["url"].as_str().unwrap();
                self.requests.push(url.to_owned());
            }
            if message["method"] == "Log.entryAdded" && params["entry"]["source"] == "security" {
                self.violations.push(params["entry"].clone());
            }
            if is_last(&message) {
                return message;
            }
        }
    }
}

#[tokio::test]
async fn docs_render_without_requests_to_other_servers() {
    let agent = Start::headless().ready().await;
    let targets = agent.ok(agent.get("/json/list")).await;
    let url = targets[0]["webSocketDebuggerUrl"].as_str().unwrap();
    let mut recorder = Recorder {
        client: Client::connect(url).await,
        requests: Vec::new(),
        violations: Vec::new(),
    };
    for domain in ["Page.enable", "Network.enable", "Log.enable"] {
        recorder.call(domain, json!({})).await;
    }
    let page = agent.url("/docs/");
    recorder.call("Page.navigate", json!({"url": page})).await;
    recorder
        .read_until(|message| message["method"] == "Page.loadEventFired")
        .await;
    // The sidebar, and the first operation with its path and its example.
    let expected = json!([
        groups::AUTOMATION,
        groups::SERVER,
        "Run a script",
        "/automation/execute",
        "await page.title()",
    ]);
    let rendered = format!(
        "new Promise(resolve => {{
            const missing = () => {expected}.filter(text => !document.body.innerText.includes(text));
            const timeout = setTimeout(() => resolve(missing()), 30000);
            const check = () => missing().length == 0 && (clearTimeout(timeout), resolve([]));
            new MutationObserver(check).observe(document, {{subtree: true, childList: true}});
            check();
        }})"
    );
    let evaluation = json!({"expression": rendered, "awaitPromise": true, "returnByValue": true});
    let response = recorder.call("Runtime.evaluate", evaluation).await;
    assert_eq!(response["result"]["value"], json!([]), "{response}");
    assert_eq!(recorder.violations, Vec::<Value>::new());
    let origin = agent.url("/");
    for path in [
        "docs/",
        "docs/scalar.js",
        "docs/reference.js",
        "openapi.json",
    ] {
        assert!(
            recorder.requests.contains(&format!("{origin}{path}")),
            "{path}"
        );
    }
    let is_local = |url: &&String| url.starts_with(&origin) || url.starts_with("data:");
    let external: Vec<_> = recorder
        .requests
        .iter()
        .filter(|url| !is_local(url))
        .collect();
    assert_eq!(external, Vec::<&String>::new());
    agent.stop().await;
}
