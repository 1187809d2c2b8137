//! Ends browsers of which other control processes may know, too.
//!
//! The row of such a browser decides: the process that changes it from active ends the browser, and
//! the others forget it. A browser on a host of this process itself ends as its handle says,
//! because a failing database must not keep such a host from being stopped.

use std::{sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};

use super::{
    BrowserError, Browsers,
    handle::BrowserHandle,
    lifecycle::begin,
    state::{Actions, EndReason, Event},
};
use crate::{api::ids::BrowserId, control::store::StoreError};

/// The delay after which the database is asked again whether a browser is idle.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Browsers {
    /// Ends a browser for a reason. Returns `NotFound` if it has ended before.
    pub(super) async fn end(
        &self,
        browser: &Arc<BrowserHandle>,
        reason: EndReason,
    ) -> Result<(), BrowserError> {
        let (event, actions) = self.begin_end(browser, reason).await?;
        self.run_actions(browser, actions).await;
        match event {
            Event::EndedElsewhere => Err(BrowserError::NotFound),
            _ => Ok(()),
        }
    }

    /// Begins to end a browser. Returns the event and the actions that follow. Returns `NotFound`
    /// if it has ended before.
    pub(super) async fn begin_end(
        &self,
        browser: &Arc<BrowserHandle>,
        reason: EndReason,
    ) -> Result<(Event, Actions), BrowserError> {
        if !browser.survives_control() {
            let event = Event::End(reason);
            return Ok((event, begin(browser, event)?));
        }
        let _lock = browser.lock_end().await;
        if !browser.is_visible() {
            return Err(BrowserError::NotFound);
        }
        let (store, id) = (&self.inner.store, browser.id());
        let event = match store.withdraw_browser(id, reason, Utc::now()).await? {
            true => Event::Withdrawn(reason),
            false => self.event_of_ended(id, reason).await?,
        };
        Ok((event, begin(browser, event)?))
    }

    /// Returns the event of a visible browser whose row says that it ends. This process itself has
    /// written that if the answer of the database was lost.
    async fn event_of_ended(&self, id: &BrowserId, reason: EndReason) -> Result<Event, StoreError> {
        Ok(match self.inner.store.is_withdrawn_here(id).await? {
            true => Event::Withdrawn(reason),
            false => Event::EndedElsewhere,
        })
    }

    /// Ends a browser that has been idle here for its idle timeout, unless it is used by then, here
    /// or at another process.
    pub(super) async fn end_if_idle(&self, browser: &Arc<BrowserHandle>) {
        if !browser.survives_control() {
            // A request may have arrived just now, so idleness is checked again under the lock of
            // the state.
            if let Some(actions) = browser.apply_if_idle(Event::End(EndReason::Idle)) {
                self.run_actions(browser, actions).await;
            }
            return;
        }
        match self.try_end_unused(browser).await {
            Ok(Some(actions)) => {
                self.run_actions(browser, actions).await;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(browser = %browser.id(), %error, "cannot end idle browser yet");
                self.inner.shutdown.sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Returns the actions that follow if the browser ends, or another process has ended it.
    async fn try_end_unused(
        &self,
        browser: &Arc<BrowserHandle>,
    ) -> Result<Option<Actions>, StoreError> {
        let store = &self.inner.store;
        let _lock = browser.lock_end().await;
        if !browser.is_visible() || !browser.is_idle() {
            return Ok(None);
        }
        let now = Utc::now();
        let timeout = TimeDelta::from_std(browser.idle_timeout()).unwrap_or(TimeDelta::MAX);
        let id = browser.id();
        let event = if store
            .withdraw_unused_browser(id, now - timeout, now)
            .await?
        {
            Event::Withdrawn(EndReason::Idle)
        } else {
            match store.find_active_browser(id).await? {
                Some(found) => {
                    let idle = (now - found.used_at).max(TimeDelta::zero());
                    browser.set_idle(idle.to_std().unwrap_or_default());
                    return Ok(None);
                }
                None => self.event_of_ended(id, EndReason::Idle).await?,
            }
        };
        Ok(browser.apply(event).ok())
    }

    /// Ends a browser whose host is gone, or has lost it. Waits before the caller may try again.
    pub(super) async fn end_lost(&self, browser: &Arc<BrowserHandle>) {
        match self.end(browser, EndReason::Gone).await {
            Ok(()) | Err(BrowserError::NotFound) => {}
            Err(error) => {
                tracing::warn!(browser = %browser.id(), %error, "cannot end lost browser yet");
                self.inner.shutdown.sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Detaches a browser if another process has ended it.
    pub async fn check_ended(&self, id: &BrowserId) -> Result<(), BrowserError> {
        let Some(browser) = self.active().get(id).cloned() else {
            return Ok(());
        };
        let actions = {
            let _lock = browser.lock_end().await;
            if !browser.is_visible() || self.inner.store.find_active_browser(id).await?.is_some() {
                return Ok(());
            }
            let event = self.event_of_ended(id, EndReason::Deleted).await?;
            begin(&browser, event)?
        };
        self.run_actions(&browser, actions).await;
        Ok(())
    }
}
