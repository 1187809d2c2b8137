//! Starts a browser for a pool, and ends one that no client has.

use std::time::Duration;

use chrono::Utc;
use tokio::time::timeout;

use super::{Pools, config::PoolConfig};
use crate::{
    api::{ids::BrowserId, viewport::Viewport},
    control::{
        browsers::BrowserError,
        fleet::{AgentError, Lease},
        hosts::{AfterSession, HostLeaseError},
        store::{Fleet, Hint, PoolBrowserRow, PoolRow, StoreError},
    },
};

/// The longest time from the start of its host until a browser can be leased. A large profile takes
/// some minutes.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(9 * 60);

/// Why a browser was not started for a pool. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// Not the fault of the pool: all hosts are in use.
    #[error("no host is free")]
    NoHost,
    #[error(transparent)]
    Lease(HostLeaseError),
    #[error(transparent)]
    SetUp(#[from] AgentError),
    #[error("cannot load the profile: {0}")]
    Profile(BrowserError),
    #[error("the browser was not set up within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl From<HostLeaseError> for FillError {
    fn from(error: HostLeaseError) -> Self {
        match error {
            HostLeaseError::LimitReached(_) | HostLeaseError::NoneReady => FillError::NoHost,
            other => FillError::Lease(other),
        }
    }
}

impl Pools {
    /// Records that browsers are about to be started for a pool. [`Self::fill`] starts one.
    pub(super) async fn begin_fills(
        &self,
        pool: &PoolRow,
        count: usize,
    ) -> Result<Vec<BrowserId>, StoreError> {
        let ids: Vec<BrowserId> = (0..count).map(|_| BrowserId::generate()).collect();
        let store = &self.inner.store;
        let added = store.add_pool_browsers(&ids, pool, Utc::now()).await;
        if let Err(error) = added {
            // A statement that fails may have had its effect. What is left counts until it is
            // overdue.
            for id in &ids {
                if let Err(error) = store.remove_pool_browser(id).await {
                    tracing::warn!(browser = %id, %error, "cannot remove a browser that was not started");
                }
            }
            return Err(error);
        }
        Ok(ids)
    }

    /// Starts a browser for a pool and makes it available.
    pub(super) async fn fill(&self, id: &BrowserId, pool: &PoolRow) -> Result<(), FillError> {
        let store = &self.inner.store;
        let filled = self.fill_as(id, pool).await;
        match &filled {
            Ok(()) => {
                self.inner.queue.serve(&pool.id);
                store.hint(Hint::Pool(pool.id.clone()));
            }
            Err(_) => {
                store.remove_pool_browser(id).await?;
            }
        }
        filled
    }

    async fn fill_as(&self, id: &BrowserId, pool: &PoolRow) -> Result<(), FillError> {
        let hosts = &self.inner.hosts;
        let config = &pool.settings.config;
        let launch = config.launch_options();
        let lease = hosts.lease(id, launch, Some(&pool.id)).await?;
        let set_up = tokio::select! {
            set_up = timeout(SET_UP_TIMEOUT, self.set_up(&lease, config)) => {
                set_up.unwrap_or(Err(FillError::Timeout(SET_UP_TIMEOUT)))
            }
            () = self.inner.shutdown.requested() => Err(FillError::ShuttingDown),
        };
        let made_idle = match set_up {
            Ok(profile_version) => self.make_idle(id, &lease, profile_version).await,
            Err(error) => Err(error),
        };
        if made_idle.is_err() {
            let after = match hosts.fleet() {
                Fleet::Local => AfterSession::Retire,
                Fleet::Registered => AfterSession::Return,
            };
            hosts.release(&lease, id, after).await;
        }
        made_idle
    }

    /// Makes a browser as its pool demands it. Returns the version of the profile, 0 for none.
    async fn set_up(&self, lease: &Lease, config: &PoolConfig) -> Result<u64, FillError> {
        let hosts = &self.inner.hosts;
        hosts.wait_ready(lease).await?;
        let loaded = match &config.profile {
            Some(profile) => {
                let loading = self.inner.browsers.load_profile(lease, profile);
                loading.await.map_err(FillError::Profile)?
            }
            None => None,
        };
        let (launch, start_url) = (config.launch_options(), config.start_url.as_deref());
        hosts.set_up(lease, &launch, start_url).await?;
        Ok(loaded.unwrap_or_default())
    }

    async fn make_idle(
        &self,
        id: &BrowserId,
        lease: &Lease,
        profile_version: u64,
    ) -> Result<(), FillError> {
        let host = (lease.host().id(), lease.generation());
        let store = &self.inner.store;
        let is_idle = store.set_pool_browser_idle(id, host, profile_version, Utc::now());
        match is_idle.await? {
            true => Ok(()),
            // Another process took this one for dead, and ends the browser.
            false => Err(FillError::ShuttingDown),
        }
    }

    /// Ends browsers that are discarded, in the background, a bounded number at once.
    pub(super) fn end_discarded(&self, browsers: Vec<PoolBrowserRow>, retires_host: bool) {
        for browser in browsers {
            // It waits for its turn, or ends already.
            let Some(ending) = self.inner.discards.begin(&browser.id) else {
                continue;
            };
            let this = self.clone();
            self.inner.shutdown.spawn(async move {
                let _permit = tokio::select! {
                    permit = this.inner.discards.permit() => permit,
                    // Another process, or the next start, ends it.
                    () = this.inner.shutdown.requested() => return,
                };
                if let Err(error) = this.end_one(&browser, retires_host).await {
                    // The reconciler tries again.
                    tracing::error!(browser = %browser.id, %error, "cannot end an idle browser of a pool yet");
                }
                drop(ending);
                this.inner.changed.notify_one();
            });
        }
    }

    async fn end_one(
        &self,
        browser: &PoolBrowserRow,
        retires_host: bool,
    ) -> Result<(), StoreError> {
        let hosts = &self.inner.hosts;
        match &browser.host {
            Some((host, generation)) => {
                let lease = hosts.resume(&browser.id, host, *generation, Viewport::default());
                if let Some(lease) = lease.await? {
                    let after = match retires_host {
                        true => AfterSession::Retire,
                        false => AfterSession::Return,
                    };
                    hosts.release(&lease, &browser.id, after).await;
                }
            }
            // Its process has died while it was started.
            None => hosts.release_of(&browser.id).await?,
        }
        self.inner.store.remove_pool_browser(&browser.id).await?;
        Ok(())
    }
}
