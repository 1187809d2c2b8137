//! `/json`: what Chromium tells of itself over HTTP, with addresses that lead through the agent.

use http::{HeaderMap, Method, StatusCode, header};
use serde_json::Value;

use super::RETRY_AFTER;
use crate::{
    agent::Agent,
    http::{ApiError, ApiResult, Json},
    system::cdp::devtools::DevtoolsError,
};

pub mod list;
pub mod version;

/// Fields that hold addresses of Chromium's own server.
const ADDRESSES: [&str; 2] = ["webSocketDebuggerUrl", "devtoolsFrontendUrl"];

/// Chromium's answer to `path`, waiting until it gives one.
async fn ask(agent: &Agent, headers: &HeaderMap, path: &str) -> ApiResult<Json<Value>> {
    let _permit = agent.cdp_clients.admit_query()?;
    let deadline = agent.cdp_clients.hold_deadline();
    let mut devtools = agent.chromium.ready(agent.config.cdp_hold).await?;
    let (status, body) = loop {
        match agent.devtools.ask(devtools.addr, Method::GET, path).await {
            // It died at this moment; the supervisor sees to it.
            Err(DevtoolsError::Connection(_)) => {
                devtools = agent
                    .cdp_clients
                    .wait_for_successor(&devtools, deadline)
                    .await?;
            }
            answer => break answer.map_err(refused)?,
        }
    };
    if status != StatusCode::OK {
        return Err(ApiError::bad_gateway(format!("Chromium answered {status}")));
    }
    let mut answer = serde_json::from_slice(&body)
        .map_err(|error| refused(DevtoolsError::Answer(error.to_string())))?;
    if let Some(host) = host(headers) {
        lead_through(&mut answer, &devtools.addr.to_string(), host);
    }
    Ok(Json(answer))
}

/// The name the client knows us by.
fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

fn lead_through(answer: &mut Value, from: &str, to: &str) {
    match answer {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| lead_through(item, from, to)),
        Value::Object(fields) => {
            for name in ADDRESSES {
                if let Some(Value::String(address)) = fields.get_mut(name) {
                    *address = address.replacen(from, to, 1);
                }
            }
        }
        _ => {}
    }
}

fn refused(error: DevtoolsError) -> ApiError {
    match error {
        DevtoolsError::Deadline => ApiError::timeout(error.to_string()),
        DevtoolsError::Connection(_) => {
            ApiError::unavailable("Chromium is being restarted", RETRY_AFTER)
        }
        DevtoolsError::Status(_) | DevtoolsError::Answer(_) => {
            ApiError::bad_gateway("Chromium's answer was not understood")
        }
    }
}
