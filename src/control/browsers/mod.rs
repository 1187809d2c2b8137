//! The browser service: creates, finds, changes and ends browsers.
//!
//! - [`state`]: a browser's life as a pure state machine.
//! - [`handle`]: an active browser in memory, and the only place where its state changes.
//! - [`create`]: leases a host, waits until Chromium responds and publishes the browser.
//! - [`lifecycle`]: applies events and runs the actions that follow.
//! - [`update`]: changes an active browser and its row.
//! - [`ending`]: ends browsers of which other control processes may know, too.
//! - [`attach`]: continues browsers that this process did not create; finishes what others left.
//! - [`usage`]: records which browsers are in use.
//! - [`pooled`]: hands over browsers of pools, and takes them back.
//! - [`profiles`]: loads and saves the profiles of browsers; [`attach_profile`]: gives one to an
//!   active browser.
//! - [`replays`]: fetches recordings from the agent of an active browser.
//!
//! The database holds what clients may list, and what another process needs to continue browsers on
//! registered hosts; the handles of active browsers live only in memory.
//! An idle watcher and a replay collector run as tasks for each active browser and end with it.
//!
//! ```text
//!  POST /browsers ──▶ create ──▶ hosts: lease a host ──▶ wait until ready ──▶ publish
//!                                                                             │
//!        row (database) ◀── lifecycle ◀── events ◀── BrowserHandle ◀──────────┘
//!                               │                        ▲
//!                               └── actions:             ├── DELETE /browsers/{id}
//!                                   save profile,        ├── idle timeout
//!                                   save replays,        └── host gone or lost, shutdown (local)
//! ```

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    activity::Activity,
    fleet::{AgentEndpoint, AgentError, Host, HostError, HostStartError, ReplayClient},
    hosts::{HostLeaseError, Hosts},
    keyed_mutex::KeyedMutex,
    profiles::Profiles,
    replays::Replays,
    store::{
        BrowserRow, CreateBrowserError, Fleet, Listing, StateFilter, Store, StoreError,
        UniqueConstraint,
    },
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        profiles::ProfileSelection,
        viewport::Viewport,
    },
    shutdown::Shutdown,
};

mod attach;
mod attach_profile;
mod create;
mod ending;
mod handle;
mod lifecycle;
mod pooled;
mod profiles;
mod replays;
pub mod state;
mod update;
mod usage;

pub use create::CreationLock;
pub(in crate::control) use handle::BrowserHandle;
pub use pooled::{HandOverError, PoolLease};
pub use profiles::BrowserProfileError;
pub use replays::KnownBrowser;
pub use update::BrowserChange;

/// The longest wait of a call for an agent that is being restarted.
const AGENT_RESTART_TIMEOUT: Duration = Duration::from_secs(15);

/// Why an operation on a browser failed.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    #[error("no browser with that id or name")]
    NotFound,
    #[error("another active browser of the project has that name")]
    NameTaken,
    #[error("the idempotency key was used with a different request")]
    IdempotencyKeyReused,
    #[error("a request with the same idempotency key is in progress")]
    IdempotencyKeyInFlight,
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("browser limit reached ({0})")]
    LimitReached(u32),
    #[error("the browser limit of the project is reached ({0})")]
    ProjectLimitReached(u32),
    #[error("too many updates of the browser are waiting ({0})")]
    UpdateQueueFull(usize),
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the client cancelled the request")]
    Abandoned,
    #[error(transparent)]
    Profile(#[from] BrowserProfileError),
    #[error("no host is ready")]
    NoHostReady,
    #[error("cannot start the agent: {0}")]
    HostStart(#[from] HostStartError),
    #[error("the browser did not become ready: {0}")]
    NotReady(HostError),
    #[error("the browser is unreachable: {0}")]
    Unreachable(HostError),
    #[error("the agent rejected the change: {0}")]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(StoreError),
    #[error("the browser is not leased from that pool")]
    NotLeased,
    #[error("background task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<StoreError> for BrowserError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::BrowserLiveName) => {
                BrowserError::NameTaken
            }
            StoreError::UniqueViolation(UniqueConstraint::BrowserIdempotencyKey) => {
                BrowserError::IdempotencyKeyInFlight
            }
            other => BrowserError::Store(other),
        }
    }
}

impl From<CreateBrowserError> for BrowserError {
    fn from(error: CreateBrowserError) -> Self {
        match error {
            CreateBrowserError::ProjectInactive => BrowserError::ProjectInactive,
            CreateBrowserError::LimitReached(limit) => BrowserError::ProjectLimitReached(limit),
            CreateBrowserError::ProfileNotFound => BrowserProfileError::NotFound.into(),
            CreateBrowserError::ProfileInUse => BrowserProfileError::InUse.into(),
            CreateBrowserError::ProfileBeingSaved => BrowserProfileError::BeingSaved.into(),
            CreateBrowserError::Store(error) => error.into(),
        }
    }
}

impl From<HostLeaseError> for BrowserError {
    fn from(error: HostLeaseError) -> Self {
        match error {
            HostLeaseError::LimitReached(limit) => BrowserError::LimitReached(limit),
            HostLeaseError::NoneReady => BrowserError::NoHostReady,
            HostLeaseError::Start(error) => BrowserError::HostStart(error),
            HostLeaseError::Host(error) => BrowserError::NotReady(error),
            HostLeaseError::Store(error) => BrowserError::Store(error),
        }
    }
}

/// The validated properties of a browser to create.
#[derive(Debug, Clone, serde::Serialize)]
pub struct NewBrowser {
    pub name: Option<String>,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: u32,
    pub viewport: Viewport,
    pub start_url: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub profile: Option<ProfileSelection>,
}

/// An active browser whose agent is reachable, as the proxy and the replay routes use it.
#[derive(Clone)]
pub struct Session {
    pub id: BrowserId,
    /// Names the session of the agent.
    pub agent: AgentEndpoint,
    pub activity: Arc<Activity>,
    /// Cancelled when the browser ends.
    pub ended: CancellationToken,
    host: Arc<Host>,
    /// Wakes the browser's replay collector.
    pub replays_changed: Arc<Notify>,
}

impl Session {
    /// Returns a client for the recordings of the session.
    #[must_use]
    pub fn replay_client(&self) -> ReplayClient {
        ReplayClient::new(self.host.client().clone(), self.agent.clone())
    }
}

/// The browser service. Clones share its state.
#[derive(Clone)]
pub struct Browsers {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    hosts: Hosts,
    replays: Replays,
    profiles: Profiles,
    shutdown: Shutdown,
    /// The active browsers.
    active: Mutex<HashMap<BrowserId, Arc<BrowserHandle>>>,
    /// Serializes the attempts to make the handle of a browser.
    attach_locks: KeyedMutex<BrowserId>,
    /// The ending browsers of processes that died, which this one ends.
    adopted: Mutex<HashSet<BrowserId>>,
    /// Notified when a browser is used again of which no use was recorded for a while.
    used: Notify,
    /// Serializes creations with the same project and idempotency key.
    creation_locks: KeyedMutex<(ProjectId, String)>,
}

impl Browsers {
    pub fn new(
        store: Store,
        hosts: Hosts,
        replays: Replays,
        profiles: Profiles,
        shutdown: Shutdown,
    ) -> Browsers {
        Browsers {
            inner: Arc::new(Inner {
                store,
                hosts,
                replays,
                profiles,
                shutdown,
                active: Mutex::default(),
                adopted: Mutex::default(),
                attach_locks: KeyedMutex::default(),
                used: Notify::new(),
                creation_locks: KeyedMutex::default(),
            }),
        }
    }

    /// Returns the limit of browsers of all projects.
    pub async fn capacity(&self) -> Result<u32, StoreError> {
        self.inner.hosts.capacity().await
    }

    /// Finds the browser `id_or_name` of `project`. Reading it counts as activity.
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
        let row = found.filter(|row| self.is_current(row));
        let row = row.ok_or(BrowserError::NotFound)?;
        if row.state == state::State::Active
            && let Some(browser) = self.known(&row.id).await?
        {
            self.touch(&browser);
        }
        Ok(row)
    }

    /// Lists browsers, newest first, with one row more than the limit if there are more.
    pub async fn list(
        &self,
        project: &ProjectId,
        listing: &Listing,
    ) -> Result<Vec<BrowserRow>, BrowserError> {
        let mut rows = self.inner.store.list_browsers(project, listing).await?;
        rows.retain(|row| self.is_current(row));
        Ok(rows)
    }

    /// Returns an active browser with the address of its agent, waiting for an agent that is being
    /// restarted.
    pub async fn session(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<Session, BrowserError> {
        let browser = self.use_active(project, id_or_name).await?;
        // Waiting counts as activity, too.
        let _activity = browser.activity().begin();
        match browser.lease().endpoint(AGENT_RESTART_TIMEOUT).await {
            Ok(agent) => Ok(Session {
                id: browser.id().clone(),
                agent,
                activity: browser.activity().clone(),
                ended: browser.ended().clone(),
                host: browser.lease().host().clone(),
                replays_changed: browser.replays_changed().clone(),
            }),
            Err(HostError::Gone) => Err(BrowserError::NotFound),
            Err(error) => Err(BrowserError::Unreachable(error)),
        }
    }

    /// Finds an active browser and counts this as activity.
    pub(in crate::control) async fn use_active(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<Arc<BrowserHandle>, BrowserError> {
        let browser = self.find_active(project, id_or_name).await?;
        self.touch(&browser)
            .then_some(browser)
            .ok_or(BrowserError::NotFound)
    }

    /// Restarts the idle time. Returns false if clients no longer find the browser.
    fn touch(&self, browser: &BrowserHandle) -> bool {
        let is_visible = browser.touch();
        if browser.survives_control() && browser.has_unrecorded_use(usage::INTERVAL) {
            self.inner.used.notify_one();
        }
        is_visible
    }

    /// Returns the handle of an active browser. Attaches one that another process has created.
    async fn known(&self, id: &BrowserId) -> Result<Option<Arc<BrowserHandle>>, StoreError> {
        let known = self.active().get(id).cloned();
        match known {
            None if self.is_shared() => self.attach(id).await,
            known => Ok(known),
        }
    }

    /// Returns whether other processes may have created browsers, so that rows are the only truth.
    fn is_shared(&self) -> bool {
        self.inner.hosts.fleet() == Fleet::Registered
    }

    /// Finds an active browser without counting this as activity. It may end at any time.
    async fn find_active(
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
        let browser = self.known(&id).await?;
        browser
            .filter(|browser| browser.is_visible_to(project))
            .ok_or(BrowserError::NotFound)
    }

    /// Returns the projects that have active browsers.
    pub fn active_projects(&self) -> HashSet<ProjectId> {
        let active = self.active();
        active
            .values()
            .map(|browser| browser.project().clone())
            .collect()
    }

    /// Returns whether the browser is active. This does not count as activity.
    pub async fn is_active(&self, project: &ProjectId, id: &BrowserId) -> Result<bool, StoreError> {
        let browser = self.known(id).await?;
        Ok(browser.is_some_and(|browser| browser.is_visible_to(project)))
    }

    /// Returns whether a row is up to date. A row that says a browser is active although it is not
    /// is about to be updated.
    fn is_current(&self, row: &BrowserRow) -> bool {
        row.state != state::State::Active || self.is_shared() || self.active().contains_key(&row.id)
    }

    fn update_gauge(&self) {
        let count = u32::try_from(self.active().len()).unwrap_or(u32::MAX);
        metrics::gauge!("berth_browsers").set(f64::from(count));
    }

    fn active(&self) -> MutexGuard<'_, HashMap<BrowserId, Arc<BrowserHandle>>> {
        self.inner.active.lock()
    }
}
