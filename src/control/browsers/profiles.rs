//! Loads the profile of a browser when it starts, and saves browsers to profiles.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use http::StatusCode;
use tokio::time::{Instant, sleep, timeout};

use super::{BrowserError, Browsers, Inner, handle::BrowserHandle, state::EndReason};
use crate::{
    api::{
        ids::{BrowserId, ProfileId, ProjectId},
        profiles::{ProfileReceipt, ProfileRef, ProfileSelection},
    },
    backoff::Backoff,
    control::{
        fleet::{AgentError, BrowserRun, Lease},
        profiles::{
            ArchiveSourceError, BrowserSave, EndingSave, ProfileError, inspection::InspectError,
        },
        store::{ActiveBrowser, BrowserProfileRow, ControlProcessId, Fleet, StoreError},
    },
    request_scope::inherit,
};

/// The longest time until the archive of an ending browser is received, except during a shutdown.
/// The wait for other saves does not count. How long it may take to store it depends on its size.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The longest time that the save may take with all waits. Less than the time after which a browser
/// that is ending counts as left.
const END_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The longest time to find out which profile an ending browser is to save, if its host ends with
/// this process: the host runs until then, even if the browser is to save none. On other hosts it
/// is [`END_TIMEOUT`].
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
/// The first and the longest delay before another attempt.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The continuation of the end of a browser after its profile was to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterSave {
    /// This process ends the session at the host and closes the row.
    End,
    /// This process does nothing more, because the host still has the session. The process that
    /// leads continues the end when this one has stopped, or else when the browser counts as left.
    Leave,
}

/// Why an attempt to save an ending browser is the last one.
#[derive(Debug, thiserror::Error)]
enum EndingSaveError {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("the save did not complete in time")]
    Timeout,
    #[error("the host of the browser was lost")]
    HostLost,
    #[error("the browser was started again during the save")]
    Restarted,
    /// Another process ends the browser, or does so when this one has stopped.
    #[error("another process saves the browser")]
    Deferred,
}

impl EndingSaveError {
    /// Returns the reason for clients.
    fn public_reason(&self) -> String {
        match self {
            EndingSaveError::Profile(error) => error.public_reason(),
            error => error.to_string(),
        }
    }
}

/// Why an operation on the profile of a browser failed.
#[derive(Debug, thiserror::Error)]
pub enum BrowserProfileError {
    #[error("no profile with that id or name")]
    NotFound,
    /// Another browser has the exclusive right to save it, until it ends.
    #[error("the profile is in use")]
    InUse,
    #[error("the profile is being saved")]
    BeingSaved,
    #[error("the browser has a profile already")]
    HasProfile,
    #[error("a profile is being loaded into the browser")]
    Loading,
    #[error("cannot load the profile: {0}")]
    Load(ProfileError),
    #[error("cannot save the browser: {0}")]
    Save(ProfileError),
}

impl Browsers {
    /// Saves an active browser as a new version of a profile. Completes even if the client
    /// disconnects. If Chromium is closed for it, the caller deletes the browser.
    pub async fn save_profile(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        profile: &ProfileRef,
        kind: BrowserSave,
    ) -> Result<ProfileReceipt, BrowserError> {
        let browser = self.use_active(project, id_or_name).await?;
        let activity = browser.activity().begin();
        let profiles = self.inner.profiles.clone();
        let profile = profiles.find_or_create(project, profile).await;
        let profile = profile.map_err(BrowserProfileError::Save)?;
        let task = self.inner.shutdown.spawn(inherit(async move {
            let _activity = activity;
            let saving = profiles.save_browser(&profile.id, browser.id(), browser.lease(), kind);
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
    pub(super) async fn save_ending_profile(&self, browser: &Arc<BrowserHandle>) -> AfterSave {
        let (id, lease) = (browser.id(), browser.lease());
        let has_host = browser.end_reason() != Some(EndReason::Gone) || !lease.host().is_gone();
        self.save_before_end(id, has_host.then_some(lease)).await
    }

    /// Saves the profile of a browser that ends, of which `lease` is `None` if its host is gone:
    /// the failure is recorded then.
    pub(super) async fn save_before_end(&self, id: &BrowserId, lease: Option<&Lease>) -> AfterSave {
        let (store, started) = (&self.inner.store, Instant::now());
        let outlives = lease.is_some_and(outlives_process);
        let lookup_timeout = if outlives {
            END_TIMEOUT
        } else {
            LOOKUP_TIMEOUT
        };
        let found = self.find_saved_profile(id, lookup_timeout).await;
        // While the database failed, the leader may have taken this process for dead.
        let has_waited = started.elapsed() >= RETRY_DELAY.1;
        if outlives && has_waited && found.is_ok() && self.is_displaced(id).await {
            return AfterSave::Leave;
        }
        let profile = match found {
            Ok(None) => return AfterSave::End,
            Ok(Some(profile)) => profile,
            Err(error) => {
                tracing::error!(browser = %id, %error, "cannot find the profile to save");
                return match outlives {
                    true => AfterSave::Leave,
                    false => AfterSave::End,
                };
            }
        };
        let remaining = END_TIMEOUT.saturating_sub(started.elapsed());
        let saved = match lease {
            Some(lease) => self.save_in_time(&profile, id, lease, remaining).await,
            None => Err(EndingSaveError::HostLost),
        };
        match saved {
            Ok(()) => {}
            Err(EndingSaveError::Deferred) => {
                tracing::warn!(browser = %id, %profile, "the save is left to another process");
                return AfterSave::Leave;
            }
            Err(error) => {
                tracing::error!(browser = %id, %profile, %error, "profile not saved");
                let reason = error.public_reason();
                let recorded = store.record_save_failure(&profile, id, &reason, Utc::now());
                if let Err(error) = recorded.await {
                    tracing::error!(%profile, %error, "cannot record that a profile was not saved");
                }
            }
        }
        // Otherwise the right ends when the row is closed.
        if let Err(error) = store.release_write_lock(id).await {
            tracing::warn!(browser = %id, %error, "cannot release the profile of a browser yet");
        }
        AfterSave::End
    }

    /// Finds the profile that an ending browser is to save, within `timeout` or the deadline of a
    /// shutdown.
    async fn find_saved_profile(
        &self,
        id: &BrowserId,
        timeout: Duration,
    ) -> Result<Option<ProfileId>, StoreError> {
        let Inner {
            store, shutdown, ..
        } = &*self.inner;
        let deadline = self.inner.hosts.stop_deadlines().replays;
        let timeout = shutdown.timeout_or_deadline(timeout, deadline);
        let mut timeout = std::pin::pin!(timeout);
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        loop {
            let error = match store.saved_profile_of(id).await {
                Ok(profile) => return Ok(profile),
                Err(error) => error,
            };
            tokio::select! {
                () = sleep(delays.next_delay()) => {}
                () = &mut timeout => return Err(error),
            }
        }
    }

    /// Saves the profile of an ending browser, within `timeout` or the deadline of a shutdown.
    async fn save_in_time(
        &self,
        profile: &ProfileId,
        id: &BrowserId,
        lease: &Lease,
        timeout: Duration,
    ) -> Result<(), EndingSaveError> {
        let deadline = self.inner.hosts.stop_deadlines().replays;
        let shutdown = &self.inner.shutdown;
        tokio::select! {
            saved = self.save_with_retries(profile, id, lease) => saved,
            () = shutdown.timeout_or_deadline(timeout, deadline) => {
                match shutdown.is_requested() && outlives_process(lease) {
                    true => Err(EndingSaveError::Deferred),
                    false => Err(EndingSaveError::Timeout),
                }
            }
        }
    }

    /// Saves the profile of an ending browser. Repeats that within [`SAVE_TIMEOUT`] after an error
    /// of this server or of the network, because nothing else has what is to be saved. The browser
    /// itself is archived only if neither its agent nor Chromium has been started again since the
    /// beginning: what a killed one has left on the disk is partly older.
    async fn save_with_retries(
        &self,
        profile: &ProfileId,
        id: &BrowserId,
        lease: &Lease,
    ) -> Result<(), EndingSaveError> {
        let profiles = &self.inner.profiles;
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        let mut save = profiles.save_ending_browser(profile, id, lease);
        let (mut remaining, mut run) = (SAVE_TIMEOUT, None);
        let mut permit = None;
        loop {
            if permit.is_none() {
                permit = profiles.ending_save_permit().await;
            }
            let started = Instant::now();
            let is_stored = save.has_archive();
            let attempt = attempt(&mut save, lease, &mut run);
            let error = match timeout(remaining, attempt).await {
                Ok(Ok(())) if is_stored => return Ok(()),
                Ok(Ok(())) => {
                    remaining = save.storing_timeout();
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(EndingSaveError::Timeout),
            };
            permit = None;
            if outlives_process(lease) && self.is_displaced(id).await {
                return Err(EndingSaveError::Deferred);
            }
            if lease.host().is_gone() && !save.has_archive() {
                return Err(EndingSaveError::HostLost);
            }
            let delay = delays.next_delay();
            // The wait for another save ends with it.
            if !matches!(error, EndingSaveError::Profile(ProfileError::InUse)) {
                remaining = remaining.saturating_sub(started.elapsed() + delay);
            }
            if is_lasting(&error) || remaining.is_zero() {
                return Err(error);
            }
            tracing::info!(browser = %id, %error, "cannot save the profile of a browser yet");
            sleep(delay).await;
        }
    }

    /// Returns whether another process ends a browser that this one was ending, according to its
    /// row.
    async fn is_displaced(&self, id: &BrowserId) -> bool {
        matches!(self.inner.store.is_withdrawn_here(id).await, Ok(false))
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
        let after = self.save_before_end(id, lease.as_ref()).await;
        if let Some(lease) = &lease {
            inner.hosts.forget(lease, id);
        }
        if after == AfterSave::Leave {
            return Ok(());
        }
        let reason = EndReason::Gone;
        inner.store.close_browser(id, reason, Utc::now()).await?;
        tracing::info!(browser = %id, "finished the work of a process that died");
        inner.hosts.release_of(id).await
    }
}

/// Returns whether the session of a lease goes on when this process has stopped.
fn outlives_process(lease: &Lease) -> bool {
    lease.host().fleet() == Fleet::Registered
}

/// Attempts the next step of a save: receives the archive, or stores it.
async fn attempt(
    save: &mut EndingSave<'_>,
    lease: &Lease,
    run: &mut Option<BrowserRun>,
) -> Result<(), EndingSaveError> {
    if save.has_archive() {
        save.store().await?;
        return Ok(());
    }
    check_run(lease, run).await?;
    save.receive().await?;
    // The agent may have been started again before the request reached it.
    match check_run(lease, run).await {
        Err(EndingSaveError::Restarted) => Err(EndingSaveError::Restarted),
        _ => Ok(()),
    }
}

/// Checks that the agent and Chromium are still those of a run, or finds out which one that is.
async fn check_run(lease: &Lease, run: &mut Option<BrowserRun>) -> Result<(), EndingSaveError> {
    let current = lease.browser_run().await.map_err(agent_error)?;
    match current.is_same(*run.get_or_insert(current)) {
        true => Ok(()),
        false => Err(EndingSaveError::Restarted),
    }
}

fn agent_error(error: AgentError) -> EndingSaveError {
    ProfileError::from(ArchiveSourceError::from(error)).into()
}

/// Returns whether another attempt would fail or save something else, too.
fn is_lasting(error: &EndingSaveError) -> bool {
    let EndingSaveError::Profile(error) = error else {
        return true;
    };
    match error {
        // Something else archives the browser.
        ProfileError::Source(ArchiveSourceError::Agent(AgentError::Rejected {
            status, ..
        })) => *status != StatusCode::CONFLICT,
        // The network, or the agent, may work again soon. Chromium stays closed until then.
        ProfileError::Source(ArchiveSourceError::Agent(_)) => false,
        ProfileError::Inspect(InspectError::Io(_))
        | ProfileError::InUse
        | ProfileError::Superseded
        | ProfileError::Corrupt
        | ProfileError::Busy(_)
        | ProfileError::Store(_)
        | ProfileError::Blob(_)
        | ProfileError::Io(_)
        | ProfileError::Task(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::api::ErrorBody;

    #[test]
    fn only_errors_of_this_server_and_of_the_network_are_not_lasting() {
        let invalid = InspectError::Invalid("is empty".to_owned());
        let io = || io::Error::other("i/o error");
        let agent = |error| ProfileError::from(ArchiveSourceError::Agent(error));
        let rejected = |status| {
            let error = Box::new(ErrorBody {
                code: "unavailable".to_owned(),
                message: "the agent is stopping".to_owned(),
                details: Vec::new(),
                inner_error: None,
            });
            agent(AgentError::Rejected { status, error })
        };
        let timeout = Duration::from_secs(1);
        for (error, expected) in [
            (ProfileError::NotFound, true),
            (ProfileError::TooLarge(1), true),
            (ProfileError::Timeout(timeout), true),
            (ProfileError::Inspect(invalid), true),
            (ProfileError::Inspect(InspectError::Io(io())), false),
            (ProfileError::Io(io()), false),
            (ProfileError::InUse, false),
            (ProfileError::Superseded, false),
            (ProfileError::Corrupt, false),
            (rejected(StatusCode::CONFLICT), false),
            (rejected(StatusCode::SERVICE_UNAVAILABLE), true),
            (agent(AgentError::Timeout(timeout)), false),
            (agent(AgentError::Unreachable("closed".to_owned())), false),
            (
                agent(AgentError::InvalidResponse("short".to_owned())),
                false,
            ),
        ] {
            let error = EndingSaveError::from(error);
            assert_eq!(is_lasting(&error), expected, "{error}");
        }
        assert!(is_lasting(&EndingSaveError::Restarted));
    }
}
