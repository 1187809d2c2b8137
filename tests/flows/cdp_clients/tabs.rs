//! The tabs of the browser, as all clients of a test know them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The number of tabs that clients may have open at once. Each has a renderer process of its own.
const MAX_TABS: usize = 12;
/// The number of tabs that may hang at once. Each occupies a core.
const MAX_HUNG_TABS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Healthy,
    Crashed,
    Hung,
}

/// The tabs that are open, with their states. A tab is marked before it is crashed, hung or closed,
/// so that a call that is not answered is about a tab that is marked.
pub struct Tabs {
    first: String,
    known: Mutex<Known>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Known {
    states: BTreeMap<String, State>,
    opening: usize,
}

impl Tabs {
    /// Creates the registry with the tab that stays healthy.
    pub fn new(first: &str) -> Self {
        let known = Known {
            states: BTreeMap::from([(first.to_owned(), State::Healthy)]),
            opening: 0,
        };
        Self {
            first: first.to_owned(),
            known: Mutex::new(known),
            changed: watch::Sender::new(()),
        }
    }

    pub fn first(&self) -> &str {
        &self.first
    }

    pub fn ids(&self) -> Vec<String> {
        self.known.lock().states.keys().cloned().collect()
    }

    pub fn is_healthy(&self, tab: &str) -> bool {
        self.known.lock().states.get(tab) == Some(&State::Healthy)
    }

    pub fn is_hung(&self, tab: &str) -> bool {
        self.known.lock().states.get(tab) == Some(&State::Hung)
    }

    /// Returns whether another tab may be opened. The caller then calls [`Self::opened`].
    pub fn reserve(&self) -> bool {
        let mut known = self.known.lock();
        let is_free = known.states.len() + known.opening <= MAX_TABS;
        known.opening += usize::from(is_free);
        is_free
    }

    pub fn opened(&self, tab: &str) {
        let mut known = self.known.lock();
        known.opening -= 1;
        known.states.insert(tab.to_owned(), State::Healthy);
    }

    pub fn mark_crashed(&self, tab: &str) {
        self.mark(tab, State::Crashed);
    }

    /// Marks a tab as hung, unless too many are.
    pub fn mark_hung(&self, tab: &str) -> bool {
        let hung = |state: &&State| **state == State::Hung;
        let count = self.known.lock().states.values().filter(hung).count();
        let is_free = count < MAX_HUNG_TABS;
        if is_free {
            self.mark(tab, State::Hung);
        }
        is_free
    }

    pub fn mark_closed(&self, tab: &str) {
        self.known.lock().states.remove(tab);
        self.changed.send_replace(());
    }

    fn mark(&self, tab: &str, state: State) {
        self.known.lock().states.insert(tab.to_owned(), state);
        self.changed.send_replace(());
    }

    /// Returns a receiver of later changes of states.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
