//! Applies events to browsers, runs the actions that follow, and ends browsers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use chrono::Utc;
use futures::future::BoxFuture;

use super::{
    BrowserError, Browsers,
    handle::BrowserHandle,
    profiles::AfterSave,
    state::{Action, Actions, EndReason, Event},
};
use crate::{
    api::ids::{BrowserId, ProjectId},
    backoff::Backoff,
    control::{hosts::AfterSession, store::StoreError},
    request_scope::inherit,
};

/// The first and the longest delay before another attempt to record the end of a browser.
const RECORD_RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl Browsers {
    /// Ends a browser and returns when its host has ended it and removed its data. Completes even
    /// if the client disconnects.
    pub async fn delete(&self, project: &ProjectId, id_or_name: &str) -> Result<(), BrowserError> {
        let browser = self.use_active(project, id_or_name).await?;
        let this = self.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            this.end(&browser, EndReason::Deleted).await
        }));
        task.await?
    }

    /// Ends all browsers and hosts that end with this process.
    pub async fn end_all(&self) {
        self.end_each(EndReason::Gone, |browser| !browser.survives_control())
            .await;
        self.inner.hosts.stop_all().await;
    }

    /// Ends the browsers of a project that is archived, and returns when their hosts are stopped. A
    /// browser that is being created finds out by itself.
    pub async fn end_of_project(&self, project: &ProjectId) {
        if self.is_shared() {
            self.attach_project(project).await;
        }
        let is_of_project = |browser: &BrowserHandle| browser.project() == project;
        self.end_each(EndReason::Deleted, is_of_project).await;
    }

    async fn end_each(&self, reason: EndReason, selects: impl Fn(&BrowserHandle) -> bool) {
        let active: Vec<Arc<BrowserHandle>> = self.active().values().cloned().collect();
        let selected = active.iter().filter(|browser| selects(browser));
        let ending = selected.map(|browser| async move {
            match self.end(browser, reason).await {
                Ok(()) | Err(BrowserError::NotFound) => {}
                Err(error) => {
                    tracing::error!(browser = %browser.id(), %error, "cannot end browser");
                }
            }
        });
        futures::future::join_all(ending).await;
    }

    /// Applies an event and runs the actions that follow from it. Returns `NotFound` if another
    /// event has ended the browser before.
    pub(super) async fn apply(
        &self,
        browser: &Arc<BrowserHandle>,
        event: Event,
    ) -> Result<(), BrowserError> {
        let actions = begin(browser, event)?;
        self.run_actions(browser, actions).await;
        Ok(())
    }

    /// Runs actions and those that follow from them. If another process is to save the profile, the
    /// remaining ones are left to it; the caller then runs no further actions.
    pub(super) async fn run_actions(
        &self,
        browser: &Arc<BrowserHandle>,
        actions: &[Action],
    ) -> AfterSave {
        let mut pending: VecDeque<Action> = actions.iter().copied().collect();
        while let Some(action) = pending.pop_front() {
            match action {
                Action::MakeVisible => self.make_visible(browser),
                Action::Hide => self.hide(browser),
                Action::SaveReplays => self.save_replays(browser).await,
                Action::SaveProfile => {
                    if self.save_ending_profile(browser).await == AfterSave::Leave {
                        self.inner.hosts.forget(browser.lease(), browser.id());
                        return AfterSave::Leave;
                    }
                }
                Action::ReleaseHost => {
                    self.release_host(browser).await;
                    pending.extend(browser.apply(Event::HostReleased).unwrap_or_default());
                }
                Action::Withdraw(_) | Action::CloseRow(_) | Action::DeleteRow => {
                    self.record_end(browser.id().clone(), action).await;
                }
            }
        }
        AfterSave::End
    }

    /// Ends the session at its host.
    async fn release_host(&self, browser: &Arc<BrowserHandle>) {
        let after = self.use_after(browser).await;
        let hosts = &self.inner.hosts;
        let left_recordings = hosts.release(browser.lease(), browser.id(), after).await;
        if left_recordings {
            self.take_over_replays(browser).await;
        }
    }

    /// Returns the use of the host after a browser. A local one is used again if it has served its
    /// client in order and has no recording any more; those that could not be fetched are taken
    /// from its directory.
    async fn use_after(&self, browser: &Arc<BrowserHandle>) -> AfterSession {
        let is_usable = browser.survives_control()
            // Nothing has used it.
            || browser.pool().is_some() && browser.is_discarded()
            || browser.ends_in_order() && !self.has_open_replays(browser).await;
        match browser.pool() {
            _ if !is_usable => AfterSession::Retire,
            Some(_) => AfterSession::Return,
            None => AfterSession::Recycle,
        }
    }

    fn hide(&self, browser: &BrowserHandle) {
        self.active().remove(browser.id());
        self.update_gauge();
        browser.ended().cancel();
        match browser.end_reason() {
            Some(reason) => tracing::info!(browser = %browser.id(), ?reason, "browser ended"),
            None => {
                self.inner.hosts.forget(browser.lease(), browser.id());
                tracing::debug!(browser = %browser.id(), "another process has ended a browser");
            }
        }
    }

    pub(super) fn make_visible(&self, browser: &Arc<BrowserHandle>) {
        let Browsers { inner } = self;
        self.active().insert(browser.id().clone(), browser.clone());
        self.update_gauge();
        inner.shutdown.spawn(self.clone().watch(browser.clone()));
        let collector = self.clone().collect_replays(browser.clone());
        inner.shutdown.spawn(collector);
        tracing::info!(browser = %browser.id(), "browser started");
    }

    /// Ends the browser when its idle timeout has passed or its host is gone.
    ///
    /// Boxed, because it is spawned by the actions that it runs itself.
    fn watch(self, browser: Arc<BrowserHandle>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while browser.is_visible() {
                tokio::select! {
                    () = browser.wait_idle() => self.end_if_idle(&browser).await,
                    () = browser.lease().host().wait_gone() => self.end_lost(&browser).await,
                    // Another process has ended it.
                    () = browser.ended().cancelled() => return,
                    () = self.inner.shutdown.requested() => return,
                }
            }
        })
    }

    /// Records the end of a browser, and retries in the background if the database fails.
    ///
    /// A failing database must not keep a host from being stopped, and on a full disk only the
    /// removal of the host's data makes room for the update. A row that is not updated before the
    /// process ends is settled at the next start.
    pub(super) async fn record_end(&self, id: BrowserId, end: Action) {
        let Err(error) = self.try_record_end(&id, end).await else {
            return;
        };
        tracing::error!(browser = %id, ?end, %error, "cannot record end of browser; retrying");
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            let mut delays = Backoff::new(RECORD_RETRY_DELAY.0, RECORD_RETRY_DELAY.1);
            while this.inner.shutdown.sleep(delays.next_delay()).await {
                if this.try_record_end(&id, end).await.is_ok() {
                    return;
                }
            }
        });
    }

    async fn try_record_end(&self, id: &BrowserId, end: Action) -> Result<(), StoreError> {
        let store = &self.inner.store;
        match end {
            Action::Withdraw(reason) => {
                store.withdraw_browser(id, reason, Utc::now()).await?;
                Ok(())
            }
            Action::CloseRow(reason) => store.close_browser(id, reason, Utc::now()).await,
            Action::DeleteRow => {
                store.delete_creating_browser(id).await?;
                Ok(())
            }
            Action::MakeVisible
            | Action::Hide
            | Action::SaveProfile
            | Action::SaveReplays
            | Action::ReleaseHost => Ok(()),
        }
    }
}

/// Applies an event. Returns the actions that follow, or `NotFound` if another event was faster.
pub(super) fn begin(browser: &BrowserHandle, event: Event) -> Result<Actions, BrowserError> {
    browser.apply(event).map_err(|rejected| {
        tracing::debug!(browser = %browser.id(), %rejected);
        BrowserError::NotFound
    })
}
