//! What a browser's life means for its replays, and the other way round.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{AGENT_RESTART_TIMEOUT, BrowserError, Browsers, handle::BrowserHandle};
use crate::{
    api::ids::{BrowserId, ProjectId},
    control::store::StateFilter,
};

/// Between two looks at an agent that records or has something to be fetched: the first, and the longest where it does not come.
const LOOK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// How long the end of a browser waits for its recordings: until its agent has handed them over, and until what is left of them is taken
/// over. Both go on afterwards.
const SAVE: Duration = Duration::from_secs(20);
const TAKE_OVER: Duration = Duration::from_secs(20);

impl Browsers {
    /// The browser `id_or_name` of `project`, whether it lives or is only known of; and whether it lives. That is no use of it.
    pub async fn resolve(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<(BrowserId, bool), BrowserError> {
        match self.see_live(project, id_or_name).await {
            Ok(live) => return Ok((live.id().clone(), true)),
            Err(BrowserError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let store = &self.inner.store;
        let all = StateFilter::All;
        let found = match id_or_name.parse::<BrowserId>() {
            Ok(id) => {
                // Replays may be kept for longer than the browser's record.
                let known = store.find_browser(project, &id, all).await?.is_some()
                    || store.has_replays(project, &id).await?;
                known.then_some(id)
            }
            Err(_) => {
                let row = store.find_browser_named(project, id_or_name, all).await?;
                row.map(|row| row.id)
            }
        };
        Ok((found.ok_or(BrowserError::NotFound)?, false))
    }

    /// Fetches what the browser has recorded, each time there may be something, until it ends.
    pub(super) async fn collect_replays(self, live: Arc<BrowserHandle>) {
        let changed = live.replays_changed().clone();
        loop {
            tokio::select! {
                () = changed.notified() => {}
                () = live.ended().cancelled() => return,
                () = self.inner.shutdown.stopped() => return,
            }
            let mut pause = LOOK.0;
            // What has begun is finished: whoever ends the browser waits for it.
            while let Some(next) = self.collect_once(&live, pause).await {
                pause = next;
                tokio::select! {
                    () = changed.notified() => pause = LOOK.0,
                    () = sleep(pause) => {}
                    () = live.ended().cancelled() => return,
                    () = self.inner.shutdown.stopped() => return,
                }
            }
        }
    }

    /// How long to wait before the next look; `None` where there is nothing left to be fetched.
    async fn collect_once(&self, live: &BrowserHandle, pause: Duration) -> Option<Duration> {
        let longer = pause.saturating_mul(2).min(LOOK.1);
        let recorder = match live.host().recorder(AGENT_RESTART_TIMEOUT).await {
            Ok(recorder) => recorder,
            Err(_) => return Some(longer),
        };
        let replays = &self.inner.replays;
        match replays.collect(live.project(), live.id(), &recorder).await {
            Ok(true) => None,
            Ok(false) => Some(longer),
            Err(error) => {
                tracing::warn!(browser = %live.id(), %error, "an agent's replays cannot be fetched");
                Some(longer)
            }
        }
    }

    pub(super) async fn save_replays(&self, live: &BrowserHandle) {
        let replays = &self.inner.replays;
        let saving = async {
            // Whatever the database says: asking once too often is no harm.
            if !replays.has_open(live.id()).await.unwrap_or(true) {
                return;
            }
            let recorder = match live.host().recorder(AGENT_RESTART_TIMEOUT).await {
                Ok(recorder) => recorder,
                Err(reason) => {
                    tracing::warn!(browser = %live.id(), %reason, "no agent to fetch replays from");
                    return;
                }
            };
            let settled = replays.settle(live.project(), live.id(), &recorder).await;
            if let Err(error) = settled {
                tracing::warn!(browser = %live.id(), %error, "replays are not fetched from their agent");
            }
        };
        if timeout(SAVE, saving).await.is_err() {
            tracing::warn!(browser = %live.id(), "fetching replays takes too long; they are taken out of what the host leaves");
        }
    }

    pub(super) async fn take_over_replays(&self, live: &BrowserHandle) {
        // The next start does so.
        if self.inner.shutdown.stopping() {
            return;
        }
        let taking = self.inner.replays.take_over(live.id().clone());
        if timeout(TAKE_OVER, taking).await.is_err() {
            tracing::warn!(browser = %live.id(), "taking replays over goes on in the background");
        }
    }
}
