//! Continues browsers on registered hosts that this process did not create, or finds that their
//! hosts have lost them.
//!
//! All that a browser needs for that is in its row and in that of its host. A process attaches a
//! browser when a client uses it there. The process that leads attaches all of them, so that each
//! ends when it has been idle for too long, and finishes what processes have left that died.

use std::{collections::HashSet, sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};

use super::{
    Browsers,
    handle::BrowserHandle,
    state::{Action, EndReason},
};
use crate::{
    api::ids::{BrowserId, ProjectId},
    control::{
        processes::Leadership,
        store::{ActiveBrowser, ControlProcessId, StoreError, UnfinishedBrowser},
    },
};

/// The time after which a browser that is being created or ended counts as left, although its
/// process runs: longer than either takes.
const MAX_UNFINISHED: TimeDelta = TimeDelta::minutes(20);
/// Between two passes.
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
        let store = &self.inner.store;
        let gone = self
            .attach_all(&store.active_browser_ids(None).await?)
            .await;
        let (unfinished, live) = self.unfinished().await?;
        self.finish(&unfinished, &live, &HashSet::new()).await?;
        if live.len() <= 1 {
            self.inner.hosts.release_ended().await?;
        }
        self.fetch_open_replays().await?;
        Ok(gone)
    }

    /// Follows what other processes do, and does what one process does for all whenever this one
    /// leads, until shutdown. Local hosts have one process, which knows all browsers.
    pub async fn follow(self, leadership: Leadership) {
        if !self.is_shared() {
            return;
        }
        let mut last_live = None;
        while self.inner.shutdown.sleep(PASS_INTERVAL).await {
            match self.pass(leadership.leads(), last_live.take()).await {
                Ok(live) => last_live = live,
                Err(error) => tracing::error!(%error, "cannot follow the other processes"),
            }
        }
    }

    /// Returns the processes that run, if this one leads.
    async fn pass(
        &self,
        leads: bool,
        last_live: Option<HashSet<ControlProcessId>>,
    ) -> Result<Option<HashSet<ControlProcessId>>, StoreError> {
        let active = self.inner.store.active_browser_ids(None).await?;
        self.detach_ended(&active).await;
        if !leads {
            return Ok(None);
        }
        self.attach_all(&active).await;
        let (unfinished, live) = self.unfinished().await?;
        // Otherwise the locks of this process are lost, as perhaps those of the others.
        let own = self.inner.store.process();
        if own.is_none_or(|own| !live.contains(&own)) {
            return Ok(None);
        }
        match last_live {
            // One that acquires its locks again is missing in a pass or two.
            Some(last_live) => {
                self.finish(&unfinished, &live, &last_live).await?;
                // The process that fetched recordings may have died.
                if !last_live.is_subset(&live) {
                    self.fetch_open_replays().await?;
                }
            }
            None => self.fetch_open_replays().await?,
        }
        Ok(Some(live))
    }

    /// Detaches the browsers that are none of `active`, because another process has ended them.
    async fn detach_ended(&self, active: &[BrowserId]) {
        let active: HashSet<&BrowserId> = active.iter().collect();
        let known: Vec<BrowserId> = self.active().keys().cloned().collect();
        for id in known.iter().filter(|id| !active.contains(id)) {
            if let Err(error) = self.check_ended(id).await {
                tracing::debug!(browser = %id, %error);
            }
        }
    }

    /// Returns the browsers that are being created or ended, and then the processes that run.
    async fn unfinished(
        &self,
    ) -> Result<(Vec<UnfinishedBrowser>, HashSet<ControlProcessId>), StoreError> {
        let store = &self.inner.store;
        // In this order: a process that starts in between is alive.
        let unfinished = store.unfinished_browsers().await?;
        Ok((unfinished, store.live_processes().await?))
    }

    /// Finishes the browsers of processes that are neither in `live` nor in `last_live`, and those
    /// that are unfinished for too long.
    async fn finish(
        &self,
        unfinished: &[UnfinishedBrowser],
        live: &HashSet<ControlProcessId>,
        last_live: &HashSet<ControlProcessId>,
    ) -> Result<(), StoreError> {
        let Self { inner } = self;
        let is_alive = |id| live.contains(&id) || last_live.contains(&id);
        let before = Utc::now() - MAX_UNFINISHED;
        for UnfinishedBrowser {
            id,
            is_creating,
            process,
            saves_profile,
            since,
        } in unfinished
        {
            if process.is_some_and(is_alive) && *since > before {
                continue;
            }
            if *saves_profile && !is_creating {
                self.adopt_ending_save(id, *process).await?;
                continue;
            }
            let is_finished = match is_creating {
                // Otherwise it was published meanwhile.
                true => inner.store.delete_creating_browser(id).await?,
                // A browser that was ending already keeps its reason.
                false => {
                    let reason = EndReason::Gone;
                    inner.store.close_browser(id, reason, Utc::now()).await?;
                    true
                }
            };
            if is_finished {
                tracing::info!(browser = %id, "finished the work of a process that died");
                inner.hosts.release_of(id).await?;
            }
        }
        Ok(())
    }

    /// Attaches the browsers that this process does not know. Returns how many were marked as gone.
    async fn attach_all(&self, active: &[BrowserId]) -> usize {
        let mut gone = 0;
        for id in active {
            if self.active().contains_key(id) {
                continue;
            }
            match self.attach_or_close(id).await {
                Ok(is_attached) => gone += usize::from(!is_attached),
                Err(error) => tracing::error!(browser = %id, %error, "cannot attach browser"),
            }
        }
        gone
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
            // Records that the profile of the browser is not saved.
            self.save_before_end(id, None).await;
            self.record_end(id.clone(), Action::CloseRow(reason)).await;
        }
        Ok(!is_gone)
    }

    /// Attaches the active browsers of a project that this process does not know.
    pub(super) async fn attach_project(&self, project: &ProjectId) {
        match self.inner.store.active_browser_ids(Some(project)).await {
            Ok(active) => {
                self.attach_all(&active).await;
            }
            Err(error) => tracing::error!(%project, %error, "cannot find a project's browsers"),
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
            row.pool.map(|pool| pool.id),
            (
                Duration::from_secs(row.timeout_seconds.into()),
                idle.to_std().unwrap_or_default(),
            ),
        ));
        tracing::debug!(browser = %browser.id(), host = %host, "browser attached");
        self.make_visible(&browser);
        Ok(Some(browser))
    }

    /// Makes this process fetch the recordings of all browsers that it knows.
    async fn fetch_open_replays(&self) -> Result<(), StoreError> {
        for id in self.inner.store.active_browsers_with_open_replays().await? {
            if let Some(browser) = self.active().get(&id) {
                browser.replays_changed().notify_one();
            }
        }
        Ok(())
    }
}
