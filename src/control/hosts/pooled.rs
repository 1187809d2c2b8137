//! The use of hosts by the pools that they are reserved for.

use std::time::Duration;

use chrono::Utc;

use super::{
    Hosts, Inner,
    state::{Event, State},
};
use crate::{
    api::ids::{BrowserId, HostId, PoolId},
    control::{
        fleet::{AgentError, HostError, LaunchOptions, Lease},
        store::{Fleet, PoolHost, StoreError},
    },
};

/// The time in which a browser must respond when it is handed over.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The memory that must be available to a browser when it is handed over.
const MIN_AVAILABLE_BYTES: u64 = 64 << 20;

/// Why a browser is not handed over.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("the display is {0}")]
    Display(String),
    #[error("{0} MiB of memory are available")]
    Memory(u64),
}

impl Hosts {
    /// Makes the screen and the first page of a leased host, whose browser responds, as its session
    /// demands.
    pub async fn set_up(
        &self,
        lease: &Lease,
        launch: &LaunchOptions,
        start_url: Option<&str>,
    ) -> Result<(), AgentError> {
        // A host that is used again begins with the viewport of its first session.
        if lease.viewport() != launch.viewport {
            lease.set_viewport(launch.viewport).await?;
            if launch.mode.headless {
                // Only a restart changes the screen that pages see.
                lease.restart_browser().await?;
            }
        }
        if let Some(url) = start_url {
            lease.set_start_url(url).await?;
        }
        Ok(())
    }

    /// Checks that the browser of a lease responds, has its display and some memory.
    pub async fn check(&self, lease: &Lease) -> Result<(), CheckError> {
        let endpoint = lease.endpoint(CHECK_TIMEOUT).await?;
        let client = lease.host().client();
        let ((), health) = tokio::try_join!(
            client.wait_ready(&endpoint, CHECK_TIMEOUT),
            client.health(&endpoint, CHECK_TIMEOUT),
        )?;
        if health.display.state == "down" {
            return Err(CheckError::Display(health.display.state));
        }
        let available = health.memory.map(|memory| memory.available_bytes);
        match available {
            Some(bytes) if bytes < MIN_AVAILABLE_BYTES => Err(CheckError::Memory(bytes >> 20)),
            _ => Ok(()),
        }
    }

    /// Lets any session have a ready host that a pool does not need any more. Local ones beyond the
    /// number that may be idle are stopped.
    pub async fn unreserve(&self, host: &PoolHost, pool: &PoolId) -> Result<(), StoreError> {
        let Inner { store, fleet, .. } = &*self.inner;
        if *fleet == Fleet::Local
            && let Some(local) = self.inner.local.get(&host.id)
            && !self.inner.local.reserve_idle(&host.id)
        {
            self.step(local, Event::Drain).await;
            return Ok(());
        }
        let unreserved = store.unreserve_host(&host.id, pool).await;
        if *fleet == Fleet::Local && !matches!(unreserved, Ok(true)) {
            // The pool uses it again.
            self.inner.local.release_idle(&host.id);
        }
        unreserved?;
        self.inner.changed.notify_waiters();
        Ok(())
    }

    /// Makes a leased host end with its session. Does nothing if it has another one.
    pub async fn retire_after_session(
        &self,
        host: &HostId,
        session: &BrowserId,
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        while let Some(row) = store.find_host(host).await? {
            if row.life.state != State::Leased || row.life.session.as_ref() != Some(session) {
                break;
            }
            let Ok((after, _)) = row.life.apply(Event::Drain) else {
                break;
            };
            // Otherwise another event was faster.
            if store
                .change_host(host, &row.life, &after, Utc::now())
                .await?
            {
                break;
            }
        }
        Ok(())
    }

    /// Records that so many browsers of pools get no host.
    pub fn record_demand(&self, launch: &LaunchOptions, count: usize) {
        for _ in 0..count {
            self.inner.registered.demand().record(launch.clone());
        }
    }

    /// Returns the signal that the state of a host has changed.
    pub fn changed(&self) -> &tokio::sync::Notify {
        &self.inner.changed
    }
}
