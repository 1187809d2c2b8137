//! Records which browsers are in use, for the other control processes and for the next one.
//!
//! The first use after a while is recorded at once, further ones every few seconds, so that a
//! browser of which no use was recorded for its idle timeout has been idle at all processes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::Utc;
use tokio::time::{Instant, sleep};

use super::{Browsers, handle::BrowserHandle};
use crate::api::ids::BrowserId;

/// The shortest time between two records of a browser, less than the shortest idle timeout.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// Between two looks for browsers that are to be recorded.
const TICK: Duration = Duration::from_secs(1);
/// The delay of a record, in which others join it.
const DELAY: Duration = Duration::from_millis(50);

impl Browsers {
    /// Records uses until shutdown.
    pub async fn record_use(self) {
        let shutdown = &self.inner.shutdown;
        loop {
            let is_running = tokio::select! {
                () = self.inner.used.notified() => {
                    sleep(DELAY).await;
                    true
                }
                is_running = shutdown.sleep(TICK) => is_running,
            };
            let interval = if is_running { INTERVAL } else { Duration::ZERO };
            self.record_use_once(interval).await;
            if !is_running {
                return;
            }
        }
    }

    async fn record_use_once(&self, interval: Duration) {
        let now = Instant::now();
        let used: Vec<Arc<BrowserHandle>> = {
            let active = self.active();
            let used = active.values().filter(|browser| {
                browser.survives_control() && browser.has_unrecorded_use(interval)
            });
            used.cloned().collect()
        };
        // By the seconds since the last use, so that there are few statements.
        let mut by_idle_seconds: BTreeMap<u64, Vec<Arc<BrowserHandle>>> = BTreeMap::new();
        for browser in used {
            let seconds = browser.idle_for().as_secs();
            by_idle_seconds.entry(seconds).or_default().push(browser);
        }
        for (seconds, used) in by_idle_seconds {
            let used_at = Utc::now() - Duration::from_secs(seconds);
            let ids: Vec<BrowserId> = used.iter().map(|browser| browser.id().clone()).collect();
            match self.inner.store.record_browser_use(&ids, used_at).await {
                Ok(()) => {
                    for browser in used {
                        browser.set_use_recorded(now);
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot record the use of browsers"),
            }
        }
    }
}
