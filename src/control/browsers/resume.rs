//! Continues the browsers of an earlier process: those on registered hosts, which have survived it.
//!
//! All that a browser needs for that is in its row and in that of its host. The time of its last
//! use is recorded every few seconds, because its idle timeout goes on from there.

use std::{sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};
use tokio::time::Instant;

use super::{
    Browsers,
    handle::BrowserHandle,
    state::{EndReason, State},
};
use crate::{
    api::ids::BrowserId,
    control::store::{StoreError, UnfinishedBrowser},
};

/// Between two records of which browsers are in use.
const USE_INTERVAL: Duration = Duration::from_secs(5);

impl Browsers {
    /// Continues the browsers of an earlier run whose hosts still run them, and marks the others as
    /// gone. Ends the local hosts of that run. Returns how many browsers were marked. Must run
    /// before the first request.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        for (browser, removed) in self.inner.hosts.recover().await? {
            self.take_over_when_removed(browser, removed);
        }
        let store = &self.inner.store;
        let mut gone = 0;
        for browser in store.unfinished_browsers().await? {
            let (id, state) = (browser.row.id.clone(), browser.row.state);
            match state {
                State::Creating => store.delete_creating_browser(&id).await?,
                State::Active if self.resume(browser).await? => {}
                state => {
                    // A browser that was ending already keeps its reason.
                    gone += usize::from(state == State::Active);
                    let reason = EndReason::Gone;
                    store.close_browser(&id, reason, Utc::now()).await?;
                }
            }
        }
        self.inner.hosts.release_ended().await?;
        Ok(gone)
    }

    /// Continues a browser. Returns false if its host does not run it any more.
    async fn resume(&self, browser: UnfinishedBrowser) -> Result<bool, StoreError> {
        let UnfinishedBrowser { row, host, used_at } = browser;
        let Some((host, generation)) = host else {
            return Ok(false);
        };
        let hosts = &self.inner.hosts;
        let lease = hosts.resume(&row.id, &host, generation, row.viewport);
        let Some(lease) = lease.await? else {
            return Ok(false);
        };
        // The wall clock may have been set since.
        let idle = (Utc::now() - used_at).max(TimeDelta::zero());
        let browser = Arc::new(BrowserHandle::resumed(
            row.id,
            row.project_id,
            lease,
            Duration::from_secs(row.timeout_seconds.into()),
            idle.to_std().unwrap_or_default(),
        ));
        tracing::info!(browser = %browser.id(), host = %host, "browser continued");
        self.make_visible(&browser);
        if self.has_open_replays(&browser).await {
            browser.replays_changed().notify_one();
        }
        Ok(true)
    }

    /// Records which browsers are in use, for the next process, until shutdown.
    pub async fn record_use(self) {
        let mut recorded_at = Instant::now();
        loop {
            let is_running = self.inner.shutdown.sleep(USE_INTERVAL).await;
            let since = recorded_at.elapsed();
            recorded_at = Instant::now();
            let used: Vec<BrowserId> = {
                let active = self.active();
                let used = active
                    .values()
                    .filter(|browser| browser.survives_control() && browser.was_used_in(since));
                used.map(|browser| browser.id().clone()).collect()
            };
            let recorded = self.inner.store.record_browser_use(&used, Utc::now());
            if let Err(error) = recorded.await {
                tracing::warn!(%error, "cannot record the use of browsers");
            }
            if !is_running {
                return;
            }
        }
    }
}
