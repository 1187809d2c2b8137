//! The table of watches, and the thread that passes each event to all of them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use notify::Event;
use parking_lot::Mutex;

use super::{WatchError, inotify::Inotify, state::WatchState};

/// The limit on queued events. Further ones are lost, which every watch reports.
const MAX_QUEUED: usize = 1 << 16;
/// The time that the first half of a move waits for the second, which the kernel queues right after
/// it.
const MOVE_TIMEOUT: Duration = Duration::from_millis(20);

/// The state shared by the watcher, its watches and the dispatch thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) inotify: Mutex<Inotify>,
    pub(super) watches: Mutex<WatchTable>,
}

#[derive(Debug, Default)]
pub(super) struct WatchTable {
    states: HashMap<u64, WatchState>,
    last_id: u64,
}

impl WatchTable {
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut WatchState> {
        self.states.get_mut(&id)
    }
}

impl Shared {
    pub(super) fn register(&self, state: WatchState) -> u64 {
        let mut watches = self.watches.lock();
        watches.last_id += 1;
        let id = watches.last_id;
        watches.states.insert(id, state);
        id
    }

    pub(super) fn unregister(&self, id: u64) {
        let state = self.watches.lock().states.remove(&id);
        // Dropped without the lock, as it releases many directories.
        drop(state);
    }
}

/// Starts the inotify instance and the dispatch thread.
pub(super) fn start() -> Result<Arc<Shared>, WatchError> {
    let (sender, events) = sync_channel(MAX_QUEUED);
    let missed = Arc::new(AtomicBool::new(false));
    let shared = Arc::new(Shared {
        inotify: Mutex::new(Inotify::start(sender, missed.clone())?),
        watches: Mutex::default(),
    });
    let weak = Arc::downgrade(&shared);
    thread::Builder::new()
        .name("watch".into())
        .spawn(move || dispatch_events(&events, &missed, &weak))
        .map_err(|error| WatchError::Other(error.to_string()))?;
    Ok(shared)
}

/// Runs until the watcher and its last watch are dropped.
fn dispatch_events(events: &Receiver<Event>, missed: &AtomicBool, shared: &Weak<Shared>) {
    let mut has_pending_move = false;
    loop {
        let event = if has_pending_move {
            events.recv_timeout(MOVE_TIMEOUT)
        } else {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut watches = shared.watches.lock();
        let states = &mut watches.states;
        if missed.swap(false, Ordering::AcqRel) {
            states.retain(|_, state| state.handle_overflow());
        }
        match event {
            Ok(event) => states.retain(|_, state| state.handle_event(&event)),
            Err(RecvTimeoutError::Timeout) => {
                states.values_mut().for_each(WatchState::flush_pending_move);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        has_pending_move = states.values().any(WatchState::has_pending_move);
    }
}
