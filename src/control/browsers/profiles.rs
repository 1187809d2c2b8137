//! Loads the profile of a browser when it starts, and saves browsers to profiles.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use http::StatusCode;
use tokio::time::sleep;

use super::{BrowserError, Browsers, handle::BrowserHandle, state::EndReason};
use crate::{
    api::{
        ids::{BrowserId, ProfileId, ProjectId},
        profiles::{ProfileReceipt, ProfileRef, ProfileSelection},
    },
    backoff::Backoff,
    control::{
        fleet::{AgentError, Lease},
        profiles::{ArchiveSourceError, ProfileError},
        store::{ActiveBrowser, BrowserProfileRow, ControlProcessId, StoreError},
    },
    request_scope::inherit,
};

/// The longest time that the save of an ending browser may take, except during a shutdown. Less
/// than the time after which a browser that is ending counts as left.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The first and the longest delay before another attempt, while something else archives the
/// browser or its profile is saved.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The most attempts to close a browser in order. Each restarts it.
const MAX_ATTEMPTS: u32 = 3;

/// Why an operation on the profile of a browser failed.
#[derive(Debug, thiserror::Error)]
pub enum BrowserProfileError {
    #[error("no profile with that id or name")]
    NotFound,
    /// Another browser, or something else, has the exclusive right to save it.
    #[error("the profile is in use")]
    InUse,
    #[error("the browser has a profile already")]
    HasProfile,
    #[error("cannot load the profile: {0}")]
    Load(ProfileError),
    #[error("cannot save the browser: {0}")]
    Save(ProfileError),
}

impl Browsers {
    /// Saves an active browser, which goes on, as a new version of a profile. Completes even if
    /// the client disconnects.
    pub async fn save_profile(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        profile: &ProfileRef,
    ) -> Result<ProfileReceipt, BrowserError> {
        let browser = self.use_active(project, id_or_name).await?;
        let activity = browser.activity().begin();
        let profiles = self.inner.profiles.clone();
        let profile = profiles.find_or_create(project, profile).await;
        let profile = profile.map_err(BrowserProfileError::Save)?;
        let task = self.inner.shutdown.spawn(inherit(async move {
            let _activity = activity;
            let saving = profiles.save_browser(&profile.id, browser.id(), browser.lease());
            saving.await
        }));
        Ok(task.await?.map_err(BrowserProfileError::Save)?)
    }

    /// Finds the profile that a new browser is to start with.
    pub async fn find_profile(
        &self,
        project: &ProjectId,
        selection: Option<&ProfileSelection>,
    ) -> Result<Option<BrowserProfileRow>, BrowserError> {
        let Some(selection) = selection else {
            return Ok(None);
        };
        match self.inner.profiles.find(project, &selection.profile).await {
            Ok(row) => Ok(Some(BrowserProfileRow {
                id: row.id,
                name: row.name,
                save_changes: selection.save_changes,
            })),
            Err(ProfileError::NotFound) => Err(BrowserProfileError::NotFound.into()),
            Err(error) => Err(BrowserProfileError::Load(error).into()),
        }
    }

    /// Replaces the user data of a new browser by that of a profile, and waits until it responds.
    /// Returns the version. `None` if the profile has none: the browser stays as it is.
    pub async fn load_profile(
        &self,
        lease: &Lease,
        profile: &ProfileId,
    ) -> Result<Option<u64>, BrowserError> {
        let loaded = self.inner.profiles.load(lease, profile).await;
        let loaded = loaded.map_err(BrowserProfileError::Load)?;
        if loaded.is_some() {
            let ready = lease.wait_ready(self.inner.hosts.start_timeout());
            ready.await.map_err(BrowserError::NotReady)?;
        }
        Ok(loaded.map(|version| version.number))
    }

    /// Saves the profile of an ending browser, if it is to be saved, and ends its exclusive right
    /// to do so. A failure is recorded with the profile, whose versions are as before.
    pub(super) async fn save_ending_profile(&self, browser: &Arc<BrowserHandle>) {
        let (id, lease) = (browser.id(), browser.lease());
        let has_host = browser.end_reason() != Some(EndReason::Gone) || !lease.host().is_gone();
        self.save_before_end(id, has_host.then_some(lease)).await;
    }

    /// Saves the profile of a browser that ends, of which `lease` is `None` if its host is gone.
    async fn save_before_end(&self, id: &BrowserId, lease: Option<&Lease>) {
        let store = &self.inner.store;
        let profile = match store.saved_profile_of(id).await {
            Ok(None) => return,
            Ok(Some(profile)) => profile,
            Err(error) => {
                tracing::error!(browser = %id, %error, "cannot find the profile to save");
                return;
            }
        };
        let saved = match lease {
            Some(lease) => self.save_in_time(&profile, id, lease).await,
            None => Err("the host of the browser was lost".to_owned()),
        };
        if let Err(reason) = saved {
            tracing::error!(browser = %id, %profile, reason, "profile not saved");
            let recorded = store.record_save_failure(&profile, &reason, Utc::now());
            if let Err(error) = recorded.await {
                tracing::error!(%profile, %error, "cannot record that a profile was not saved");
            }
        }
        // Otherwise the right ends when the row is closed.
        if let Err(error) = store.release_write_lock(id).await {
            tracing::warn!(browser = %id, %error, "cannot release the profile of a browser yet");
        }
    }

    /// Saves the profile of an ending browser, within [`SAVE_TIMEOUT`] or the deadline of a
    /// shutdown. Returns a reason for clients if that fails.
    async fn save_in_time(
        &self,
        profile: &ProfileId,
        id: &BrowserId,
        lease: &Lease,
    ) -> Result<(), String> {
        let deadline = self.inner.hosts.stop_deadlines().replays;
        let shutdown = &self.inner.shutdown;
        tokio::select! {
            saved = self.save_with_retries(profile, id, lease) => match saved {
                Ok(_) => Ok(()),
                Err(error) => {
                    tracing::warn!(browser = %id, %error, "cannot save the profile of a browser");
                    Err(error.public_reason())
                }
            },
            () = shutdown.timeout_or_deadline(SAVE_TIMEOUT, deadline) => {
                Err("the save did not complete in time".to_owned())
            }
        }
    }

    async fn save_with_retries(
        &self,
        profile: &ProfileId,
        id: &BrowserId,
        lease: &Lease,
    ) -> Result<ProfileReceipt, ProfileError> {
        let profiles = &self.inner.profiles;
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        let mut attempts = 1;
        loop {
            let error = match profiles.save_ending_browser(profile, id, lease).await {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            match agent_status(&error) {
                // A save that began before is in progress.
                Some(StatusCode::CONFLICT) => {}
                _ if matches!(error, ProfileError::InUse | ProfileError::BeingRemoved) => {}
                // Chromium has crashed, or did not close in order. It is being started again.
                Some(StatusCode::SERVICE_UNAVAILABLE) if attempts < MAX_ATTEMPTS => attempts += 1,
                _ => return Err(error),
            }
            tracing::info!(browser = %id, %error, "cannot save the profile of a browser yet");
            sleep(delays.next_delay()).await;
        }
    }

    /// Continues the end of a browser whose process has died, which was to save its profile.
    /// Returns false if another process does.
    pub(super) async fn adopt_ending_save(
        &self,
        id: &BrowserId,
        process: Option<ControlProcessId>,
    ) -> Result<bool, StoreError> {
        let store = &self.inner.store;
        if !self.inner.adopted.lock().insert(id.clone()) {
            return Ok(false);
        }
        let adopted = store.adopt_ending_browser(id, process).await;
        if !matches!(adopted, Ok(true)) {
            self.inner.adopted.lock().remove(id);
            return adopted;
        }
        let (this, id) = (self.clone(), id.clone());
        self.inner.shutdown.spawn(async move {
            if let Err(error) = this.finish_ending_save(&id).await {
                tracing::error!(browser = %id, %error, "cannot finish the end of a browser yet");
            }
            this.inner.adopted.lock().remove(&id);
        });
        Ok(true)
    }

    async fn finish_ending_save(&self, id: &BrowserId) -> Result<(), StoreError> {
        let Self { inner } = self;
        let lease = match inner.store.find_ending_browser(id).await? {
            Some(ActiveBrowser {
                row,
                host: Some((host, generation)),
                ..
            }) => {
                let resumed = inner.hosts.resume(id, &host, generation, row.viewport);
                resumed.await?
            }
            _ => None,
        };
        self.save_before_end(id, lease.as_ref()).await;
        if let Some(lease) = &lease {
            inner.hosts.forget(lease, id);
        }
        let reason = EndReason::Gone;
        inner.store.close_browser(id, reason, Utc::now()).await?;
        tracing::info!(browser = %id, "finished the work of a process that died");
        inner.hosts.release_of(id).await
    }
}

/// Returns the status with which the agent has refused to archive a browser.
fn agent_status(error: &ProfileError) -> Option<StatusCode> {
    match error {
        ProfileError::Source(ArchiveSourceError::Agent(AgentError::Rejected {
            status, ..
        })) => Some(*status),
        _ => None,
    }
}
