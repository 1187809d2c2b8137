//! The clients of this process that wait for browsers of pools.
//!
//! Their order is that of their tickets in the database. Only the process that a client is
//! connected to knows whether it still waits.

use std::collections::{BTreeMap, HashMap, HashSet};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{PoolError, hand_over::PendingLease};
use crate::{
    api::ids::PoolId,
    control::store::{NewBrowserRow, PoolRow, WaiterTicket},
};

/// The result of a wait.
pub(super) type Granted = Result<PendingLease, PoolError>;

/// A client that waits.
pub(super) struct LocalWaiter {
    /// Returns the row of the browser that the client gets.
    pub(super) new_row: Box<dyn Fn(&PoolRow) -> NewBrowserRow + Send + Sync>,
    pub(super) sender: oneshot::Sender<Granted>,
    /// The time at which the client gives up.
    pub(super) deadline: Instant,
}

impl LocalWaiter {
    fn has_given_up(&self) -> bool {
        self.sender.is_closed() || Instant::now() >= self.deadline
    }
}

/// The clients of this process that wait.
#[derive(Default)]
pub(super) struct WaitQueue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<PoolId, BTreeMap<WaiterTicket, LocalWaiter>>,
    /// The tickets to remove: their clients do not wait any more.
    unused: HashMap<PoolId, Vec<WaiterTicket>>,
    /// The pools that may have an available browser, or another first waiter.
    to_serve: HashSet<PoolId>,
}

impl WaitQueue {
    /// Adds a client, and requests service for its pool.
    pub(super) fn add(&self, pool: &PoolId, ticket: WaiterTicket, waiter: LocalWaiter) {
        {
            let mut state = self.state.lock();
            let waiting = state.waiting.entry(pool.clone()).or_default();
            waiting.insert(ticket, waiter);
            state.to_serve.insert(pool.clone());
        }
        self.changed.notify_one();
    }

    /// Takes the client with a ticket out of the queue. Returns `None` if it does not wait.
    pub(super) fn take(&self, pool: &PoolId, ticket: WaiterTicket) -> Option<LocalWaiter> {
        take_from(&mut self.state.lock(), pool, ticket)
    }

    /// Puts a client back. It leaves if it has given up meanwhile.
    pub(super) fn put_back(&self, pool: &PoolId, ticket: WaiterTicket, waiter: LocalWaiter) {
        let mut state = self.state.lock();
        if waiter.has_given_up() {
            // Its wait ends when the sender is dropped.
            state.unused.entry(pool.clone()).or_default().push(ticket);
        } else {
            let waiting = state.waiting.entry(pool.clone()).or_default();
            waiting.insert(ticket, waiter);
        }
    }

    /// Removes a client that does not wait any more. Returns false if it is being served.
    pub(super) fn leave(&self, pool: &PoolId, ticket: WaiterTicket) -> bool {
        let was_waiting = {
            let mut state = self.state.lock();
            let was_waiting = take_from(&mut state, pool, ticket).is_some();
            if was_waiting {
                state.unused.entry(pool.clone()).or_default().push(ticket);
            }
            was_waiting
        };
        self.changed.notify_one();
        was_waiting
    }

    /// Requests service for a pool, if a client of this process waits for it.
    pub(super) fn serve(&self, pool: &PoolId) {
        {
            let mut state = self.state.lock();
            if !state.waiting.contains_key(pool) {
                return;
            }
            state.to_serve.insert(pool.clone());
        }
        self.changed.notify_one();
    }

    /// Returns the signal that a pool is to be served, or that a client has left.
    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Returns the pools that are to be served, once.
    pub(super) fn take_to_serve(&self) -> HashSet<PoolId> {
        std::mem::take(&mut self.state.lock().to_serve)
    }

    /// Returns the tickets to remove, once.
    pub(super) fn take_unused_tickets(&self) -> HashMap<PoolId, Vec<WaiterTicket>> {
        std::mem::take(&mut self.state.lock().unused)
    }

    /// Has tickets removed whose clients do not wait.
    pub(super) fn remove_tickets(&self, pool: PoolId, tickets: Vec<WaiterTicket>) {
        self.retry_removal(pool, tickets);
        self.changed.notify_one();
    }

    /// Keeps tickets that could not be removed for the next attempt.
    pub(super) fn retry_removal(&self, pool: PoolId, tickets: Vec<WaiterTicket>) {
        let mut state = self.state.lock();
        state.unused.entry(pool).or_default().extend(tickets);
    }

    /// Returns whether a client waits for a pool.
    pub(super) fn is_waited_for(&self, pool: &PoolId) -> bool {
        self.state.lock().waiting.contains_key(pool)
    }

    /// Returns whether any client waits.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Returns the tickets of all clients that wait, with their pools.
    pub(super) fn tickets(&self) -> HashMap<WaiterTicket, PoolId> {
        let state = self.state.lock();
        let waiting = state.waiting.iter();
        let tickets = waiting.flat_map(|(pool, waiting)| {
            let tickets = waiting.keys().copied();
            tickets.map(move |ticket| (ticket, pool.clone()))
        });
        tickets.collect()
    }

    /// Takes all clients that wait for a pool out of the queue.
    pub(super) fn take_all(&self, pool: &PoolId) -> Vec<LocalWaiter> {
        let waiting = self.state.lock().waiting.remove(pool);
        waiting.map_or_else(Vec::new, |waiting| waiting.into_values().collect())
    }
}

fn take_from(state: &mut State, pool: &PoolId, ticket: WaiterTicket) -> Option<LocalWaiter> {
    let waiting = state.waiting.get_mut(pool)?;
    let taken = waiting.remove(&ticket);
    if waiting.is_empty() {
        state.waiting.remove(pool);
    }
    taken
}
