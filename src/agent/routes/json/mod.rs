//! `/json`: the discovery of DevTools targets, as Chromium's own server has it, with addresses that
//! lead to the agent.

use std::sync::Arc;

use axum::extract::FromRef;
use http::{HeaderMap, header};

use crate::{
    agent::{
        Agent,
        cdp_clients::CdpClients,
        chromium::{Chromium, Devtools},
        settings::Config,
    },
    http::{ApiError, ApiResult},
    system::cdp::connection::CdpError,
};

pub(crate) mod list;
pub(crate) mod version;

/// The services that answer questions about Chromium's targets.
#[derive(Clone)]
pub(crate) struct DevtoolsQueries {
    chromium: Chromium,
    clients: CdpClients,
    config: Arc<Config>,
}

impl FromRef<Agent> for DevtoolsQueries {
    fn from_ref(agent: &Agent) -> Self {
        DevtoolsQueries {
            chromium: agent.chromium.clone(),
            clients: agent.cdp_clients.clone(),
            config: agent.config.clone(),
        }
    }
}

impl DevtoolsQueries {
    /// Queries Chromium. Waits while it starts.
    async fn query<T, F>(&self, query: impl Fn(Arc<Devtools>) -> F) -> ApiResult<T>
    where
        F: Future<Output = Result<T, CdpError>>,
    {
        let _permit = self.clients.admit_query()?;
        let deadline = self.clients.hold_deadline();
        let mut devtools = self.chromium.ready(self.config.cdp_hold).await?;
        loop {
            match query(devtools.clone()).await {
                Ok(answer) => return Ok(answer),
                // Chromium ended just now, and the supervisor restarts it.
                Err(CdpError::Closed | CdpError::Connect(_)) => {
                    let successor = self.clients.wait_for_successor(&devtools, deadline);
                    devtools = successor.await?;
                }
                Err(error @ CdpError::Timeout { .. }) => {
                    return Err(ApiError::timeout(error.to_string()));
                }
                Err(error) => return Err(ApiError::bad_gateway(error.to_string())),
            }
        }
    }
}

/// Returns the URL of a DevTools WebSocket, from where the client is.
fn websocket_url(headers: &HeaderMap, path: &str) -> String {
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    format!("ws://{host}{path}")
}
