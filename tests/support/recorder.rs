//! A page that records its mouse and keyboard events.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    agent::TestAgent,
    page::Page,
    wait::{WAIT_TIMEOUT, polled},
};

/// The page prevents the default actions: no event scrolls, opens a menu, zooms or navigates.
const PAGE: &str = r"<!doctype html><meta charset=utf-8><title>recorder</title>
<style>html, body { margin: 0; height: 100%; overflow: hidden } input, textarea, div { position: fixed; left: 0; width: 600px; height: 60px }
textarea { top: 80px } div { top: 160px; white-space: pre-wrap }</style>
<script>
var seen = [];
var held = event => ['Shift', 'Control', 'Alt', 'Meta'].filter(key => event.getModifierState(key)).join('+');
var note = (type, event, more) => { seen.push({type, held: held(event), ...more}); if (!window.editing) event.preventDefault(); };
for (let type of ['mousedown', 'mouseup', 'mousemove', 'dblclick'])
  addEventListener(type, event => note(type, event, {x: event.screenX, y: event.screenY, button: event.button, buttons: event.buttons, detail: event.detail}), true);
for (let type of ['keydown', 'keyup'])
  addEventListener(type, event => { if (!window.silent) note(type, event, {key: event.key, code: event.code, repeat: event.repeat}) }, true);
addEventListener('wheel', event => note('wheel', event, {x: event.screenX, y: event.screenY, dx: event.deltaX, dy: event.deltaY}),
  {capture: true, passive: false});
addEventListener('contextmenu', event => event.preventDefault(), true);
addEventListener('auxclick', event => event.preventDefault(), true);
</script>";

pub struct Recorder(pub Page);

impl Recorder {
    /// Opens the page in the front tab.
    pub async fn open(agent: &TestAgent) -> Self {
        Self::with(agent, "").await
    }

    /// Opens the page with additional content.
    pub async fn with(agent: &TestAgent, html: &str) -> Self {
        let mut page = Page::of(agent).await;
        page.show(&format!("{PAGE}{html}")).await;
        page.ready().await;
        Self(page)
    }

    /// Removes and returns the recorded events.
    pub async fn take(&mut self) -> Vec<Value> {
        let seen = self.0.evaluate("seen.splice(0)").await;
        seen.as_array().expect("a list").clone()
    }

    /// Collects events until they match.
    pub async fn take_when(
        &mut self,
        description: &str,
        matches: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let mut all = Vec::new();
        let matching = polled(async || {
            all.extend(self.take().await);
            matches(&all).then_some(())
        });
        if timeout(WAIT_TIMEOUT, matching).await.is_err() {
            panic!("timed out waiting for {description}; the page saw {all:?}");
        }
        all
    }

    /// Waits for `count` events of these types and returns all of these types.
    pub async fn take_of(&mut self, types: &[&str], count: usize) -> Vec<Value> {
        let of = |event: &&Value| types.contains(&event["type"].as_str().expect("a type"));
        let description = format!("{count} of {types:?}");
        let all = self
            .take_when(&description, |seen| seen.iter().filter(of).count() >= count)
            .await;
        all.iter().filter(of).cloned().collect()
    }

    /// Waits for `count` key events and returns them as text, such as `+Shift -Shift`.
    pub async fn keys(&mut self, count: usize) -> String {
        let events = self.take_of(&["keydown", "keyup"], count).await;
        let keys: Vec<String> = events.iter().map(key).collect();
        keys.join(" ")
    }
}

fn key(event: &Value) -> String {
    let sign = if event["type"] == "keydown" { '+' } else { '-' };
    format!("{sign}{}", event["key"].as_str().expect("a key"))
}

/// Returns an action of a batch.
pub fn action(kind: &str, fields: Value) -> Value {
    json!({"type": kind, kind: fields})
}

/// Runs a batch, asserts success, and returns its results.
pub async fn run_batch(agent: &TestAgent, actions: Vec<Value>) -> Vec<Value> {
    let count = actions.len();
    let request = agent.post("/computer/batch");
    let answer = agent.ok(request.json(&json!({"actions": actions}))).await;
    let results = answer["results"].as_array().expect("results").clone();
    assert_eq!(results.len(), count, "{answer}");
    assert!(
        results.iter().all(|result| result["ok"] == true),
        "{answer}"
    );
    results
}

/// Returns the pointer's position.
pub async fn position(agent: &TestAgent) -> Value {
    agent.ok(agent.post("/computer/get_mouse_position")).await
}

/// Runs one action with its own route and asserts success.
pub async fn run_action(agent: &TestAgent, route: &str, fields: Value) {
    let request = agent.post(&format!("/computer/{route}")).json(&fields);
    assert_eq!(agent.ok(request).await, json!({"ok": true}));
}
