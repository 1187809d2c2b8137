//! Hands over browsers of pools to clients, and takes them back.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    BrowserError, BrowserProfileError, Browsers,
    handle::BrowserHandle,
    lifecycle::begin,
    profiles::AfterSave,
    state::{Action, Actions, EndReason, Event, State},
};
use crate::{
    api::ids::{BrowserId, PoolId, ProjectId},
    control::{
        fleet::{AgentError, HostError, Lease},
        hosts::CheckError,
        store::{BrowserProfileRow, BrowserRow},
    },
    request_scope::inherit,
};

/// Why a browser of a pool was not handed over. Its row is deleted, and its host recycled.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// Another browser of the pool may be usable.
    #[error("the browser is not usable: {0}")]
    Unusable(#[from] CheckError),
    #[error("the agent rejected the start URL: {0}")]
    StartUrl(AgentError),
    #[error("the pool is deleted")]
    PoolDeleted,
    #[error(transparent)]
    Browser(#[from] BrowserError),
}

/// A browser of a pool that is about to be handed over.
pub struct PoolLease {
    pub row: BrowserRow,
    pub lease: Lease,
    /// Whether its profile is to be loaded. That of its pool is loaded already.
    pub has_own_profile: bool,
    /// Whether the profile of its pool has left user data in it.
    pub has_user_data: bool,
    /// The page to open in it. That of its pool is open already.
    pub start_url: Option<String>,
}

impl Browsers {
    /// Makes a leased browser that is being created visible to its client, unless the check of it
    /// has failed. Loads its own profile and opens its own start page first.
    pub async fn hand_over(
        &self,
        leased: PoolLease,
        checked: Result<(), CheckError>,
        abandoned: &CancellationToken,
    ) -> Result<BrowserRow, HandOverError> {
        let PoolLease {
            row,
            lease,
            has_own_profile,
            has_user_data,
            start_url,
        } = leased;
        let own_profile = row.profile.clone().filter(|_| has_own_profile);
        let browser = Arc::new(BrowserHandle::new(
            row.id.clone(),
            row.project_id.clone(),
            lease,
            row.pool.as_ref().map(|pool| pool.id.clone()),
            Duration::from_secs(row.timeout_seconds.into()),
        ));
        let (event, error) = tokio::select! {
            prepared = self.prepare_pooled(
                browser.lease(),
                checked,
                own_profile.map(|profile| (profile, has_user_data)),
                start_url.as_deref(),
            ) => match prepared {
                Ok(()) => {
                    self.publish(&browser).await.map_err(publish_error)?;
                    self.end_if_undeliverable(&browser, abandoned).await?;
                    return Ok(BrowserRow { state: State::Active, ..row });
                }
                Err(error) => (Event::StartFailed, error),
            },
            () = abandoned.cancelled() => (Event::Abandoned, BrowserError::Abandoned.into()),
            () = self.inner.shutdown.requested() => (Event::Abandoned, BrowserError::ShuttingDown.into()),
        };
        let actions = begin(&browser, event)?;
        self.run_until_release(&browser, actions).await;
        Err(error)
    }

    /// Runs actions. Those from the release of the host on, which may respond late, run in the
    /// background.
    async fn run_until_release(&self, browser: &Arc<BrowserHandle>, actions: Actions) {
        let is_release = |action: &Action| *action == Action::ReleaseHost;
        let release = actions.iter().position(is_release);
        let (before, rest) = actions.split_at(release.unwrap_or(actions.len()));
        self.run_actions(browser, before).await;
        let (this, browser) = (self.clone(), browser.clone());
        self.inner.shutdown.spawn(inherit(async move {
            this.run_actions(&browser, rest).await;
        }));
    }

    /// Ends a browser that was published after its pool was deleted with all browsers, or for which
    /// [`Self::end_if_obsolete`] has a reason.
    async fn end_if_undeliverable(
        &self,
        browser: &Arc<BrowserHandle>,
        abandoned: &CancellationToken,
    ) -> Result<(), HandOverError> {
        let Some(pool) = browser.pool() else {
            return Ok(self.end_if_obsolete(browser, abandoned).await?);
        };
        let (obsolete, found) = tokio::join!(
            self.end_if_obsolete(browser, abandoned),
            self.inner.store.find_any_pool(pool),
        );
        obsolete?;
        let error = match found {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => HandOverError::PoolDeleted,
            Err(error) => BrowserError::from(error).into(),
        };
        self.end_undelivered(browser, EndReason::Deleted).await;
        Err(error)
    }

    /// Makes a browser as its client has requested it. `own_profile` is with whether it has user
    /// data.
    async fn prepare_pooled(
        &self,
        lease: &Lease,
        checked: Result<(), CheckError>,
        own_profile: Option<(BrowserProfileRow, bool)>,
        start_url: Option<&str>,
    ) -> Result<(), HandOverError> {
        checked?;
        if let Some((profile, has_user_data)) = own_profile {
            let loaded = self.load_profile(lease, &profile.id).await?;
            if loaded.is_none() && has_user_data {
                self.clear(lease).await?;
            }
        }
        if let Some(url) = start_url {
            let opened = lease.set_start_url(url).await;
            opened.map_err(HandOverError::StartUrl)?;
        }
        Ok(())
    }

    /// Replaces the user data of a browser by none, and waits until it responds.
    async fn clear(&self, lease: &Lease) -> Result<(), BrowserError> {
        let cleared = self.inner.profiles.clear(lease).await;
        cleared.map_err(BrowserProfileError::Load)?;
        let ready = lease.wait_ready(self.inner.hosts.start_timeout()).await;
        ready.map_err(BrowserError::NotReady)
    }

    /// Deletes the row of a browser that is being created and has no host. Retries in the
    /// background if the database fails.
    pub async fn discard_row(&self, id: &BrowserId) {
        self.record_end(id.clone(), Action::DeleteRow).await;
    }

    /// Ends a browser that was leased from a pool. Returns when its host refuses all requests for
    /// it; the host is recycled in the background, or replaced without `reuse`. Completes even if
    /// the client disconnects.
    pub async fn release(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        pool: &PoolId,
        reuse: bool,
    ) -> Result<(), BrowserError> {
        let browser = self.find_active(project, id_or_name).await?;
        if browser.pool() != Some(pool) {
            return Err(BrowserError::NotLeased);
        }
        if !reuse {
            // In the database, so that it survives this process.
            let (host, hosts) = (browser.lease().host(), &self.inner.hosts);
            hosts.retire_after_session(host.id(), browser.id()).await?;
        }
        let this = self.clone();
        let task = self
            .inner
            .shutdown
            .spawn(inherit(async move { this.run_release(&browser).await }));
        task.await?
    }

    async fn run_release(&self, browser: &Arc<BrowserHandle>) -> Result<(), BrowserError> {
        let (event, actions) = self.begin_end(browser, EndReason::Deleted).await?;
        let release = actions
            .iter()
            .position(|action| *action == Action::ReleaseHost);
        let (before, rest) = actions.split_at(release.unwrap_or(actions.len()));
        let after = self.run_actions(browser, before).await;
        if event == Event::EndedElsewhere {
            return Err(BrowserError::NotFound);
        }
        if after == AfterSave::Leave {
            return Ok(());
        }
        if let Err(error) = browser.lease().refuse().await {
            // It is unreachable for clients, too.
            tracing::info!(browser = %browser.id(), %error, "the host does not end a session yet");
        }
        let (this, browser) = (self.clone(), browser.clone());
        self.inner.shutdown.spawn(inherit(async move {
            this.run_actions(&browser, rest).await;
        }));
        Ok(())
    }
}

/// Converts the error of a browser that was not published. Without its row, another browser of the
/// pool may be usable.
fn publish_error(error: BrowserError) -> HandOverError {
    match error {
        BrowserError::NotFound => HandOverError::Unusable(HostError::Gone.into()),
        error => error.into(),
    }
}
