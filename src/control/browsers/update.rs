//! Changes active browsers.

use std::collections::BTreeMap;

use super::{
    BrowserError, Browsers,
    handle::{BrowserHandle, MAX_WAITING_UPDATES},
};
use crate::{
    api::{ids::ProjectId, profiles::ProfileSelection, viewport::ViewportRequest},
    control::{
        fleet::AgentError,
        store::{BrowserRow, Change},
    },
    request_scope::inherit,
};

/// The changes to make to an active browser. `None` leaves a property as it is.
#[derive(Debug, Clone, Default)]
pub struct BrowserChange {
    pub name: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub viewport: Option<ViewportRequest>,
    pub start_url: Option<String>,
    /// The profile to load, if the browser has none.
    pub profile: Option<ProfileSelection>,
}

impl Browsers {
    /// Changes an active browser, first at its host and then in its row. Dropping the future while
    /// it waits for earlier updates abandons it; once started, it completes.
    pub async fn update(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        change: BrowserChange,
    ) -> Result<BrowserRow, BrowserError> {
        let browser = self.use_active(project, id_or_name).await?;
        let activity = browser.activity().begin();
        let update_guard = browser.lock_updates().await;
        let update_guard =
            update_guard.ok_or(BrowserError::UpdateQueueFull(MAX_WAITING_UPDATES))?;
        if !browser.is_visible() {
            return Err(BrowserError::NotFound);
        }
        let this = self.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            let (_activity, _update_guard) = (activity, update_guard);
            this.run_update(&browser, change).await
        }));
        task.await?
    }

    async fn run_update(
        &self,
        browser: &BrowserHandle,
        change: BrowserChange,
    ) -> Result<BrowserRow, BrowserError> {
        let store = &self.inner.store;
        // Rejects a name in use before the host is changed. The row's constraint decides races.
        if let Some(name) = &change.name {
            let other = store.find_live_name(browser.project(), name).await?;
            if other.is_some_and(|other| other != *browser.id()) {
                return Err(BrowserError::NameTaken);
            }
        }
        let profile = self
            .find_profile(browser.project(), change.profile.as_ref())
            .await?;
        let mut applied = Change::default();
        if let Some(profile) = profile {
            self.attach_profile(browser, profile).await?;
        }
        let at_host = change_host(browser, change.viewport, change.start_url, &mut applied).await;
        let outcome = match at_host {
            Ok(()) => {
                let complete = Change {
                    name: change.name,
                    tags: change.tags,
                    ..applied.clone()
                };
                let row = store.change_browser(browser.id(), complete).await;
                row.map_err(BrowserError::from)
                    .and_then(|row| row.ok_or(BrowserError::NotFound))
            }
            Err(error) => Err(error.into()),
        };
        let is_partial = matches!(
            outcome,
            Err(BrowserError::Agent(_) | BrowserError::NameTaken)
        ) && applied != Change::default();
        if is_partial {
            // The row describes the browser as it is now, although the request failed.
            store.change_browser(browser.id(), applied).await?;
        }
        outcome
    }
}

/// Changes the host and stores each completed step in `applied`, also when a later step fails.
async fn change_host(
    browser: &BrowserHandle,
    viewport: Option<ViewportRequest>,
    start_url: Option<String>,
    applied: &mut Change,
) -> Result<(), AgentError> {
    let lease = browser.lease();
    if let Some(requested) = viewport {
        let viewport = requested.resolve(lease.viewport().refresh_rate);
        lease.set_viewport(viewport).await?;
        applied.viewport = Some(viewport);
    }
    if let Some(url) = start_url {
        lease.set_start_url(&url).await?;
        applied.start_url = Some(url);
    }
    Ok(())
}
