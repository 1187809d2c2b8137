//! Continues browsers on registered hosts that this process did not create, or finds that their
//! hosts have lost them.
//!
//! All that a browser needs for that is in its row and in that of its host. A process attaches a
//! browser when a client uses it there. The process that leads attaches all of them, so that each
//! ends when it has been idle for too long, and finishes what processes have left that died.

use std::{collections::HashSet, sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};

use super::{
    BrowserError, Browsers,
    handle::BrowserHandle,
    state::{EndReason, State},
};
use crate::{
    api::ids::{BrowserId, ProjectId},
    control::{
        processes::Leadership,
        store::{ActiveBrowser, ControlProcessId, StoreError},
    },
};

/// Between two passes of the process that leads.
const PASS_INTERVAL: Duration = Duration::from_secs(2);

impl Browsers {
    /// Finishes what an earlier run left, if this process leads, and ends the local hosts of that
    /// run. Returns how many browsers were marked as gone. Must run before the first request.
    pub async fn recover(&self, leadership: &Leadership) -> Result<usize, StoreError> {
        for (browser, removed) in self.inner.hosts.recover().await? {
            self.take_over_when_removed(browser, removed);
        }
        if !leadership.leads() {
            return Ok(0);
        }
        let live = self.inner.store.live_processes().await?;
        let gone = self.lead_once(&live).await?;
        if live.len() <= 1 {
            self.inner.hosts.release_ended().await?;
        }
        Ok(gone)
    }

    /// Does what one process does for all, whenever this one leads, until shutdown. Local hosts have
    /// one process, which knows all browsers.
    pub async fn lead(self, mut leadership: Leadership) {
        if !self.is_shared() {
            return;
        }
        let shutdown = &self.inner.shutdown;
        let mut last_live = HashSet::new();
        loop {
            tokio::select! {
                () = leadership.begun() => {}
                () = shutdown.requested() => return,
            }
            match self.inner.store.live_processes().await {
                Ok(live) => {
                    self.lead_in_pass(&live, &last_live).await;
                    last_live = live;
                }
                Err(error) => tracing::error!(%error, "cannot find the running processes"),
            }
            if !shutdown.sleep(PASS_INTERVAL).await {
                return;
            }
        }
    }

    async fn lead_in_pass(
        &self,
        live: &HashSet<ControlProcessId>,
        last_live: &HashSet<ControlProcessId>,
    ) {
        if let Err(error) = self.lead_once(live).await {
            tracing::error!(%error, "cannot finish what other processes have left");
        }
        // The process that fetched recordings may have died.
        if !last_live.is_subset(live) {
            self.fetch_open_replays().await;
        }
    }

    /// Finishes what dead processes have left, and attaches all browsers. Returns how many were
    /// marked as gone.
    async fn lead_once(&self, live: &HashSet<ControlProcessId>) -> Result<usize, StoreError> {
        let Self { inner } = self;
        for (id, state) in &inner.store.unfinished_browsers(live).await? {
            match state {
                State::Creating => inner.store.delete_creating_browser(id).await?,
                // A browser that was ending already keeps its reason.
                _ => {
                    let reason = EndReason::Gone;
                    inner.store.close_browser(id, reason, Utc::now()).await?;
                }
            }
            tracing::info!(browser = %id, ?state, "finished the work of a process that died");
            inner.hosts.release_of(id).await?;
        }
        let mut gone = 0;
        for id in inner.store.active_browser_ids(None).await? {
            if !self.active().contains_key(&id) {
                gone += usize::from(!self.attach_or_close(&id).await?);
            }
        }
        Ok(gone)
    }

    /// Attaches an active browser. Marks it as gone, and returns false, if its host does not run it
    /// any more.
    async fn attach_or_close(&self, id: &BrowserId) -> Result<bool, StoreError> {
        if self.attach(id).await?.is_some() {
            return Ok(true);
        }
        let Self { inner } = self;
        let reason = EndReason::Gone;
        // Otherwise another process has ended it meanwhile.
        let is_gone = inner.store.withdraw_browser(id, reason, Utc::now()).await?;
        if is_gone {
            inner.store.close_browser(id, reason, Utc::now()).await?;
        }
        Ok(!is_gone)
    }

    /// Attaches the active browsers of a project that this process does not know.
    pub(super) async fn attach_project(&self, project: &ProjectId) {
        let attaching = async {
            for id in self.inner.store.active_browser_ids(Some(project)).await? {
                self.attach(&id).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = attaching.await {
            tracing::error!(%project, %error, "cannot find the browsers of a project");
        }
    }

    /// Returns an active browser, which any process may have created. `None` if there is none, or
    /// its host does not run it any more.
    pub(super) async fn attach(
        &self,
        id: &BrowserId,
    ) -> Result<Option<Arc<BrowserHandle>>, StoreError> {
        let Self { inner } = self;
        // A browser has one handle.
        let _lock = inner.attach_locks.lock(id.clone()).await;
        if let Some(known) = self.active().get(id) {
            return Ok(Some(known.clone()));
        }
        let Some(found) = inner.store.find_active_browser(id).await? else {
            return Ok(None);
        };
        let ActiveBrowser { row, host, used_at } = found;
        let Some((host, generation)) = host else {
            return Ok(None);
        };
        let lease = inner.hosts.resume(&row.id, &host, generation, row.viewport);
        let Some(lease) = lease.await? else {
            return Ok(None);
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
        tracing::debug!(browser = %browser.id(), host = %host, "browser attached");
        self.make_visible(&browser);
        Ok(Some(browser))
    }

    /// Makes this process fetch the recordings of all browsers that it knows.
    async fn fetch_open_replays(&self) {
        let known: Vec<Arc<BrowserHandle>> = self.active().values().cloned().collect();
        for browser in known {
            if self.has_open_replays(&browser).await {
                browser.replays_changed().notify_one();
            }
        }
    }

    /// Forgets a browser if another process has ended it.
    pub async fn check_ended(&self, id: &BrowserId) -> Result<(), BrowserError> {
        let Some(browser) = self.active().get(id).cloned() else {
            return Ok(());
        };
        let found = self.inner.store.find_active_browser(id).await?;
        match found {
            Some(_) => Ok(()),
            None => self.forget(&browser).await,
        }
    }
}
