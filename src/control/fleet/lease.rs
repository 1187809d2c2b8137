//! A session's right to a host, through which it uses the host's agent.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::{
    agent_client::{AgentEndpoint, AgentError},
    fill_client::AgentFill,
    host::{Host, HostError},
    login_client::{LoginAct, LoginInspection},
    replay_client::ReplayClient,
};
use crate::api::{
    agent::Health,
    credential_fill::FillResponse,
    login_page::{InspectedPage, LoginActResponse},
    viewport::Viewport,
};

/// The longest wait for an agent that is being restarted before a short request, and again for its
/// response.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait for the head of an archive, and for a restoration whatever its size: the agent
/// waits for Chromium, and copies its user data.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(180);
/// The lowest rate of a restoration in bytes of the archive per second.
const MIN_RESTORE_RATE: u64 = 2 << 20;

/// The run of an agent and of its Chromium. A start of the agent, or of a Chromium after one that
/// ended unexpectedly, begins another one.
#[derive(Debug, Clone, Copy)]
pub struct BrowserRun {
    /// The bounds of the time when the agent was started.
    started: (Instant, Instant),
    /// The number of times that Chromium ended unexpectedly.
    unexpected_ends: u64,
}

impl BrowserRun {
    /// Returns the run of an agent that has reported this between two times.
    fn new(health: &Health, sent: Instant, received: Instant) -> Option<BrowserRun> {
        let (uptime, precision) = match health.uptime_ms {
            Some(uptime) => (Duration::from_millis(uptime), Duration::from_millis(1)),
            // Of an agent of an earlier version.
            None => {
                let uptime = Duration::from_secs(health.uptime_seconds);
                (uptime, Duration::from_secs(1))
            }
        };
        let longest = uptime.checked_add(precision)?;
        Some(BrowserRun {
            started: (sent.checked_sub(longest)?, received.checked_sub(uptime)?),
            unexpected_ends: health.chromium.restarts,
        })
    }

    /// Returns whether two reports are of the same run.
    #[must_use]
    pub fn is_same(self, other: BrowserRun) -> bool {
        let (this, that) = (self.started, other.started);
        this.0 <= that.1 && that.0 <= this.1 && self.unexpected_ends == other.unexpected_ends
    }
}

/// A session's right to a host. Each request names the session, so that the agent rejects it once
/// the session has ended.
pub struct Lease {
    host: Arc<Host>,
    /// The number of the agent's session.
    generation: u64,
    is_starting: bool,
    viewport: Mutex<Viewport>,
}

impl Lease {
    /// Returns the lease of a session that begins with this viewport. `is_starting` is whether the
    /// host has not responded yet.
    pub fn new(host: Arc<Host>, generation: u64, is_starting: bool, viewport: Viewport) -> Lease {
        Lease {
            host,
            generation,
            is_starting,
            viewport: Mutex::new(viewport),
        }
    }

    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether the host had not responded yet when it was leased.
    pub fn is_starting(&self) -> bool {
        self.is_starting
    }

    /// Returns the endpoint of the agent for requests of the session, waiting up to `timeout` while
    /// the agent is being restarted.
    pub async fn endpoint(&self, timeout: Duration) -> Result<AgentEndpoint, HostError> {
        self.host.endpoint(Some(self.generation), timeout).await
    }

    /// Returns a client for the session's recordings, waiting up to `timeout` while the agent is
    /// being restarted.
    pub async fn replay_client(&self, timeout: Duration) -> Result<ReplayClient, HostError> {
        let endpoint = self.endpoint(timeout).await?;
        Ok(ReplayClient::new(self.host.client().clone(), endpoint))
    }

    /// Makes the session end at the host, and returns when no request reaches it any more.
    pub async fn refuse(&self) -> Result<(), AgentError> {
        self.host.refuse_session(self.generation).await
    }

    /// Returns the current viewport.
    pub fn viewport(&self) -> Viewport {
        *self.viewport.lock()
    }

    /// Changes the viewport for the rest of the session.
    pub async fn set_viewport(&self, viewport: Viewport) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.set_viewport(&agent, viewport, CALL_TIMEOUT).await?;
        *self.viewport.lock() = viewport;
        Ok(())
    }

    /// Restarts the browser, which loses its tabs.
    pub async fn restart_browser(&self) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.restart_browser(&agent, CALL_TIMEOUT).await
    }

    /// Opens a page, now and whenever Chromium is started in this session.
    pub async fn set_start_url(&self, url: &str) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.set_start_url(&agent, url, CALL_TIMEOUT).await
    }

    /// Waits until the browser responds.
    pub async fn wait_ready(&self, timeout: Duration) -> Result<(), HostError> {
        self.host.wait_ready(self.generation, timeout).await
    }

    /// Returns the run of the agent and of its Chromium, waiting while the agent restarts.
    pub async fn browser_run(&self) -> Result<BrowserRun, AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        let sent = Instant::now();
        let health = client.health(&agent, CALL_TIMEOUT).await?;
        BrowserRun::new(&health, sent, Instant::now()).ok_or_else(|| {
            let reason = format!("an uptime of {} s", health.uptime_seconds);
            AgentError::InvalidResponse(reason)
        })
    }

    /// Returns an archive of the browser's user data. Without `live`, the browser is closed for
    /// it, and stays so until its session ends.
    pub async fn archive_user_data(
        &self,
        live: bool,
    ) -> Result<BoxStream<'static, Result<Bytes, AgentError>>, AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client
            .archive_user_data(&agent, live, ARCHIVE_TIMEOUT)
            .await
    }

    /// Replaces the browser's user data by the content of an archive of this size. The browser is
    /// started again, and may not respond yet.
    pub async fn restore_user_data(
        &self,
        archive: BoxStream<'static, io::Result<Bytes>>,
        size: u64,
    ) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        let timeout = ARCHIVE_TIMEOUT + Duration::from_secs(size / MIN_RESTORE_RATE);
        client.restore_user_data(&agent, archive, timeout).await
    }

    /// Fills the page in front. If the agent does not respond, the outcome of the fields is
    /// unknown: an error would make clients repeat what they may have submitted.
    ///
    /// Nothing is sent after `deadline`, if the agent is being restarted until then.
    pub async fn fill_credentials(
        &self,
        fill: &AgentFill<'_>,
        deadline: tokio::time::Instant,
    ) -> Result<FillResponse, AgentError> {
        let client = self.host.client();
        let agent = tokio::time::timeout_at(deadline, self.agent()).await;
        let agent = agent.map_err(|_| AgentError::Timeout(CALL_TIMEOUT))??;
        let filled = client.fill_credentials(&agent, fill, CALL_TIMEOUT).await;
        match filled {
            Err(error) if !fill.dry_run && error.may_follow_effects() => {
                tracing::warn!(%error, "the outcome of a fill is unknown");
                Ok(fill.unknown_response())
            }
            filled => filled,
        }
    }

    /// Returns the URL of the page in front, without its query and its fragment.
    pub async fn front_page_url(&self) -> Result<String, AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.front_page_url(&agent, CALL_TIMEOUT).await
    }

    /// Describes the login page in front.
    pub async fn inspect_login(
        &self,
        inspection: &LoginInspection<'_>,
    ) -> Result<InspectedPage, AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.inspect_login(&agent, inspection, CALL_TIMEOUT).await
    }

    /// Clicks an element of the login page in front.
    pub async fn act_on_login(&self, act: &LoginAct<'_>) -> Result<LoginActResponse, AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.act_on_login(&agent, act, CALL_TIMEOUT).await
    }

    /// Begins to open a login page in the tab in front.
    pub async fn open_login(&self, url: &str) -> Result<(), AgentError> {
        let client = self.host.client();
        let agent = self.agent().await?;
        client.open_login(&agent, url, CALL_TIMEOUT).await
    }

    async fn agent(&self) -> Result<AgentEndpoint, AgentError> {
        self.host.agent(Some(self.generation), CALL_TIMEOUT).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_agent_or_chromium_is_another_run() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let run = |start: Instant, after: Duration, unexpected_ends| BrowserRun {
            started: (start, start + after),
            unexpected_ends,
        };
        let first = run(start, second, 0);
        assert!(first.is_same(run(start + second / 2, second, 0)));
        // A report that took long has wider bounds.
        assert!(first.is_same(run(start - second * 20, second * 30, 0)));
        assert!(!first.is_same(run(start + second * 2, second, 0)));
        assert!(!run(start + second * 2, second, 0).is_same(first));
        assert!(!first.is_same(run(start, second, 1)));
    }
}
