//! Creates browsers.
//!
//! The steps run in a task, so that a client that disconnects never interrupts one of them halfway.
//! Each failure undoes the steps before it: the row is deleted, the host stopped.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{TimeDelta, Utc};
use tokio_util::sync::CancellationToken;

use super::{
    BrowserError, Browsers, Inner, NewBrowser,
    handle::BrowserHandle,
    state::{Action, EndReason, Event, State},
};
use crate::{
    api::ids::{BrowserId, ProjectId},
    control::{
        fleet::LaunchOptions,
        keyed_mutex::KeyedMutexGuard,
        store::{BrowserRow, Creation, HostMode, NewBrowserRow},
    },
    request_scope::inherit,
};

/// The time in which a repeated request with the same `Idempotency-Key` returns the first browser.
const IDEMPOTENCY_WINDOW: TimeDelta = TimeDelta::minutes(10);

/// Keeps requests with the same idempotency key waiting until it is dropped.
pub struct CreationLock {
    _guard: KeyedMutexGuard<(ProjectId, String)>,
}

impl Browsers {
    /// Creates a browser and returns when its DevTools respond. Dropping the future undoes it.
    pub async fn create(
        &self,
        project: &ProjectId,
        new: NewBrowser,
        creation: Option<Creation>,
    ) -> Result<BrowserRow, BrowserError> {
        let key_lock = match &creation {
            Some(creation) => Some(self.lock_creation(project, creation).await),
            None => None,
        };
        if let Some(creation) = &creation
            && let Some(row) = self.find_repeated(project, creation).await?
        {
            return Ok(row);
        }
        let abandoned = CancellationToken::new();
        let abandon_on_drop = abandoned.clone().drop_guard();
        let this = self.clone();
        let project = project.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            let _key_lock = key_lock;
            this.run_creation(project, new, creation, &abandoned).await
        }));
        let created = task.await?;
        abandon_on_drop.disarm();
        created
    }

    /// Waits for requests with the same idempotency key that are in progress. Returns the lock that
    /// keeps others waiting.
    pub async fn lock_creation(&self, project: &ProjectId, creation: &Creation) -> CreationLock {
        let key = (project.clone(), creation.key.clone());
        CreationLock {
            _guard: self.inner.creation_locks.lock(key).await,
        }
    }

    /// Finds the browser that an earlier request with the same idempotency key created.
    pub async fn find_repeated(
        &self,
        project: &ProjectId,
        creation: &Creation,
    ) -> Result<Option<BrowserRow>, BrowserError> {
        let since = Utc::now() - IDEMPOTENCY_WINDOW;
        let store = &self.inner.store;
        match store.find_creation(project, &creation.key, since).await? {
            Some((_, digest)) if digest != creation.request_digest => {
                Err(BrowserError::IdempotencyKeyReused)
            }
            Some((row, _)) => Ok(Some(row)),
            None => Ok(None),
        }
    }

    async fn run_creation(
        &self,
        project: ProjectId,
        new: NewBrowser,
        creation: Option<Creation>,
        abandoned: &CancellationToken,
    ) -> Result<BrowserRow, BrowserError> {
        let Inner {
            store, shutdown, ..
        } = &*self.inner;
        if shutdown.is_requested() {
            return Err(BrowserError::ShuttingDown);
        }
        let started = Instant::now();
        let profile = self.find_profile(&project, new.profile.as_ref()).await?;
        let row = NewBrowserRow {
            profile,
            ..new_row(project, new, creation)
        };
        let row = store.create_browser(row, Utc::now()).await?;
        let browser = self.lease_host(&row).await?;
        self.prepare(&browser, &row, abandoned).await?;
        self.publish(&browser).await?;
        self.end_if_obsolete(&browser, abandoned).await?;
        metrics::histogram!("berth_browser_start_seconds").record(started.elapsed());
        Ok(BrowserRow {
            state: State::Active,
            ..row
        })
    }

    /// Leases a host to the browser. A failure leaves only the row, which is deleted.
    async fn lease_host(&self, row: &BrowserRow) -> Result<Arc<BrowserHandle>, BrowserError> {
        let leasing = self.inner.hosts.lease(&row.id, launch_options(row), None);
        let lease = match leasing.await {
            Ok(lease) => lease,
            Err(error) => {
                self.record_end(row.id.clone(), Action::DeleteRow).await;
                return Err(error.into());
            }
        };
        let idle_timeout = Duration::from_secs(row.timeout_seconds.into());
        Ok(Arc::new(BrowserHandle::new(
            row.id.clone(),
            row.project_id.clone(),
            lease,
            None,
            idle_timeout,
        )))
    }

    /// Waits until the browser responds and is as its client wants it. Discards it if that fails,
    /// or if the client disconnects.
    async fn prepare(
        &self,
        browser: &Arc<BrowserHandle>,
        row: &BrowserRow,
        abandoned: &CancellationToken,
    ) -> Result<(), BrowserError> {
        let (event, error) = tokio::select! {
            ready = self.make_ready(browser, row) => match ready {
                Ok(()) => return Ok(()),
                Err(error) => (Event::StartFailed, error),
            },
            () = abandoned.cancelled() => (Event::Abandoned, BrowserError::Abandoned),
            () = self.inner.shutdown.requested() => (Event::Abandoned, BrowserError::ShuttingDown),
        };
        self.apply(browser, event).await?;
        Err(error)
    }

    async fn make_ready(
        &self,
        browser: &BrowserHandle,
        row: &BrowserRow,
    ) -> Result<(), BrowserError> {
        let lease = browser.lease();
        let hosts = &self.inner.hosts;
        hosts.wait_ready(lease).await?;
        if let Some(profile) = &row.profile {
            self.load_profile(lease, &profile.id).await?;
        }
        let (launch, start_url) = (launch_options(row), row.start_url.as_deref());
        Ok(hosts.set_up(lease, &launch, start_url).await?)
    }

    /// Makes a ready browser visible to clients. Discards it if that cannot be recorded.
    pub(super) async fn publish(&self, browser: &Arc<BrowserHandle>) -> Result<(), BrowserError> {
        self.apply(browser, Event::Ready).await?;
        // Until the browser has its handle, no other is made from the row.
        let lock = self.inner.attach_locks.lock(browser.id().clone()).await;
        let (lease, store) = (browser.lease(), &self.inner.store);
        let (host, generation) = (lease.host().id(), lease.generation());
        let published = store.publish_browser(browser.id(), host, generation, Utc::now());
        let published = published.await;
        let event = match published {
            Ok(true) => Event::Published,
            Ok(false) | Err(_) => Event::NotPublished,
        };
        let lock = (event == Event::Published).then_some(lock);
        self.apply(browser, event).await?;
        drop(lock);
        match published {
            Ok(true) => Ok(()),
            Ok(false) => Err(BrowserError::NotFound),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a browser that was published after the shutdown or the archiving of its project had
    /// listed all active browsers, or after its client had disconnected.
    pub(super) async fn end_if_obsolete(
        &self,
        browser: &Arc<BrowserHandle>,
        abandoned: &CancellationToken,
    ) -> Result<(), BrowserError> {
        let Inner {
            store, shutdown, ..
        } = &*self.inner;
        let (reason, error) = match store.is_project_active(browser.project()).await {
            _ if shutdown.is_requested() => (EndReason::Gone, BrowserError::ShuttingDown),
            _ if abandoned.is_cancelled() => (EndReason::Deleted, BrowserError::Abandoned),
            Ok(true) => return Ok(()),
            Ok(false) => (EndReason::Deleted, BrowserError::ProjectInactive),
            Err(error) => (EndReason::Deleted, error.into()),
        };
        self.end_undelivered(browser, reason).await;
        Err(error)
    }

    /// Ends a published browser that its client does not get. A repeated request does not return
    /// it.
    pub(super) async fn end_undelivered(&self, browser: &Arc<BrowserHandle>, reason: EndReason) {
        if let Err(error) = self.inner.store.forget_creation(browser.id()).await {
            tracing::warn!(browser = %browser.id(), %error, "cannot free an idempotency key");
        }
        // Refused if something else has ended it already, which is just as good.
        let _ = self.end(browser, reason).await;
    }
}

fn launch_options(row: &BrowserRow) -> LaunchOptions {
    LaunchOptions {
        mode: HostMode {
            headless: row.headless,
            kiosk_mode: row.kiosk_mode,
        },
        viewport: row.viewport,
    }
}

fn new_row(project: ProjectId, new: NewBrowser, creation: Option<Creation>) -> NewBrowserRow {
    NewBrowserRow {
        id: BrowserId::generate(),
        project_id: project,
        name: new.name,
        headless: new.headless,
        kiosk_mode: new.kiosk_mode,
        timeout_seconds: new.timeout_seconds,
        viewport: new.viewport,
        start_url: new.start_url,
        tags: new.tags,
        profile: None,
        idempotency: creation,
        pool: None,
    }
}
