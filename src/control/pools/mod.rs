//! The pool service: browsers that are started ahead of time and leased to clients.
//!
//! - [`config`]: what the browsers of a pool are started with.
//! - [`acquire`]: leases a browser to a client, which may have to wait; [`hand_over`]: checks it
//!   first.
//! - [`queue`], [`dispatcher`]: the clients of this process that wait, and the task that serves
//!   them.
//! - [`reconciler`]: the task that gives each pool as many browsers as it is to have.
//! - [`plan`]: decides what has to happen to the hosts of a pool; [`fill_rate`]: how fast,
//!   [`start_delay`]: how soon after a failure.
//! - [`fill`]: starts a browser for a pool, and ends one that no client has; [`discards`]: how many
//!   at once.
//!
//! ```text
//!   reconciler ──▶ fill: lease a host for the pool, set it up ──▶ idle
//!       ▲                                                          │ acquire
//!       │                                                          ▼
//!       └── the host is recycled for the pool ◀── release ◀── a client's browser
//! ```
//!
//! An idle browser is a session of a leased host that no client knows. A lease names that session
//! anew and makes it a browser like any other, which ends like any other. The rows are the truth:
//! any process leases any browser, and one of them runs the reconciler.

use std::{collections::HashMap, sync::Arc};

use chrono::Utc;
use futures::{StreamExt, stream};
use tokio::sync::Notify;

use super::{
    browsers::{BrowserError, BrowserProfileError, Browsers, HandOverError},
    hosts::Hosts,
    store::{
        DeletePoolOutcome, Hint, PoolCounts, PoolLeaseError, PoolListing, PoolRow, PoolSettings,
        SavePoolError, StateFilter, Store, StoreError, UniqueConstraint,
    },
};
use crate::{
    api::{
        ids::{BrowserId, PoolId, ProfileId, ProjectId},
        profiles::{ProfileRef, ProfileSelection},
        viewport::ViewportRequest,
    },
    request_scope::inherit,
    shutdown::Shutdown,
};

mod acquire;
pub mod config;
mod discards;
mod dispatcher;
mod fill;
mod fill_rate;
mod hand_over;
mod plan;
mod queue;
mod reconciler;
mod start_delay;

pub use acquire::NewLease;
use discards::Discards;
use queue::WaitQueue;

/// The most browsers that are ended at once when their pool is deleted.
const MAX_CONCURRENT_ENDS: usize = 16;

/// Why an operation on a pool failed.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("no pool with that id or name")]
    NotFound,
    #[error("no browser with that id")]
    BrowserNotFound,
    #[error("another pool of the project has that name")]
    PoolNameTaken,
    #[error("another active browser of the project has that name")]
    NameTaken,
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("the browser limit of the project is reached ({0})")]
    ProjectLimitReached(u32),
    #[error("clients have {0} browsers of the pool")]
    Leased(u64),
    #[error("the browser is not leased from the pool")]
    NotLeased,
    #[error("the client cancelled the request")]
    Abandoned,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    HandOver(HandOverError),
    #[error(transparent)]
    Browser(BrowserError),
    #[error(transparent)]
    Store(StoreError),
    #[error("background task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<StoreError> for PoolError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::PoolName) => PoolError::PoolNameTaken,
            StoreError::UniqueViolation(
                UniqueConstraint::BrowserLiveName | UniqueConstraint::BrowserIdempotencyKey,
            ) => BrowserError::from(error).into(),
            other => PoolError::Store(other),
        }
    }
}

impl From<BrowserError> for PoolError {
    fn from(error: BrowserError) -> Self {
        match error {
            BrowserError::NameTaken => PoolError::NameTaken,
            BrowserError::NotFound => PoolError::BrowserNotFound,
            BrowserError::NotLeased => PoolError::NotLeased,
            BrowserError::Store(error) => PoolError::Store(error),
            other => PoolError::Browser(other),
        }
    }
}

impl From<HandOverError> for PoolError {
    fn from(error: HandOverError) -> Self {
        match error {
            HandOverError::Browser(error) => error.into(),
            HandOverError::PoolDeleted => PoolError::NotFound,
            other => PoolError::HandOver(other),
        }
    }
}

impl From<SavePoolError> for PoolError {
    fn from(error: SavePoolError) -> Self {
        match error {
            SavePoolError::NotFound => PoolError::NotFound,
            SavePoolError::ProjectInactive => PoolError::ProjectInactive,
            SavePoolError::LimitReached(limit) => PoolError::ProjectLimitReached(limit),
            SavePoolError::ProfileNotFound => {
                BrowserError::from(BrowserProfileError::NotFound).into()
            }
            SavePoolError::Store(error) => error.into(),
        }
    }
}

impl From<PoolLeaseError> for PoolError {
    fn from(error: PoolLeaseError) -> Self {
        match error {
            // Its callers wait instead.
            PoolLeaseError::NoPool | PoolLeaseError::NoneAvailable => PoolError::NotFound,
            PoolLeaseError::Profile(error) => BrowserError::from(error).into(),
            PoolLeaseError::Store(error) => error.into(),
        }
    }
}

/// The changes to make to a pool. `None` leaves a setting as it is.
#[derive(Debug, Clone, Default)]
pub struct PoolChange {
    pub name: Option<String>,
    pub size: Option<u32>,
    pub fill_rate_per_minute: Option<u32>,
    pub timeout_seconds: Option<u32>,
    /// `Some(None)` removes the limit.
    pub max_age_seconds: Option<Option<u32>>,
    /// `Some(None)` removes the limit.
    pub max_leases: Option<Option<u32>>,
    pub headless: Option<bool>,
    pub kiosk_mode: Option<bool>,
    pub viewport: Option<ViewportRequest>,
    pub start_url: Option<String>,
    /// `Some(None)` removes the profile.
    pub profile: Option<Option<ProfileRef>>,
    pub refresh_on_profile_update: Option<bool>,
}

impl PoolChange {
    /// Changes all settings but the profile, which has to be found first.
    fn apply(self, settings: &mut PoolSettings) {
        fn set<T>(value: &mut T, new: Option<T>) {
            if let Some(new) = new {
                *value = new;
            }
        }
        set(&mut settings.name, self.name.map(Some));
        set(&mut settings.size, self.size);
        set(
            &mut settings.fill_rate_per_minute,
            self.fill_rate_per_minute,
        );
        set(&mut settings.timeout_seconds, self.timeout_seconds);
        set(&mut settings.max_age_seconds, self.max_age_seconds);
        set(&mut settings.max_leases, self.max_leases);
        let config = &mut settings.config;
        set(&mut config.headless, self.headless);
        set(&mut config.kiosk_mode, self.kiosk_mode);
        let refresh_rate = config.viewport.refresh_rate;
        let viewport = self.viewport.map(|viewport| viewport.resolve(refresh_rate));
        set(&mut config.viewport, viewport);
        set(&mut config.start_url, self.start_url.map(Some));
        set(
            &mut settings.refresh_on_profile_update,
            self.refresh_on_profile_update,
        );
    }
}

/// The pool service. Clones share its state.
#[derive(Clone)]
pub struct Pools {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    hosts: Hosts,
    browsers: Browsers,
    shutdown: Shutdown,
    queue: WaitQueue,
    discards: Discards,
    /// Notified when a pool may have too few or too many browsers.
    changed: Notify,
}

impl Pools {
    pub fn new(store: Store, hosts: Hosts, browsers: Browsers, shutdown: Shutdown) -> Pools {
        Pools {
            inner: Arc::new(Inner {
                store,
                hosts,
                browsers,
                shutdown,
                queue: WaitQueue::default(),
                discards: Discards::default(),
                changed: Notify::new(),
            }),
        }
    }

    /// Creates a pool, whose browsers start with the profile if there is one. They are started in
    /// the background.
    pub async fn create(
        &self,
        project: &ProjectId,
        mut settings: PoolSettings,
        profile: Option<ProfileRef>,
    ) -> Result<PoolRow, PoolError> {
        settings.config.profile = self.find_profile(project, profile).await?;
        let created = self.inner.store.create_pool(project, settings, Utc::now());
        let row = created.await?;
        self.notify_changed(&row.id);
        tracing::info!(pool = %row.id, size = row.settings.size, "pool created");
        Ok(row)
    }

    /// Notifies this process and the others that a pool has changed. The one that leads fills it.
    fn notify_changed(&self, pool: &PoolId) {
        self.inner.changed.notify_one();
        self.inner.store.hint(Hint::Pool(pool.clone()));
    }

    async fn find_profile(
        &self,
        project: &ProjectId,
        profile: Option<ProfileRef>,
    ) -> Result<Option<ProfileId>, PoolError> {
        let selection = profile.map(|profile| ProfileSelection {
            profile,
            save_changes: false,
        });
        let found = self
            .inner
            .browsers
            .find_profile(project, selection.as_ref());
        Ok(found.await?.map(|profile| profile.id))
    }

    /// Finds the pool `id_or_name` of `project`.
    pub async fn get(&self, project: &ProjectId, id_or_name: &str) -> Result<PoolRow, PoolError> {
        let store = &self.inner.store;
        let found = match id_or_name.parse::<PoolId>() {
            Ok(id) => store.find_pool(project, &id).await?,
            Err(_) => store.find_pool_named(project, id_or_name).await?,
        };
        found.ok_or(PoolError::NotFound)
    }

    /// Lists pools, newest first, with one row more than the limit if there are more.
    pub async fn list(
        &self,
        project: &ProjectId,
        listing: &PoolListing,
    ) -> Result<Vec<PoolRow>, PoolError> {
        Ok(self.inner.store.list_pools(project, listing).await?)
    }

    /// Counts the browsers and the waiters of pools. One without any has no entry.
    pub async fn counts(&self, pools: &[PoolId]) -> Result<HashMap<PoolId, PoolCounts>, PoolError> {
        Ok(self.inner.store.pool_counts(pools).await?)
    }

    /// Changes a pool. Idle browsers of another configuration are replaced, and all idle ones with
    /// `discard_all_idle`.
    pub async fn update(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        mut change: PoolChange,
        discard_all_idle: bool,
    ) -> Result<PoolRow, PoolError> {
        let pool = self.get(project, id_or_name).await?;
        let profile = match change.profile.take() {
            Some(profile) => Some(self.find_profile(project, profile).await?),
            None => None,
        };
        let this = self.clone();
        self.complete(async move {
            let change = |settings: &mut PoolSettings| {
                change.apply(settings);
                if let Some(profile) = profile {
                    settings.config.profile = profile;
                }
            };
            let changing = this.inner.store.change_pool(&pool.id, change, Utc::now());
            let row = changing.await?;
            if discard_all_idle {
                this.discard_idle(&row.id).await?;
            }
            this.notify_changed(&row.id);
            Ok(row)
        })
        .await
    }

    /// Performs an operation that completes even if the client disconnects.
    async fn complete<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, PoolError>> + Send + 'static,
    ) -> Result<T, PoolError> {
        self.inner.shutdown.spawn(inherit(operation)).await?
    }

    /// Ends all idle browsers of a pool. Returns when none of them can be leased any more; they are
    /// ended and replaced in the background.
    pub async fn flush(&self, project: &ProjectId, id_or_name: &str) -> Result<(), PoolError> {
        let pool = self.get(project, id_or_name).await?;
        let this = self.clone();
        self.complete(async move { this.discard_idle(&pool.id).await })
            .await
    }

    async fn discard_idle(&self, pool: &PoolId) -> Result<(), PoolError> {
        let discarding = self
            .inner
            .store
            .discard_pool_browsers(pool, None, Utc::now());
        let discarded = discarding.await?;
        tracing::info!(%pool, count = discarded.len(), "idle browsers of a pool are discarded");
        self.end_discarded(discarded, false);
        self.notify_changed(pool);
        Ok(())
    }

    /// Deletes a pool. Leased browsers prevent that, or end with `force`.
    pub async fn delete(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        force: bool,
    ) -> Result<(), PoolError> {
        let pool = self.get(project, id_or_name).await?;
        let (this, project) = (self.clone(), project.clone());
        self.complete(async move {
            let leased = match this.inner.store.delete_pool(&pool.id, force).await? {
                DeletePoolOutcome::Deleted(leased) => leased,
                DeletePoolOutcome::NotFound => return Err(PoolError::NotFound),
                DeletePoolOutcome::Leased(count) => return Err(PoolError::Leased(count)),
            };
            tracing::info!(pool = %pool.id, "pool deleted");
            this.inner.queue.serve(&pool.id);
            this.notify_changed(&pool.id);
            // Those that are being handed over end by themselves.
            this.end_leased(&project, leased).await;
            Ok(())
        })
        .await
    }

    async fn end_leased(&self, project: &ProjectId, leased: Vec<BrowserId>) {
        let browsers = &self.inner.browsers;
        stream::iter(leased)
            .for_each_concurrent(MAX_CONCURRENT_ENDS, |id| async move {
                match browsers.delete(project, id.as_str()).await {
                    Ok(()) | Err(BrowserError::NotFound) => {}
                    Err(error) => {
                        tracing::error!(browser = %id, %error, "cannot end a browser of a deleted pool");
                    }
                }
            })
            .await;
    }

    /// Ends a browser that was leased from a pool. Succeeds again if a client has ended it before.
    pub async fn release(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        session: &BrowserId,
        reuse: bool,
    ) -> Result<(), PoolError> {
        let pool = self.get(project, id_or_name).await?;
        let Inner {
            store, browsers, ..
        } = &*self.inner;
        let releasing = browsers.release(project, session.as_str(), &pool.id, reuse);
        match releasing.await {
            Err(BrowserError::NotFound) => {}
            released => return Ok(released?),
        }
        let row = store.find_browser(project, session, StateFilter::All);
        let row = row.await?.ok_or(PoolError::BrowserNotFound)?;
        let is_of_pool = row.pool.is_some_and(|known| known.id == pool.id);
        match is_of_pool && row.state.is_ended_by_client() {
            true => Ok(()),
            false => Err(PoolError::NotLeased),
        }
    }
}
