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
        store::{BrowserRow, Creation, HostMode, NewBrowserRow},
    },
    request_scope::inherit,
};

/// The time in which a repeated request with the same `Idempotency-Key` returns the first browser.
const IDEMPOTENCY_WINDOW: TimeDelta = TimeDelta::minutes(10);

impl Browsers {
    /// Creates a browser and returns when its DevTools respond. Dropping the future undoes it.
    pub async fn create(
        &self,
        project: &ProjectId,
        new: NewBrowser,
        creation: Option<Creation>,
    ) -> Result<BrowserRow, BrowserError> {
        let key_lock = match &creation {
            Some(creation) => {
                let key = (project.clone(), creation.key.clone());
                Some(self.inner.creation_locks.lock(key).await)
            }
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

    /// Finds the browser that an earlier request with the same idempotency key created.
    async fn find_repeated(
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
        let profile = self.find_profile(&project, &new).await?;
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
        let launch = LaunchOptions {
            mode: HostMode {
                headless: row.headless,
                kiosk_mode: row.kiosk_mode,
            },
            viewport: row.viewport,
        };
        let lease = match self.inner.hosts.lease(&row.id, launch).await {
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
        self.inner.hosts.wait_ready(lease).await?;
        if let Some(profile) = &row.profile {
            self.load_profile(lease, profile).await?;
        }
        // A host that is used again begins with the viewport of its first session.
        if lease.viewport() != row.viewport {
            lease.set_viewport(row.viewport).await?;
            if row.headless {
                // Only a restart changes the screen that pages see.
                lease.restart_browser().await?;
            }
        }
        if let Some(url) = &row.start_url {
            lease.set_start_url(url).await?;
        }
        Ok(())
    }

    /// Makes a ready browser visible to clients. Discards it if that cannot be recorded.
    async fn publish(&self, browser: &Arc<BrowserHandle>) -> Result<(), BrowserError> {
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
    async fn end_if_obsolete(
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
        // Refused if something else has ended it already, which is just as good.
        let _ = self.end(browser, reason).await;
        Err(error)
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
    }
}
