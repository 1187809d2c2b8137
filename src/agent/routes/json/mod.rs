//! `/json`: the HTTP part of Chromium's DevTools server, with addresses rewritten to lead through
//! the agent.

use std::sync::Arc;

use axum::extract::FromRef;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::Value;

use super::RESTART_RETRY_DELAY;
use crate::{
    agent::{Agent, cdp_clients::CdpClients, chromium::Chromium, settings::Config},
    http::{ApiError, ApiResult, Json},
    system::cdp::devtools::{DevtoolsError, DevtoolsHttp},
};

pub(crate) mod list;
pub(crate) mod version;

/// The fields that hold addresses of Chromium's own server.
const ADDRESS_FIELDS: [&str; 2] = ["webSocketDebuggerUrl", "devtoolsFrontendUrl"];

/// The services that query Chromium's DevTools server over HTTP.
#[derive(Clone)]
pub(crate) struct DevtoolsQueries {
    chromium: Chromium,
    clients: CdpClients,
    config: Arc<Config>,
    devtools: DevtoolsHttp,
}

impl FromRef<Agent> for DevtoolsQueries {
    fn from_ref(agent: &Agent) -> Self {
        DevtoolsQueries {
            chromium: agent.chromium.clone(),
            clients: agent.cdp_clients.clone(),
            config: agent.config.clone(),
            devtools: agent.devtools.clone(),
        }
    }
}

/// Returns Chromium's response to `path`. Waits while Chromium starts.
async fn query(
    queries: &DevtoolsQueries,
    headers: &HeaderMap,
    path: &str,
) -> ApiResult<Json<Value>> {
    let _permit = queries.clients.admit_query()?;
    let deadline = queries.clients.hold_deadline();
    let mut devtools = queries.chromium.ready(queries.config.cdp_hold).await?;
    let (status, body) = loop {
        match queries
            .devtools
            .request(devtools.addr, Method::GET, path)
            .await
        {
            // Chromium ended just now, and the supervisor restarts it.
            Err(DevtoolsError::Connection(_)) => {
                let successor = queries.clients.wait_for_successor(&devtools, deadline);
                devtools = successor.await?;
            }
            result => break result.map_err(query_error)?,
        }
    };
    if status != StatusCode::OK {
        return Err(ApiError::bad_gateway(format!(
            "Chromium responded with {status}"
        )));
    }
    let mut response = serde_json::from_slice(&body)
        .map_err(|error| query_error(DevtoolsError::InvalidResponse(error.to_string())))?;
    if let Some(host) = host(headers) {
        rewrite_addresses(&mut response, &devtools.addr.to_string(), host);
    }
    Ok(Json(response))
}

/// Returns the host name and port that the client used.
fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

/// Replaces the address `from` with `to` in all address fields.
fn rewrite_addresses(response: &mut Value, from: &str, to: &str) {
    match response {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| rewrite_addresses(item, from, to)),
        Value::Object(fields) => {
            for name in ADDRESS_FIELDS {
                if let Some(Value::String(address)) = fields.get_mut(name) {
                    *address = address.replacen(from, to, 1);
                }
            }
        }
        _ => {}
    }
}

fn query_error(error: DevtoolsError) -> ApiError {
    match error {
        DevtoolsError::Timeout => ApiError::timeout(error.to_string()),
        DevtoolsError::Connection(_) => {
            ApiError::unavailable("Chromium is restarting", RESTART_RETRY_DELAY)
        }
        DevtoolsError::Status(_) | DevtoolsError::InvalidResponse(_) => {
            ApiError::bad_gateway("cannot parse the response of Chromium")
        }
    }
}
