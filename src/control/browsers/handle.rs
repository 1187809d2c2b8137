//! A browser that has a host, and the only place where its state changes.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{
        MutexGuard as AsyncMutexGuard, Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore,
    },
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::state::{Actions, EndReason, Event, Rejected, State};
use crate::{
    api::ids::{BrowserId, PoolId, ProjectId},
    control::{activity::Activity, fleet::Lease, store::Fleet},
};

/// The most updates that wait for the one in progress.
pub(super) const MAX_WAITING_UPDATES: usize = 16;

/// A browser with its host, state and activity.
pub(in crate::control) struct BrowserHandle {
    id: BrowserId,
    project: ProjectId,
    lease: Lease,
    /// The pool that the browser was leased from.
    pool: Option<PoolId>,
    idle_timeout: Duration,
    activity: Arc<Activity>,
    ended: CancellationToken,
    replays_changed: Arc<Notify>,
    state: Mutex<State>,
    use_recorded: Mutex<RecordedUse>,
    /// Serializes attempts to end the browser, in which its row is changed first.
    ending: tokio::sync::Mutex<()>,
    /// Serializes updates, because each consists of several steps.
    updates: Arc<tokio::sync::Mutex<()>>,
    /// Has a permit for each update that runs or waits.
    update_permits: Arc<Semaphore>,
}

/// The uses of a browser that this process has recorded in its row.
#[derive(Debug, Clone, Copy)]
struct RecordedUse {
    /// All uses here until then are recorded.
    at: Instant,
    /// Whether there were any.
    has_any: bool,
}

/// Exclusive permission to update a browser, until it is dropped.
pub(super) struct UpdateGuard {
    _lock: OwnedMutexGuard<()>,
    _permit: OwnedSemaphorePermit,
}

impl BrowserHandle {
    pub(super) fn new(
        id: BrowserId,
        project: ProjectId,
        lease: Lease,
        pool: Option<PoolId>,
        idle_timeout: Duration,
    ) -> BrowserHandle {
        BrowserHandle {
            id,
            project,
            lease,
            pool,
            idle_timeout,
            activity: Arc::new(Activity::new()),
            ended: CancellationToken::new(),
            replays_changed: Arc::default(),
            state: Mutex::new(State::Creating),
            use_recorded: Mutex::new(RecordedUse {
                at: Instant::now(),
                has_any: false,
            }),
            ending: tokio::sync::Mutex::default(),
            updates: Arc::default(),
            update_permits: Arc::new(Semaphore::new(1 + MAX_WAITING_UPDATES)),
        }
    }

    /// Returns an active browser of another process, with its idle timeout and the time that it has
    /// been idle for.
    pub(super) fn resumed(
        id: BrowserId,
        project: ProjectId,
        lease: Lease,
        pool: Option<PoolId>,
        (idle_timeout, idle): (Duration, Duration),
    ) -> BrowserHandle {
        BrowserHandle {
            activity: Arc::new(Activity::idle_since(idle)),
            state: Mutex::new(State::Active),
            ..BrowserHandle::new(id, project, lease, pool, idle_timeout)
        }
    }

    /// Returns whether the browser was used here since that was last recorded. Unless it is the
    /// first use, not before `interval` has passed since.
    pub(super) fn has_unrecorded_use(&self, interval: Duration) -> bool {
        let recorded = *self.use_recorded.lock();
        let elapsed = recorded.at.elapsed();
        let was_used = self.activity.idle_for().is_none_or(|idle| idle < elapsed);
        was_used && (!recorded.has_any || elapsed >= interval)
    }

    /// Notes that the use of the browser until `at` is recorded.
    pub(super) fn set_use_recorded(&self, at: Instant) {
        *self.use_recorded.lock() = RecordedUse { at, has_any: true };
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// Returns whether the browser has been idle for its idle timeout.
    pub(super) fn is_idle(&self) -> bool {
        let idle = self.activity.idle_for();
        idle.is_some_and(|idle| idle >= self.idle_timeout)
    }

    /// Notes that the browser was last used some time ago, at another process.
    pub(super) fn set_idle(&self, idle: Duration) {
        let now = Instant::now();
        let used_at = now.checked_sub(idle).unwrap_or(now);
        self.activity.touch_at(used_at);
        let mut recorded = self.use_recorded.lock();
        recorded.at = recorded.at.max(used_at);
    }

    /// Returns how long the browser has been idle here.
    pub(super) fn idle_for(&self) -> Duration {
        self.activity.idle_for().unwrap_or_default()
    }

    /// Waits for other attempts to end the browser.
    pub(super) async fn lock_end(&self) -> AsyncMutexGuard<'_, ()> {
        self.ending.lock().await
    }

    /// Returns whether the browser goes on when this process ends.
    pub(super) fn survives_control(&self) -> bool {
        self.lease.host().fleet() == Fleet::Registered
    }

    pub(in crate::control) fn id(&self) -> &BrowserId {
        &self.id
    }

    pub(super) fn project(&self) -> &ProjectId {
        &self.project
    }

    pub(in crate::control) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the pool that the browser was leased from.
    pub(super) fn pool(&self) -> Option<&PoolId> {
        self.pool.as_ref()
    }

    pub(in crate::control) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Returns the token that is cancelled when clients no longer find the browser.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Returns the signal that wakes the replay collector.
    pub(super) fn replays_changed(&self) -> &Arc<Notify> {
        &self.replays_changed
    }

    /// Returns whether clients find the browser.
    pub(super) fn is_visible(&self) -> bool {
        self.state().is_visible()
    }

    /// Returns whether the browser ends although its host is well.
    pub(super) fn ends_in_order(&self) -> bool {
        matches!(
            *self.state(),
            State::Deleting(EndReason::Deleted | EndReason::Idle)
        )
    }

    /// Returns whether no client has seen the browser, and none will.
    pub(super) fn is_discarded(&self) -> bool {
        *self.state() == State::Discarded
    }

    /// Returns why the browser ends, or has ended. `None` if it does not, or at another process.
    pub(super) fn end_reason(&self) -> Option<EndReason> {
        match *self.state() {
            State::Deleting(reason) | State::Deleted(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns whether clients of `project` find the browser.
    pub(super) fn is_visible_to(&self, project: &ProjectId) -> bool {
        self.project == *project && self.is_visible()
    }

    /// Restarts the idle time. Returns false if clients no longer find the browser.
    pub(super) fn touch(&self) -> bool {
        let state = self.state();
        if state.is_visible() {
            self.activity.touch();
        }
        state.is_visible()
    }

    /// Resolves when the browser has been idle for its idle timeout.
    pub(super) async fn wait_idle(&self) {
        self.activity.idle_at_least(self.idle_timeout).await;
    }

    /// Waits for the updates before this one. Returns `None` if [`MAX_WAITING_UPDATES`] wait
    /// already. Dropping the future leaves the queue.
    pub(super) async fn lock_updates(&self) -> Option<UpdateGuard> {
        let permit = self.update_permits.clone().try_acquire_owned().ok()?;
        Some(UpdateGuard {
            _lock: self.updates.clone().lock_owned().await,
            _permit: permit,
        })
    }

    /// Applies an event. The caller must run the returned actions.
    pub(super) fn apply(&self, event: Event) -> Result<Actions, Rejected> {
        let mut state = self.state();
        let actions = Self::apply_to(&mut state, event)?;
        if event == Event::Published {
            // The start may have taken longer than the idle timeout.
            self.activity.touch();
        }
        Ok(actions)
    }

    /// Applies an event if the browser has been idle for its idle timeout and the state allows it.
    /// The caller must run the returned actions.
    pub(super) fn apply_if_idle(&self, event: Event) -> Option<Actions> {
        let mut state = self.state();
        if self.is_idle() {
            Self::apply_to(&mut state, event).ok()
        } else {
            None
        }
    }

    fn apply_to(state: &mut State, event: Event) -> Result<Actions, Rejected> {
        let (next, actions) = state.apply(event)?;
        *state = next;
        Ok(actions)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        api::{ids::HostId, viewport::Viewport},
        control::fleet::{AgentAccess, AgentClient, Host},
    };

    fn browser() -> BrowserHandle {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (access, client) = (AgentAccess::Token("".into()), AgentClient::default());
        let (host, _controller) = Host::new(HostId::generate(), address, access, client);
        let lease = Lease::new(Arc::new(host), 1, true, Viewport::default());
        let (id, project) = (BrowserId::generate(), ProjectId::generate());
        BrowserHandle::new(id, project, lease, None, Duration::from_secs(10))
    }

    #[test]
    fn idle_time_starts_when_clients_find_the_browser() {
        let browser = browser();
        browser.apply(Event::Ready).unwrap();
        let before = Instant::now();
        browser.apply(Event::Published).unwrap();
        let idle = browser.activity().idle_for().unwrap();
        assert!(idle <= before.elapsed(), "{idle:?}");
    }

    #[test]
    fn use_is_recorded_at_once_and_then_at_intervals() {
        let browser = browser();
        let interval = Duration::from_secs(3600);
        assert!(!browser.has_unrecorded_use(Duration::ZERO));
        browser.activity().touch();
        assert!(browser.has_unrecorded_use(interval));
        browser.set_use_recorded(Instant::now());
        assert!(!browser.has_unrecorded_use(Duration::ZERO));
        let in_use = browser.activity().begin();
        assert!(!browser.has_unrecorded_use(interval));
        assert!(browser.has_unrecorded_use(Duration::ZERO));
        drop(in_use);
    }

    #[test]
    fn use_at_another_process_is_none_here() {
        let browser = browser();
        browser.set_idle(Duration::ZERO);
        assert!(!browser.has_unrecorded_use(Duration::ZERO));
        // A use before the last known one changes nothing.
        browser.set_idle(Duration::from_secs(60));
        assert!(!browser.is_idle());
    }
}
