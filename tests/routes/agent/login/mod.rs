mod act;
mod inspect;
mod languages;
mod state;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::agent::TestAgent;

/// Inspects the page in front once it does not change.
async fn inspect(agent: &TestAgent) -> Value {
    inspect_with(agent, &json!({"quiet_ms": 20})).await
}

async fn inspect_with(agent: &TestAgent, body: &Value) -> Value {
    agent.ok(agent.post("/login/inspect").json(body)).await
}

async fn act(agent: &TestAgent, body: &Value) -> (StatusCode, Value) {
    agent.answer(agent.post("/login/act").json(body)).await
}
