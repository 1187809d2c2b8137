//! Fetches the recordings of a browser while it is active and when it ends.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{AGENT_RESTART_TIMEOUT, BrowserError, Browsers, handle::BrowserHandle};
use crate::{
    api::ids::{BrowserId, ProjectId},
    backoff::Backoff,
    control::store::StateFilter,
};

/// The first and the longest delay between two polls of an agent that has recordings to fetch.
const POLL_DELAY: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(30));
/// The longest wait at the end of a browser for its agent to transfer all recordings, except during
/// a shutdown.
const SAVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait at the end of a browser for the recordings its host left behind to be stored.
/// Storing them continues in the background.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(20);

/// A browser that exists or has existed.
#[derive(Debug, Clone)]
pub struct KnownBrowser {
    pub id: BrowserId,
    pub is_active: bool,
}

impl Browsers {
    /// Finds the browser `id_or_name` of `project`, whether it is active or ended. This does not
    /// count as activity.
    pub async fn resolve(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<KnownBrowser, BrowserError> {
        match self.find_active(project, id_or_name).await {
            Ok(browser) => {
                return Ok(KnownBrowser {
                    id: browser.id().clone(),
                    is_active: true,
                });
            }
            Err(BrowserError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let store = &self.inner.store;
        let all = StateFilter::All;
        let found = match id_or_name.parse::<BrowserId>() {
            Ok(id) => {
                // Replays may be retained for longer than the browser's row.
                let is_known = store.find_browser(project, &id, all).await?.is_some()
                    || store.has_replays(project, &id).await?;
                is_known.then_some(id)
            }
            Err(_) => {
                let row = store.find_browser_named(project, id_or_name, all).await?;
                row.map(|row| row.id)
            }
        };
        Ok(KnownBrowser {
            id: found.ok_or(BrowserError::NotFound)?,
            is_active: false,
        })
    }

    /// Fetches finished recordings whenever there may be some, until the browser ends.
    pub(super) async fn collect_replays(self, browser: Arc<BrowserHandle>) {
        let changed = browser.replays_changed().clone();
        let mut delays = Backoff::new(POLL_DELAY.0, POLL_DELAY.1);
        loop {
            tokio::select! {
                () = changed.notified() => {}
                () = browser.ended().cancelled() => return,
                () = self.inner.shutdown.requested() => return,
            }
            delays.reset();
            // A transfer is never interrupted: the end of the browser waits for it.
            while !self.collect_once(&browser).await {
                tokio::select! {
                    () = changed.notified() => delays.reset(),
                    () = sleep(delays.next_delay()) => {}
                    () = browser.ended().cancelled() => return,
                    () = self.inner.shutdown.requested() => return,
                }
            }
        }
    }

    /// Fetches the recordings that are finished. Returns whether none remain at the agent.
    async fn collect_once(&self, browser: &BrowserHandle) -> bool {
        let Ok(client) = browser.lease().replay_client(AGENT_RESTART_TIMEOUT).await else {
            return false;
        };
        let replays = &self.inner.replays;
        let collected = replays.collect(browser.project(), browser.id(), &client);
        match collected.await {
            Ok(is_done) => is_done,
            Err(error) => {
                tracing::warn!(browser = %browser.id(), %error, "cannot fetch replays from agent");
                false
            }
        }
    }

    /// Stops the recordings of an ending browser and fetches them, within [`SAVE_TIMEOUT`] or the
    /// deadline of a shutdown. The others are taken from the stopped host.
    pub(super) async fn save_replays(&self, browser: &BrowserHandle) {
        let replays = &self.inner.replays;
        let saving = async {
            if !self.has_open_replays(browser).await {
                return;
            }
            let client = match browser.lease().replay_client(AGENT_RESTART_TIMEOUT).await {
                Ok(client) => client,
                Err(error) => {
                    tracing::warn!(browser = %browser.id(), %error, "no agent to fetch replays from");
                    return;
                }
            };
            let settled = replays.settle(browser.project(), browser.id(), &client);
            if let Err(error) = settled.await {
                tracing::warn!(browser = %browser.id(), %error, "cannot fetch replays from agent");
            }
        };
        let deadline = self.inner.hosts.stop_deadlines().replays;
        let expired = self
            .inner
            .shutdown
            .timeout_or_deadline(SAVE_TIMEOUT, deadline);
        tokio::select! {
            () = saving => {}
            () = expired => tracing::warn!(
                browser = %browser.id(),
                "fetching replays timed out; they are taken from the stopped host"
            ),
        }
    }

    /// Returns whether a replay of the browser is still to be fetched. If the database fails, it
    /// may be.
    pub(super) async fn has_open_replays(&self, browser: &BrowserHandle) -> bool {
        let is_open = self.inner.replays.has_open(browser.id()).await;
        is_open.unwrap_or(true)
    }

    /// Stores the recordings that a stopped host left behind, within [`TAKE_OVER_TIMEOUT`].
    pub(super) async fn take_over_replays(&self, browser: &BrowserHandle) {
        // During shutdown there is no time; the next start does it.
        if self.inner.shutdown.is_requested() {
            return;
        }
        let removed = browser.lease().host().data_removed();
        if !removed.is_cancelled() {
            self.take_over_when_removed(browser.id().clone(), removed.clone());
            return;
        }
        let taking_over = self.inner.replays.take_over(browser.id().clone());
        if timeout(TAKE_OVER_TIMEOUT, taking_over).await.is_err() {
            tracing::warn!(
                browser = %browser.id(),
                "storing the replays of a stopped host continues in the background"
            );
        }
    }

    /// Stores the recordings of a stopped host in the background once its data is removed, which
    /// includes saving its recordings.
    pub(super) fn take_over_when_removed(&self, browser: BrowserId, removed: CancellationToken) {
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            tokio::select! {
                () = removed.cancelled() => {}
                () = this.inner.shutdown.requested() => return,
            }
            // Runs as a task of its own, which retries until it succeeds.
            this.inner.replays.take_over(browser);
        });
    }
}
