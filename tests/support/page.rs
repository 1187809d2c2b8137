//! The page in an agent's browser.

use serde_json::{Value, json};

use super::{agent::TestAgent, wait::until, websocket::Client};

/// A DevTools connection to the tab in front.
pub struct Page(Client);

impl Page {
    pub async fn of(agent: &TestAgent) -> Self {
        let list = agent.ok(agent.get("/json/list")).await;
        let mut targets = list.as_array().expect("a list").iter();
        let page = targets.find(|target| target["type"] == "page");
        let url = page.expect("a page")["webSocketDebuggerUrl"].as_str();
        Self(Client::connect(url.expect("an address")).await)
    }

    /// Replaces what the page shows.
    pub async fn show(&mut self, html: &str) {
        let write = format!(
            "document.open(); document.write({}); document.close()",
            Value::from(html)
        );
        self.evaluate(&write).await;
    }

    /// What an expression comes to, as JSON; a promise is waited for.
    pub async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params).await;
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until it has been drawn as it is now and has the keyboard: before that Chromium drops input.
    pub async fn ready(&mut self) {
        let drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.evaluate(drawn).await;
        self.until("document.hasFocus()", |has| *has == true).await;
    }

    /// Waits until an expression comes to something that is wanted.
    pub async fn until(&mut self, expression: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(expression, async || {
            let value = self.evaluate(expression).await;
            wanted(&value).then_some(value)
        })
        .await
    }

    /// Calls a method, which must succeed, and returns its result.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.0.call(method, params).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Calls a method a few times without a pause between, and waits until all is done.
    pub async fn call_in_a_row(&mut self, method: &str, all: impl IntoIterator<Item = Value>) {
        let mut last = None;
        for params in all {
            last = Some(self.0.begin_call(method, params).await);
        }
        let answer = self.0.answer(last.expect("one call")).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
    }

    /// Presses a key with Ctrl, which a page takes for this command of its editor.
    pub async fn press_ctrl(&mut self, key: char, command: &str) {
        let key_code = u32::from(key.to_ascii_uppercase());
        let event = |kind: &str| json!({"type": kind, "modifiers": 2, "key": key, "windowsVirtualKeyCode": key_code});
        let mut down = event("rawKeyDown");
        down["commands"] = json!([command]);
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", event("keyUp")).await;
    }
}
