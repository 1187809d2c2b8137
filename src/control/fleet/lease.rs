//! A session's right to a host, through which it uses the host's agent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    agent_client::{AgentAccess, AgentEndpoint, AgentError},
    host::{Host, HostError},
    replay_client::ReplayClient,
};
use crate::api::viewport::Viewport;

/// Between two polls of an agent whose browser is not ready.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for an agent that is being restarted before a change of the viewport or the
/// start URL, and again for its response to the change.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A session's right to a host. Each request names the session, so that the agent rejects it once
/// the session has ended.
pub struct Lease {
    host: Arc<Host>,
    /// The number of the agent's session.
    generation: u64,
    viewport: Mutex<Viewport>,
}

impl Lease {
    /// Returns the lease of a session that begins with this viewport.
    pub fn new(host: Arc<Host>, generation: u64, viewport: Viewport) -> Lease {
        Lease {
            host,
            generation,
            viewport: Mutex::new(viewport),
        }
    }

    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Waits up to `timeout` until the browser's DevTools respond.
    pub async fn wait_ready(&self, timeout: Duration) -> Result<(), HostError> {
        let started = Instant::now();
        let mut reason = String::from("no response from the agent");
        loop {
            let remaining = timeout.saturating_sub(started.elapsed());
            if remaining.is_zero() {
                return Err(HostError::NotReady(reason));
            }
            let address = self.host.address(remaining).await?;
            let agent = AgentEndpoint {
                address,
                access: AgentAccess::Token(self.host.token()),
                generation: Some(self.generation),
            };
            let ready = tokio::select! {
                ready = self.host.client().wait_ready(agent, remaining) => ready,
                () = self.host.address_changed(address) => continue,
            };
            match ready {
                Ok(()) => {
                    self.host.mark_ready();
                    return Ok(());
                }
                Err(error) => reason = error.to_string(),
            }
            let remaining = timeout.saturating_sub(started.elapsed());
            tokio::time::sleep(READY_POLL_INTERVAL.min(remaining)).await;
        }
    }

    /// Returns a client for the session's recordings, waiting up to `timeout` while the agent is
    /// being restarted.
    pub async fn replay_client(&self, timeout: Duration) -> Result<ReplayClient, HostError> {
        let address = self.host.address(timeout).await?;
        let (client, token) = (self.host.client().clone(), self.host.token().clone());
        Ok(ReplayClient::new(client, address, token, self.generation))
    }

    /// Returns the current viewport.
    pub fn viewport(&self) -> Viewport {
        *self.viewport.lock()
    }

    /// Changes the viewport for the rest of the session.
    pub async fn set_viewport(&self, viewport: Viewport) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.set_viewport(agent, viewport, CALL_TIMEOUT).await?;
        *self.viewport.lock() = viewport;
        Ok(())
    }

    /// Restarts the browser, which loses its tabs.
    pub async fn restart_browser(&self) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.restart_browser(agent, CALL_TIMEOUT).await
    }

    /// Opens a page, now and whenever Chromium is started in this session.
    pub async fn set_start_url(&self, url: &str) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.set_start_url(agent, url, CALL_TIMEOUT).await
    }

    async fn agent(&self) -> Result<AgentEndpoint<'_>, AgentError> {
        let address = self.host.address(CALL_TIMEOUT).await;
        let address = address.map_err(|error| AgentError::Unreachable(error.to_string()))?;
        Ok(AgentEndpoint {
            address,
            access: AgentAccess::Token(self.host.token()),
            generation: Some(self.generation),
        })
    }
}
