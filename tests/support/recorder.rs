//! A page that writes down what mouse and keyboard do to it.

use serde_json::{Value, json};

use super::{agent::TestAgent, page::Page, wait::until};

/// What the page writes down stays its own: none of it scrolls, opens a menu, zooms or goes back.
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
    /// In the tab in front.
    pub async fn open(agent: &TestAgent) -> Self {
        Self::with(agent, "").await
    }

    /// With more on the page.
    pub async fn with(agent: &TestAgent, html: &str) -> Self {
        let mut page = Page::of(agent).await;
        page.show(&format!("{PAGE}{html}")).await;
        page.ready().await;
        Self(page)
    }

    /// What has been written down since the last time.
    pub async fn take(&mut self) -> Vec<Value> {
        let seen = self.0.evaluate("seen.splice(0)").await;
        seen.as_array().expect("a list").clone()
    }

    /// What has been written down, once it is `wanted`.
    pub async fn take_when(&mut self, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut all = Vec::new();
        until(what, async || {
            all.extend(self.take().await);
            wanted(&all).then(|| std::mem::take(&mut all))
        })
        .await
    }

    /// What has been written down of these kinds, once there are so many of them.
    pub async fn take_of(&mut self, types: &[&str], count: usize) -> Vec<Value> {
        let of = |event: &&Value| types.contains(&event["type"].as_str().expect("a type"));
        let what = format!("{count} of {types:?}");
        let all = self
            .take_when(&what, |seen| seen.iter().filter(of).count() >= count)
            .await;
        all.iter().filter(of).cloned().collect()
    }

    /// Key events as `+Shift -Shift`, down and up, once there are so many.
    pub async fn keys(&mut self, count: usize) -> String {
        let events = self.take_of(&["keydown", "keyup"], count).await;
        let told: Vec<String> = events.iter().map(key).collect();
        told.join(" ")
    }
}

fn key(event: &Value) -> String {
    let sign = if event["type"] == "keydown" { '+' } else { '-' };
    format!("{sign}{}", event["key"].as_str().expect("a key"))
}

/// One action of a batch.
pub fn action(kind: &str, fields: Value) -> Value {
    json!({"type": kind, kind: fields})
}

/// Does a batch, which must succeed, and returns its results.
pub async fn perform(agent: &TestAgent, actions: Vec<Value>) -> Vec<Value> {
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

/// Where the pointer is.
pub async fn position(agent: &TestAgent) -> Value {
    agent.ok(agent.post("/computer/get_mouse_position")).await
}

/// Does one action by its own route, which must succeed.
pub async fn act(agent: &TestAgent, route: &str, fields: Value) {
    let request = agent.post(&format!("/computer/{route}")).json(&fields);
    assert_eq!(agent.ok(request).await, json!({"ok": true}));
}
