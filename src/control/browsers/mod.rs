//! Browsers: making, finding, changing and ending them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{TimeDelta, Utc};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use secrecy::SecretString;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    activity::Activity,
    fleet::{AgentError, HostDown, Launch, LocalFleet, ReplayClient, StartError},
    keyed_mutex::KeyedMutex,
    purge::purge,
    replays::Replays,
    store::{BrowserRow, Change, Creation, Listing, NewBrowserRow, StateFilter, Store, StoreError},
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        viewport::{Viewport, ViewportRequest},
    },
    request_scope::inherit,
    shutdown::Shutdown,
};

mod handle;
mod replays;
pub mod state;

use handle::BrowserHandle;
use state::{Action, EndReason, Event};

/// A request that is repeated with its `Idempotency-Key` within this finds the browser of the first.
const IDEMPOTENCY: TimeDelta = TimeDelta::minutes(10);
/// Between two tries to record an end.
const RECORD_AGAIN: Duration = Duration::from_secs(1);
/// How long a call waits for an agent that is being started again.
const AGENT_RESTART_TIMEOUT: Duration = Duration::from_secs(15);

/// Why something cannot be done to a browser.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    #[error("there is no such browser")]
    NotFound,
    #[error("the name belongs to another live browser of the project")]
    NameTaken,
    #[error("the idempotency key came with another request")]
    IdempotencyKeyReused,
    #[error("another request with the idempotency key is under way")]
    IdempotencyKeyInFlight,
    #[error("{0} browsers live already, and no more may")]
    Full(u32),
    #[error("the server is stopping")]
    Stopping,
    #[error("the client went away")]
    Abandoned,
    #[error("the agent did not start: {0}")]
    NotStarted(#[from] StartError),
    #[error("the browser did not come up: {0}")]
    NotUp(HostDown),
    #[error("the browser cannot be base_url: {0}")]
    Unreachable(HostDown),
    #[error("the agent refused: {0}")]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(StoreError),
    #[error("a task of ours failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<StoreError> for BrowserError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken => BrowserError::NameTaken,
            StoreError::KeyTaken => BrowserError::IdempotencyKeyInFlight,
            other => BrowserError::Store(other),
        }
    }
}

/// What a new browser should be like, checked.
#[derive(Debug, Clone, serde::Serialize)]
pub struct NewBrowser {
    pub name: Option<String>,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: u32,
    pub viewport: Viewport,
    pub start_url: Option<String>,
    pub tags: BTreeMap<String, String>,
}

/// A live browser, as whoever passes requests on needs it.
#[derive(Clone)]
pub struct Session {
    pub id: BrowserId,
    pub agent_addr: SocketAddr,
    pub agent_token: SecretString,
    pub activity: Arc<Activity>,
    /// Cancelled once it ends.
    pub ended: CancellationToken,
    pub recorder: ReplayClient,
    /// To be told when there may be something of its replays to be fetched.
    pub replays_changed: Arc<Notify>,
}

/// The service; clones share it.
#[derive(Clone)]
pub struct Browsers {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    fleet: LocalFleet,
    replays: Replays,
    shutdown: Shutdown,
    /// Those with a host: rebuilt empty at a start, for local hosts end with this process.
    live: Mutex<HashMap<BrowserId, Arc<BrowserHandle>>>,
    turns: KeyedMutex<(ProjectId, String)>,
}

impl Browsers {
    pub fn new(store: Store, fleet: LocalFleet, replays: Replays, shutdown: Shutdown) -> Browsers {
        Browsers {
            inner: Arc::new(Inner {
                store,
                fleet,
                replays,
                shutdown,
                live: Mutex::default(),
                turns: KeyedMutex::default(),
            }),
        }
    }

    /// Settles what an earlier run left: its hosts are ended, its browsers marked as gone. Before the first request.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        if let Err(error) = self.inner.fleet.clear_leftovers().await {
            tracing::error!(%error, "cannot clear what an earlier run left");
        }
        let store = &self.inner.store;
        let mut gone = 0;
        for (id, state) in store.unfinished_browsers().await? {
            match state {
                state::State::Creating => store.forget_browser(&id).await?,
                _ => {
                    // One that was on its way out keeps its reason.
                    gone += usize::from(
                        store
                            .withdraw_browser(&id, EndReason::Gone, Utc::now())
                            .await?,
                    );
                    store.close_browser(&id).await?;
                }
            }
        }
        Ok(gone)
    }

    /// Makes a browser; returns once its DevTools answer. Dropping the future undoes what has been done.
    pub async fn create(
        &self,
        project: &ProjectId,
        new: NewBrowser,
        creation: Option<Creation>,
    ) -> Result<BrowserRow, BrowserError> {
        let turn = match &creation {
            Some(creation) => {
                let key = (project.clone(), creation.key.clone());
                Some(self.inner.turns.take(key).await)
            }
            None => None,
        };
        if let Some(creation) = &creation
            && let Some(row) = self.repeated(project, creation).await?
        {
            return Ok(row);
        }
        // The work is a task of its own, so that no step of it is cut in two when the client goes away.
        let abandoned = CancellationToken::new();
        let on_drop = abandoned.clone().drop_guard();
        let this = self.clone();
        let project = project.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            let _turn = turn;
            this.create_to_the_end(project, new, creation, abandoned)
                .await
        }));
        let created = task.await?;
        on_drop.disarm();
        created
    }

    async fn repeated(
        &self,
        project: &ProjectId,
        creation: &Creation,
    ) -> Result<Option<BrowserRow>, BrowserError> {
        let since = Utc::now() - IDEMPOTENCY;
        let store = &self.inner.store;
        match store.find_creation(project, &creation.key, since).await? {
            Some((_, digest)) if digest != creation.request_digest => {
                Err(BrowserError::IdempotencyKeyReused)
            }
            Some((row, _)) => Ok(Some(row)),
            None => Ok(None),
        }
    }

    async fn create_to_the_end(
        &self,
        project: ProjectId,
        new: NewBrowser,
        creation: Option<Creation>,
        abandoned: CancellationToken,
    ) -> Result<BrowserRow, BrowserError> {
        let Inner {
            store,
            fleet,
            shutdown,
            ..
        } = &*self.inner;
        if shutdown.stopping() {
            return Err(BrowserError::Stopping);
        }
        let began = Instant::now();
        let slot = fleet.reserve();
        let slot = slot.ok_or_else(|| BrowserError::Full(fleet.capacity()))?;
        let id = BrowserId::generate();
        let launch = Launch {
            headless: new.headless,
            kiosk_mode: new.kiosk_mode,
            viewport: new.viewport,
            start_url: new.start_url.clone(),
        };
        let row = NewBrowserRow {
            id: id.clone(),
            project_id: project.clone(),
            name: new.name,
            headless: new.headless,
            kiosk_mode: new.kiosk_mode,
            timeout_seconds: new.timeout_seconds,
            viewport: new.viewport,
            start_url: new.start_url,
            tags: new.tags,
            idempotency: creation,
        };
        let row = store.create_browser(row, Utc::now()).await?;
        let host = match fleet.start(&id, launch, slot).await {
            Ok(host) => host,
            Err(error) => {
                // There is no host to stop: the record is all there is.
                self.record(id, Action::Forget).await;
                return Err(error.into());
            }
        };
        let timeout = Duration::from_secs(row.timeout_seconds.into());
        let live = Arc::new(BrowserHandle::new(id, project, host, timeout));
        let outcome = tokio::select! {
            ready = live.host().ready(fleet.start_deadline()) => ready.map_err(BrowserError::NotUp),
            () = abandoned.cancelled() => Err(BrowserError::Abandoned),
            () = shutdown.stopped() => Err(BrowserError::Stopping),
        };
        if let Err(error) = outcome {
            let event = match error {
                BrowserError::NotUp(_) => Event::StartFailed,
                _ => Event::Abandoned,
            };
            self.apply(&live, event).await?;
            return Err(error);
        }
        self.publish(&live).await?;
        let row = BrowserRow {
            state: state::State::Active,
            ..row
        };
        // Whoever ends all browsers may have looked before this one was there.
        let late = [
            (shutdown.stopping(), EndReason::Gone, BrowserError::Stopping),
            (
                abandoned.is_cancelled(),
                EndReason::Deleted,
                BrowserError::Abandoned,
            ),
        ];
        for (too_late, reason, error) in late {
            if too_late {
                // Somebody else having ended it is as good.
                let _ = self.apply(&live, Event::End(reason)).await;
                return Err(error);
            }
        }
        metrics::histogram!("berth_browser_start_seconds").record(began.elapsed());
        Ok(row)
    }

    /// The browser `id_or_name` of `project`; reading it counts as using it.
    pub async fn get(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        filter: StateFilter,
    ) -> Result<BrowserRow, BrowserError> {
        let store = &self.inner.store;
        let found = match id_or_name.parse::<BrowserId>() {
            Ok(id) => store.find_browser(project, &id, filter).await?,
            Err(_) => {
                store
                    .find_browser_named(project, id_or_name, filter)
                    .await?
            }
        };
        let row = found.filter(|row| self.is_settled(row));
        let row = row.ok_or(BrowserError::NotFound)?;
        if let Some(live) = self.live().get(&row.id) {
            live.touch();
        }
        Ok(row)
    }

    /// Newest first; one more than the limit where there are more.
    pub async fn list(
        &self,
        project: &ProjectId,
        listing: &Listing,
    ) -> Result<Vec<BrowserRow>, BrowserError> {
        let mut rows = self.inner.store.list_browsers(project, listing).await?;
        rows.retain(|row| self.is_settled(row));
        Ok(rows)
    }

    /// Changes a live browser: it itself first, then its record. Goes on when the client does not wait.
    pub async fn update(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        change: BrowserChange,
    ) -> Result<BrowserRow, BrowserError> {
        let live = self.find_live(project, id_or_name).await?;
        let in_use = live.activity().begin();
        let this = self.clone();
        let changing = self.inner.shutdown.spawn(inherit(async move {
            let _in_use = in_use;
            let _turn = live.change_turn().await;
            this.change(&live, change).await
        }));
        changing.await?
    }

    async fn change(
        &self,
        live: &BrowserHandle,
        change: BrowserChange,
    ) -> Result<BrowserRow, BrowserError> {
        let store = &self.inner.store;
        // Refused before anything is done, as far as that can be known.
        if let Some(name) = &change.name {
            let holder = store.find_live_name(live.project(), name).await?;
            if holder.is_some_and(|holder| holder != *live.id()) {
                return Err(BrowserError::NameTaken);
            }
        }
        let mut done = Change::default();
        let outcome = match change_host(live, change.viewport, change.start_url, &mut done).await {
            Ok(()) => {
                let whole = Change {
                    name: change.name,
                    tags: change.tags,
                    ..done.clone()
                };
                let row = store.change_browser(live.id(), whole).await;
                row.map_err(BrowserError::from)
                    .and_then(|row| row.ok_or(BrowserError::NotFound))
            }
            Err(error) => Err(error.into()),
        };
        if matches!(
            outcome,
            Err(BrowserError::Agent(_) | BrowserError::NameTaken)
        ) && done != Change::default()
        {
            // The record says what the browser is like, whatever came of the rest.
            store.change_browser(live.id(), done).await?;
        }
        outcome
    }

    /// Ends a browser; returns once nothing is left of it. Goes on when the client does not wait.
    pub async fn delete(&self, project: &ProjectId, id_or_name: &str) -> Result<(), BrowserError> {
        let live = self.find_live(project, id_or_name).await?;
        let this = self.clone();
        let ending = self.inner.shutdown.spawn(inherit(async move {
            this.apply(&live, Event::End(EndReason::Deleted)).await
        }));
        ending.await?
    }

    /// The live browser, ready to be called; waits for an agent that is being started again.
    pub async fn session(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<Session, BrowserError> {
        let live = self.find_live(project, id_or_name).await?;
        // Waiting is using it, too.
        let _waiting = live.activity().begin();
        match live.host().recorder(AGENT_RESTART_TIMEOUT).await {
            Ok(recorder) => Ok(Session {
                id: live.id().clone(),
                agent_addr: recorder.address(),
                agent_token: live.host().token().clone(),
                activity: live.activity().clone(),
                ended: live.ended().clone(),
                recorder,
                replays_changed: live.replays_changed().clone(),
            }),
            Err(HostDown::Gone) => Err(BrowserError::NotFound),
            Err(down) => Err(BrowserError::Unreachable(down)),
        }
    }

    /// Removes the records of browsers that ended longer than `keep` ago, now and every hour, until the stop.
    pub async fn purge(self, keep: Duration) {
        let Inner {
            store, shutdown, ..
        } = &*self.inner;
        let remove = |before| store.purge_browsers(before);
        purge("records of ended browsers", keep, shutdown, remove).await;
    }

    /// Ends all browsers, since their hosts end with this process.
    pub async fn end_all(&self) {
        let all: Vec<Arc<BrowserHandle>> = self.live().values().cloned().collect();
        let ending = all.iter().map(|live| async move {
            if let Err(error) = self.apply(live, Event::End(EndReason::Gone)).await {
                tracing::error!(browser = %live.id(), %error, "cannot end the browser in order");
            }
        });
        futures::future::join_all(ending).await;
    }

    /// The live browser, which is being used thereby.
    async fn find_live(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<Arc<BrowserHandle>, BrowserError> {
        let live = self.see_live(project, id_or_name).await?;
        live.touch().then_some(live).ok_or(BrowserError::NotFound)
    }

    /// The live browser, which may end while it is looked at.
    async fn see_live(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<Arc<BrowserHandle>, BrowserError> {
        let id = match id_or_name.parse::<BrowserId>() {
            Ok(id) => id,
            Err(_) => {
                let store = &self.inner.store;
                let found = store.find_live_name(project, id_or_name).await?;
                found.ok_or(BrowserError::NotFound)?
            }
        };
        let live = self.live().get(&id).cloned();
        live.filter(|live| live.project() == project && live.is_visible())
            .ok_or(BrowserError::NotFound)
    }

    /// Applies the event and does what follows from it. `NotFound` where somebody else has ended the browser first.
    async fn apply(&self, live: &Arc<BrowserHandle>, event: Event) -> Result<(), BrowserError> {
        let actions = live.apply(event).map_err(|refused| {
            tracing::debug!(browser = %live.id(), %refused);
            BrowserError::NotFound
        })?;
        self.run_actions(live, actions).await;
        Ok(())
    }

    /// Lets clients find a browser that answers; where that cannot be recorded, nothing of it is left.
    async fn publish(&self, live: &Arc<BrowserHandle>) -> Result<(), BrowserError> {
        self.apply(live, Event::Ready).await?;
        let published = self.inner.store.publish_browser(live.id()).await;
        let event = match published {
            Ok(true) => Event::Published,
            Ok(false) | Err(_) => Event::NotPublished,
        };
        self.apply(live, event).await?;
        match published {
            Ok(true) => Ok(()),
            Ok(false) => Err(BrowserError::NotFound),
            Err(error) => Err(error.into()),
        }
    }

    async fn run_actions(&self, live: &Arc<BrowserHandle>, actions: &[Action]) {
        let mut todo: VecDeque<Action> = actions.iter().copied().collect();
        while let Some(action) = todo.pop_front() {
            match action {
                Action::Show => {
                    self.live().insert(live.id().clone(), live.clone());
                    self.count();
                    self.inner.shutdown.spawn(self.clone().watch(live.clone()));
                    let replays = self.clone().collect_replays(live.clone());
                    self.inner.shutdown.spawn(replays);
                    tracing::info!(browser = %live.id(), "a browser is up");
                }
                Action::Withdraw(reason) => {
                    self.live().remove(live.id());
                    self.count();
                    live.ended().cancel();
                    tracing::info!(browser = %live.id(), ?reason, "a browser ends");
                    self.record(live.id().clone(), action).await;
                }
                Action::SaveReplays => self.save_replays(live).await,
                Action::StopHost => {
                    live.host().stop().await;
                    self.take_over_replays(live).await;
                    todo.extend(live.apply(Event::HostStopped).unwrap_or_default());
                }
                Action::Close | Action::Forget => self.record(live.id().clone(), action).await,
            }
        }
    }

    /// Records an end. What the database says must not keep a host from being stopped, nor be told to clients after the fact: what it
    /// refuses is tried again, and after the next start at the latest it is settled with the rest.
    async fn record(&self, id: BrowserId, end: Action) {
        if let Err(error) = self.try_record(&id, end).await {
            tracing::error!(browser = %id, ?end, %error, "an end cannot be recorded; it is tried again");
            let this = self.clone();
            self.inner.shutdown.spawn(async move {
                let mut ticks = tokio::time::interval(RECORD_AGAIN);
                loop {
                    tokio::select! {
                        _ = ticks.tick() => {}
                        () = this.inner.shutdown.stopped() => return,
                    }
                    if this.try_record(&id, end).await.is_ok() {
                        return;
                    }
                }
            });
        }
    }

    async fn try_record(&self, id: &BrowserId, end: Action) -> Result<(), StoreError> {
        let store = &self.inner.store;
        match end {
            Action::Withdraw(reason) => {
                store.withdraw_browser(id, reason, Utc::now()).await?;
                Ok(())
            }
            Action::Close => store.close_browser(id).await,
            Action::Forget => store.forget_browser(id).await,
            Action::Show | Action::SaveReplays | Action::StopHost => Ok(()),
        }
    }

    /// Whether the record tells how things are: one that says a browser lives which does not is about to be changed.
    fn is_settled(&self, row: &BrowserRow) -> bool {
        row.state != state::State::Active || self.live().contains_key(&row.id)
    }

    /// Ends the browser once nobody has used it for its time, or once its host is given up.
    fn watch(self, live: Arc<BrowserHandle>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while live.is_visible() {
                let actions = tokio::select! {
                    // Somebody may have come just now: looked at again where nobody can come in between.
                    () = live.idle() => live.apply_if_idle(Event::End(EndReason::Idle)),
                    () = live.host().gone() => live.apply(Event::End(EndReason::Gone)).ok(),
                    () = self.inner.shutdown.stopped() => return,
                };
                if let Some(actions) = actions {
                    self.run_actions(&live, actions).await;
                }
            }
        })
    }

    fn count(&self) {
        let count = u32::try_from(self.live().len()).unwrap_or(u32::MAX);
        metrics::gauge!("berth_browsers").set(f64::from(count));
    }

    fn live(&self) -> MutexGuard<'_, HashMap<BrowserId, Arc<BrowserHandle>>> {
        self.inner.live.lock()
    }
}

/// Notes in `done` what the browser has been brought to, as far as it came.
async fn change_host(
    live: &BrowserHandle,
    viewport: Option<ViewportRequest>,
    start_url: Option<String>,
    done: &mut Change,
) -> Result<(), AgentError> {
    let host = live.host();
    if let Some(wanted) = viewport {
        let viewport = wanted.resolve(host.viewport().refresh_rate);
        host.set_viewport(viewport).await?;
        done.viewport = Some(viewport);
    }
    if let Some(url) = start_url {
        host.set_start_url(&url).await?;
        done.start_url = Some(url);
    }
    Ok(())
}

/// What is to change of a live browser; `None` leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct BrowserChange {
    pub name: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub viewport: Option<ViewportRequest>,
    pub start_url: Option<String>,
}
