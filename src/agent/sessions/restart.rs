//! The restart of the agent by its service manager, or its replacement by another program, which
//! continues with the current session.

use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::{RequestGuard, Sessions};
use crate::agent::Agent;

impl Sessions {
    /// Has the agent replaced by the program on disk, which continues with the current session once
    /// nothing else is in use, or end when no session uses it any more, so that its service manager
    /// starts it again. Without control that is at the end of the current session; with control,
    /// when control has leased its host to none.
    pub(in crate::agent) fn request_restart(&self) {
        if !self.inner.restarting.send_replace(true) {
            tracing::info!(
                "restart requested: the agent is replaced, or ends when no session uses it"
            );
        }
    }

    /// Returns whether no further session begins until the agent has started again.
    pub(in crate::agent) fn is_restarting(&self) -> bool {
        *self.inner.restarting.borrow()
    }

    /// Waits until a restart is requested.
    pub(in crate::agent) async fn restart_requested(&self) {
        let mut restarting = self.watch_restarting();
        // Fails only if nothing can request one any more.
        let _ = restarting.wait_for(|is_restarting| *is_restarting).await;
    }

    /// Returns a receiver that changes when a restart is requested.
    pub(in crate::agent) fn watch_restarting(&self) -> watch::Receiver<bool> {
        self.inner.restarting.subscribe()
    }

    /// Ends the agent, of which a restart was requested, and which no session uses.
    pub(in crate::agent) fn end_for_restart(&self) {
        tracing::info!("no session uses the agent, which ends to be started again");
        self.inner.shutdown.request();
    }

    /// Counts a request that is for no session, so that no handover interrupts it. Returns `None`
    /// during a handover.
    pub(in crate::agent) fn begin_request(&self) -> Option<RequestGuard> {
        self.current().agent.session.requests.begin()
    }

    /// Records that a client has the current session, as control says.
    pub(in crate::agent) fn set_leased(&self) {
        let generation = self.current().agent.session.generation;
        self.inner.leased.store(generation, Ordering::Relaxed);
    }

    /// Returns whether a client may use the current session: without control always.
    pub(in crate::agent) fn may_be_in_use(&self) -> bool {
        let leased = self.inner.leased.load(Ordering::Relaxed);
        self.inner.config.control.is_none() || leased == self.current().agent.session.generation
    }

    /// Requests the handover if `is_unused` returns true for the current session after requests to
    /// it are refused. The prepared session is discarded. Returns whether it was requested.
    pub(in crate::agent) fn begin_handover(&self, is_unused: impl FnOnce(&Agent) -> bool) -> bool {
        // Held while a session ends, or the next one is prepared.
        let Ok(mut spare) = self.inner.spare.try_lock() else {
            return false;
        };
        if !self.may_be_in_use() {
            return false;
        }
        let current = self.current().agent;
        let requests = &current.session.requests;
        if !requests.close_if_none() {
            return false;
        }
        if !is_unused(&current) || !self.inner.shutdown.request_handover() {
            requests.reopen();
            return false;
        }
        if let Some(spare) = spare.take() {
            spare.agent.session.shutdown.discard();
        }
        true
    }
}
