//! A browser with a host, and the one place where its state changes.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::state::{Action, Event, Refused, State};
use crate::{
    api::ids::{BrowserId, ProjectId},
    control::{activity::Activity, fleet::Host},
};

pub struct BrowserHandle {
    id: BrowserId,
    project: ProjectId,
    host: Host,
    timeout: Duration,
    activity: Arc<Activity>,
    ended: CancellationToken,
    /// Told when there may be something of its replays to be fetched.
    replays_changed: Arc<Notify>,
    state: Mutex<State>,
    /// Changes of one browser take turns: each is several steps.
    changes: tokio::sync::Mutex<()>,
}

impl BrowserHandle {
    pub fn new(id: BrowserId, project: ProjectId, host: Host, timeout: Duration) -> BrowserHandle {
        BrowserHandle {
            id,
            project,
            host,
            timeout,
            activity: Arc::new(Activity::new()),
            ended: CancellationToken::new(),
            replays_changed: Arc::default(),
            state: Mutex::new(State::Creating),
            changes: tokio::sync::Mutex::default(),
        }
    }

    pub fn id(&self) -> &BrowserId {
        &self.id
    }

    pub fn project(&self) -> &ProjectId {
        &self.project
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Cancelled once clients do not find it any more.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    pub fn replays_changed(&self) -> &Arc<Notify> {
        &self.replays_changed
    }

    pub fn is_visible(&self) -> bool {
        self.state().is_visible()
    }

    /// Notes that it is being used; false where clients do not find it any more.
    pub fn touch(&self) -> bool {
        let state = self.state();
        if state.is_visible() {
            self.activity.touch();
        }
        state.is_visible()
    }

    /// Resolves once nobody has used it for its time.
    pub async fn idle(&self) {
        self.activity.idle_at_least(self.timeout).await;
    }

    pub async fn change_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changes.lock().await
    }

    /// The event happens, or is refused; what is to be done is the principal's.
    pub fn apply(&self, event: Event) -> Result<&'static [Action], Refused> {
        Self::apply_to(&mut self.state(), event)
    }

    /// The event happens where nobody has used the browser for its time, and it can apply at all.
    pub fn apply_if_idle(&self, event: Event) -> Option<&'static [Action]> {
        let mut state = self.state();
        let idle = self.activity.idle_for();
        if idle.is_some_and(|idle| idle >= self.timeout) {
            Self::apply_to(&mut state, event).ok()
        } else {
            None
        }
    }

    fn apply_to(state: &mut State, event: Event) -> Result<&'static [Action], Refused> {
        let (next, actions) = state.apply(event)?;
        *state = next;
        Ok(actions)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
