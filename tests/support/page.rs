//! A page in an agent's browser, driven over DevTools.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    agent::TestAgent,
    wait::{WAIT_TIMEOUT, polled, until},
    websocket::Client,
};

/// A DevTools connection to the front tab.
pub struct Page(Client);

impl Page {
    pub async fn of(agent: &TestAgent) -> Self {
        let list = agent.ok(agent.get("/json/list")).await;
        let mut targets = list.as_array().expect("a list").iter();
        let page = targets.find(|target| target["type"] == "page");
        let url = page.expect("a page")["webSocketDebuggerUrl"].as_str();
        Self(Client::connect(url.expect("an address")).await)
    }

    /// Opens a tab and waits until its document has loaded.
    pub async fn open(agent: &TestAgent, url: &str) -> Self {
        let mut browser = Client::connect(&agent.ws_url("/cdp")).await;
        let created = browser
            .call("Target.createTarget", json!({ "url": url }))
            .await;
        let id = created["result"]["targetId"].as_str();
        let id = id.unwrap_or_else(|| panic!("{url}: {created}"));
        let path = format!("/devtools/page/{id}");
        let mut page = Self(Client::connect(&agent.ws_url(&path)).await);
        page.loaded(|address| address != "about:blank").await;
        page
    }

    /// Navigates and waits until the document has loaded.
    pub async fn go_to(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url })).await;
        self.loaded(|address| address == url).await;
    }

    /// Waits until a document with a matching address has loaded.
    pub async fn loaded(&mut self, matches: impl Fn(&str) -> bool) {
        // A page can hide the property by the name of an element.
        let expression = "Object.getOwnPropertyDescriptor(Document.prototype, 'readyState')\
            .get.call(document) === 'complete' ? location.href : null";
        until("a document", async || {
            // A document that is replaced meanwhile is an error.
            let params = json!({"expression": expression});
            let answer = self.0.call("Runtime.evaluate", params).await;
            let address = answer["result"]["result"]["value"].as_str()?;
            matches(address).then_some(())
        })
        .await;
    }

    /// Replaces the page's document.
    pub async fn show(&mut self, html: &str) {
        let write = format!(
            "document.open(); document.write({}); document.close()",
            Value::from(html)
        );
        self.evaluate(&write).await;
    }

    /// Evaluates an expression, awaits it if it is a promise, and returns the JSON value.
    pub async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params).await;
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// Evaluates an expression like [`Self::evaluate`], as if the user had clicked.
    pub async fn evaluate_as_user(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
            "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", params).await;
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until the page is drawn and has the keyboard focus: before that Chromium drops input.
    pub async fn ready(&mut self) {
        let drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.evaluate(drawn).await;
        self.until("document.hasFocus()", |has| *has == true).await;
    }

    /// Polls an expression until its value matches; panics with its last value after
    /// [`WAIT_TIMEOUT`].
    pub async fn until(&mut self, expression: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let matching = polled(async || {
            last = self.evaluate(expression).await;
            matches(&last).then_some(())
        });
        let outcome = timeout(WAIT_TIMEOUT, matching).await;
        assert!(outcome.is_ok(), "timed out: {expression} is {last}");
        last
    }

    /// Calls a method, which must succeed, and returns its result.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.0.call(method, params).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Calls a method several times in a row and awaits the last response.
    pub async fn call_in_a_row(&mut self, method: &str, calls: impl IntoIterator<Item = Value>) {
        let mut last = None;
        for params in calls {
            last = Some(self.0.start_call(method, params).await);
        }
        let answer = self.0.response(last.expect("one call")).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
    }

    /// Presses Ctrl and a key, with the editing command that Chromium binds to it.
    pub async fn press_ctrl(&mut self, key: char, command: &str) {
        let key_code = u32::from(key.to_ascii_uppercase());
        let event = |kind: &str| json!({"type": kind, "modifiers": 2, "key": key, "windowsVirtualKeyCode": key_code});
        let mut down = event("rawKeyDown");
        down["commands"] = json!([command]);
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", event("keyUp")).await;
    }
}
