//! The newest Chromium that browsers run now.

use std::time::Duration;

use futures::future::join_all;

use super::Hosts;
use crate::{
    control::{fleet::AgentEndpoint, store::Fleet},
    system::profile::major_version_of_product,
};

/// The time in which an agent must respond. A later answer does not count.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The most agents that are asked. Those of a fleet usually have one image, and so one version.
const MAX_AGENTS: u64 = 16;

impl Hosts {
    /// Returns the major version of the newest Chromium of the fleet, as far as some of its hosts
    /// tell. `None` if no browser runs.
    pub async fn newest_chromium(&self) -> Option<u32> {
        let agents = match self.inner.fleet {
            Fleet::Local => self.local_agents().await,
            Fleet::Registered => {
                let agents = self.inner.registered.newest_agents(MAX_AGENTS).await;
                agents.unwrap_or_else(|error| {
                    tracing::warn!(%error, "cannot list hosts to ask for the version of Chromium");
                    Vec::new()
                })
            }
        };
        let versions = join_all(agents.iter().map(|agent| self.chromium_of(agent))).await;
        versions.into_iter().flatten().max()
    }

    async fn local_agents(&self) -> Vec<AgentEndpoint> {
        let hosts = self.inner.local.hosts();
        let agents = hosts.iter().take(MAX_AGENTS as usize);
        let agents = join_all(agents.map(|host| host.endpoint(None, TIMEOUT))).await;
        agents.into_iter().flatten().collect()
    }

    async fn chromium_of(&self, agent: &AgentEndpoint) -> Option<u32> {
        let client = self.inner.registered.client();
        let health = client.health(agent, TIMEOUT).await.ok()?;
        major_version_of_product(&health.chromium.version?)
    }
}
