//! The registered hosts that this process uses: begins and ends sessions at them.
//!
//! A handle lasts as long as this process has something to do with a host: while it runs a session,
//! and until that session has ended at the agent. Everything in it follows from the host's row.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::Utc;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{
    AfterSession, ApplyError, Hosts, Inner, RESPONSE_TIMEOUT,
    state::{Event, State},
};
use crate::{
    api::{
        ids::{BrowserId, HostId},
        viewport::Viewport,
    },
    control::{
        fleet::{AgentAccess, AgentClient, Host, HostController, HostState, LaunchOptions, Lease},
        store::{Fleet, HostRow, StoreError},
    },
};

/// The longest wait of a session for a host that is being recycled.
pub(super) const RECYCLE_WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts to get a host that another process may have recycled.
const CLAIM_INTERVAL: Duration = Duration::from_millis(500);

/// The handles of registered hosts.
pub(super) struct HostHandles {
    /// Reaches registered hosts.
    client: AgentClient,
    handles: Mutex<HashMap<HostId, Handle>>,
    /// The hosts at which a task of this process is ending a session.
    settling: Arc<Mutex<HashSet<HostId>>>,
}

struct Handle {
    host: Arc<Host>,
    controller: HostController,
    /// The session that ends if the host loses it.
    session: Option<BrowserId>,
}

/// The exclusive right of a task of this process to end a session at a host, until it is dropped.
pub(super) struct SettleGuard {
    host: HostId,
    settling: Arc<Mutex<HashSet<HostId>>>,
}

impl HostHandles {
    pub(super) fn new(client: AgentClient) -> HostHandles {
        HostHandles {
            client,
            handles: Mutex::default(),
            settling: Arc::default(),
        }
    }

    /// Returns a handle for the session of a host's row. `None` if the row is not that of a
    /// registered host with a session.
    pub(super) fn open(&self, row: &HostRow) -> Option<Arc<Host>> {
        let session = row.life.session.as_ref()?;
        let mut handles = self.handles.lock();
        // A session that the host has lost, and whose end was not noticed yet.
        let has_other = |handle: &Handle| handle.session.as_ref().is_some_and(|s| s != session);
        if handles.get(&row.id).is_some_and(has_other) {
            handles.remove(&row.id);
        }
        let handle = self.handle(&mut handles, row)?;
        handle.session = Some(session.clone());
        Some(handle.host.clone())
    }

    /// Returns a handle for a host whose session has ended. `None` if it has another session.
    pub(super) fn open_ended(&self, row: &HostRow) -> Option<Arc<Host>> {
        let mut handles = self.handles.lock();
        let handle = self.handle(&mut handles, row)?;
        handle.session.is_none().then(|| handle.host.clone())
    }

    /// Returns the handle of a host, which has the address of the row.
    fn handle<'a>(
        &self,
        handles: &'a mut HashMap<HostId, Handle>,
        row: &HostRow,
    ) -> Option<&'a mut Handle> {
        let address = row.address?;
        let handle = handles.entry(row.id.clone()).or_insert_with(|| {
            let (id, access) = (row.id.clone(), AgentAccess::Certificate(row.id.clone()));
            let (host, controller) = Host::new(id, address, access, self.client.clone());
            Handle {
                host: Arc::new(host),
                controller,
                session: None,
            }
        });
        handle.controller.set_state(HostState::Listening(address));
        Some(handle)
    }

    /// Returns the hosts that have a handle, with the session that ends if they lose it.
    pub(super) fn sessions(&self) -> Vec<(HostId, Option<BrowserId>)> {
        let handles = self.handles.lock();
        let sessions = handles.iter();
        sessions
            .map(|(id, handle)| (id.clone(), handle.session.clone()))
            .collect()
    }

    /// Publishes the address of the row if the host has a handle.
    pub(super) fn update(&self, row: &HostRow) {
        if let (Some(address), Some(handle)) = (row.address, self.handles.lock().get(&row.id)) {
            handle.controller.set_state(HostState::Listening(address));
        }
    }

    /// Declares that a session is about to end in order.
    fn forget_session(&self, id: &HostId, session: &BrowserId) {
        if let Some(handle) = self.handles.lock().get_mut(id)
            && handle.session.as_ref() == Some(session)
        {
            handle.session = None;
        }
    }

    /// Ends a session that its host has lost. Returns false if it is about to end already.
    pub(super) fn end_lost(&self, id: &HostId, session: &BrowserId) -> bool {
        let mut handles = self.handles.lock();
        let is_open = |handle: &Handle| handle.session.as_ref() == Some(session);
        handles.get(id).is_some_and(is_open) && handles.remove(id).is_some()
    }

    /// Forgets a session that another process has ended.
    pub(super) fn forget(&self, id: &HostId, session: &BrowserId) {
        self.forget_session(id, session);
        self.close_unused(id);
    }

    /// Removes the handle of a host that this process does not use any more.
    pub(super) fn close_unused(&self, id: &HostId) {
        let mut handles = self.handles.lock();
        if handles
            .get(id)
            .is_some_and(|handle| handle.session.is_none())
        {
            handles.remove(id);
        }
    }

    /// Begins to end a session at a host. Returns `None` if another task does that.
    pub(super) fn settle(&self, id: &HostId) -> Option<SettleGuard> {
        let is_first = self.settling.lock().insert(id.clone());
        is_first.then(|| SettleGuard {
            host: id.clone(),
            settling: self.settling.clone(),
        })
    }

    /// Returns at how many hosts this process is ending a session.
    pub(super) fn settling(&self) -> usize {
        self.settling.lock().len()
    }
}

impl SettleGuard {
    pub(super) fn host(&self) -> &HostId {
        &self.host
    }
}

impl Drop for SettleGuard {
    fn drop(&mut self) {
        self.settling.lock().remove(&self.host);
    }
}

impl Hosts {
    /// Begins a session at a registered host. Returns `None` if the host does not respond; it is
    /// recycled then, or lost.
    pub(super) async fn begin_registered(
        &self,
        row: &HostRow,
        session: &BrowserId,
    ) -> Option<Lease> {
        let host = self.inner.handles.open(row)?;
        let generation = row.life.generation;
        match self.probe(&host, generation).await {
            Ok(viewport) => Some(Lease::new(host, generation, false, viewport)),
            Err(error) => {
                tracing::warn!(host = %row.id, error, "a registered host does not respond");
                // Before the next claim: a session has one host.
                if let Some(guard) = self.end_tenancy(&host, generation, session).await {
                    let this = self.clone();
                    self.inner
                        .shutdown
                        .spawn(async move { this.settle(guard).await });
                }
                None
            }
        }
    }

    /// Waits until a host responds, and returns its viewport, with which the session begins.
    async fn probe(&self, host: &Host, generation: u64) -> Result<Viewport, String> {
        let ready = host.wait_ready(generation, RESPONSE_TIMEOUT).await;
        ready.map_err(|error| error.to_string())?;
        let endpoint = host.endpoint(Some(generation), RESPONSE_TIMEOUT).await;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let viewport = host.client().viewport(&endpoint, RESPONSE_TIMEOUT).await;
        viewport.map_err(|error| error.to_string())
    }

    /// Waits until a session may get a registered host that is being recycled. Returns false if
    /// there is none until `deadline`.
    pub(super) async fn wait_for_host(
        &self,
        launch: &LaunchOptions,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        let Inner { store, changed, .. } = &*self.inner;
        let (mode, viewport) = (launch.mode, launch.viewport);
        let changed = changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let is_expected = store
            .expects_host(Fleet::Registered, mode, viewport, Utc::now())
            .await?;
        let remaining = deadline.saturating_duration_since(Instant::now());
        if !is_expected || remaining.is_zero() {
            return Ok(false);
        }
        // Notified or not, the next attempt shows.
        let _ = timeout(remaining.min(CLAIM_INTERVAL), changed).await;
        Ok(true)
    }

    /// Ends a session at a registered host, and returns when what it had is gone. If the agent does
    /// not respond, the reconciler tries again.
    pub(super) async fn release_registered(
        &self,
        host: &Host,
        generation: u64,
        session: &BrowserId,
        after: AfterSession,
    ) {
        if after == AfterSession::Retire
            && let Err(error) = self.apply(host.id(), Event::Drain).await
        {
            tracing::warn!(host = %host.id(), %error, "a host is recycled instead of replaced");
        }
        if let Some(guard) = self.end_tenancy(host, generation, session).await {
            self.settle(guard).await;
        }
    }

    /// Records that a session has no host any more. Returns the right to end it at the agent,
    /// unless another task has it.
    async fn end_tenancy(
        &self,
        host: &Host,
        generation: u64,
        session: &BrowserId,
    ) -> Option<SettleGuard> {
        let handles = &self.inner.handles;
        // Before the row changes, so that the reconciler leaves the host to this task.
        let guard = handles.settle(host.id());
        handles.forget_session(host.id(), session);
        match self.apply(host.id(), Event::Release(session.clone())).await {
            Ok(_) => guard,
            Err(ApplyError::Store(error)) => {
                tracing::error!(host = %host.id(), %error, "cannot record the end of a session");
                // Its programs must not run on meanwhile. The reconciler ends it again.
                if let Err(error) = host.end_session(generation).await {
                    tracing::warn!(host = %host.id(), %error, "cannot end a session");
                }
                None
            }
            Err(error) => {
                tracing::debug!(host = %host.id(), %error);
                None
            }
        }
    }

    /// Forgets a session that another process has ended.
    pub fn forget(&self, lease: &Lease, session: &BrowserId) {
        self.inner.handles.forget(lease.host().id(), session);
    }

    /// Continues a session at this generation of a host: that of another process, or of an idle
    /// browser of a pool. Returns `None` if the host has lost it.
    pub async fn resume(
        &self,
        session: &BrowserId,
        host: &HostId,
        generation: u64,
        viewport: Viewport,
    ) -> Result<Option<Lease>, StoreError> {
        let row = self.inner.store.find_host(host).await?;
        let is_own = |row: &HostRow| {
            row.life.state == State::Leased
                && row.life.generation == generation
                && row.life.session.as_ref() == Some(session)
        };
        let row = row.filter(is_own);
        Ok(row.and_then(|row| self.resume_on(&row, session, viewport)))
    }

    /// Continues a session of a leased host, whose row names it. Returns `None` if the host has
    /// lost it.
    pub fn resume_on(
        &self,
        row: &HostRow,
        session: &BrowserId,
        viewport: Viewport,
    ) -> Option<Lease> {
        let host = match self.inner.fleet {
            Fleet::Local => self.rename_session(&row.id, session),
            Fleet::Registered => self.inner.handles.open(row),
        };
        Some(Lease::new(host?, row.life.generation, false, viewport))
    }
}
