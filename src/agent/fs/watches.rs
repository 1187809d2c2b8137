//! Watched directories, and their events until clients read them.
//!
//! ```text
//! start ──► Reserved ──► Active ──► removed: stopped by the client, unread for too long,
//!              │                    directory gone and retention over, or agent shutdown
//!              └─ failed or abandoned: removed
//! ```

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use metrics::gauge;
use parking_lot::Mutex;

use crate::{
    api::{
        fs::{WatchEvent, WatchEventKind},
        ids::WatchId,
    },
    shutdown::Shutdown,
    streams::{self, Bounds, Log, Reader, WeightBudget},
    system::files::watcher::{Change, SharedWatcher, Watch, WatchError},
};

/// The limit on concurrent watches.
pub const MAX_WATCHES: usize = 64;
/// The limit on buffered events per watch.
const BUFFER_BOUNDS: Bounds = Bounds {
    entries: 1 << 17,
    weight: 16 << 20,
};
/// The limit on buffered events of all watches, in bytes.
const MAX_BUFFERED_BYTES: usize = 128 << 20;
/// The estimated size of an event without its paths.
const EVENT_BYTES: usize = 160;
/// The time that the last events of a deleted directory remain readable.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum StartWatchError {
    #[error("watch limit reached ({MAX_WATCHES})")]
    LimitReached,
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("the agent is shutting down")]
    ShuttingDown,
}

/// The watches of this agent; clones share them.
#[derive(Debug, Clone)]
pub struct Watches {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    slots: Mutex<HashMap<WatchId, Slot>>,
    watcher: SharedWatcher,
    /// The buffered events of all watches.
    budget: WeightBudget,
    /// The time after which a watch without readers is stopped.
    idle_timeout: Duration,
    shutdown: Shutdown,
}

#[derive(Debug)]
enum Slot {
    /// The watch is being set up, which takes as long as the directory is large.
    Reserved,
    Active {
        log: Log<Arc<WatchEvent>>,
        watch: Watch,
    },
}

impl Watches {
    /// Returns the number of watches.
    pub fn count(&self) -> usize {
        self.inner.slots.lock().len()
    }

    #[must_use]
    pub fn new(idle_timeout: Duration, watcher: SharedWatcher, shutdown: &Shutdown) -> Self {
        Watches {
            inner: Arc::new(Inner {
                slots: Mutex::default(),
                watcher,
                budget: WeightBudget::new(MAX_BUFFERED_BYTES),
                idle_timeout,
                shutdown: shutdown.clone(),
            }),
        }
    }

    /// Starts to watch a directory.
    ///
    /// # Errors
    /// If there is no such directory, or a limit is reached.
    pub async fn start(&self, path: PathBuf, recursive: bool) -> Result<WatchId, StartWatchError> {
        let id = WatchId::generate();
        let reservation = self.reserve(id.clone())?;
        let log = Log::with_budget(BUFFER_BOUNDS, self.inner.budget.clone());
        let event_log = log.clone();
        let watcher = self.inner.watcher.clone();
        // The reservation lasts for as long as the walk does, even if the client disconnects.
        let starting = tokio::task::spawn_blocking(move || {
            let on_change = move |change| append_change(&event_log, change);
            let watch = watcher.get()?.watch(&path, recursive, on_change)?;
            Ok::<_, WatchError>((reservation, watch))
        });
        let (reservation, watch) = starting
            .await
            .map_err(|error| WatchError::Other(error.to_string()))??;
        reservation.activate(log.clone(), watch);
        self.spawn_expiry(id.clone(), log);
        Ok(id)
    }

    /// Stops the watch when it is no longer of use.
    fn spawn_expiry(&self, id: WatchId, log: Log<Arc<WatchEvent>>) {
        let watches = self.clone();
        let shutdown = self.inner.shutdown.token();
        self.inner.shutdown.spawn(async move {
            tokio::select! {
                () = log.without_readers_for(watches.inner.idle_timeout) => {}
                () = async {
                    log.closed().await;
                    tokio::time::sleep(RETENTION_INTERVAL).await;
                } => {}
                () = shutdown.cancelled() => {}
            }
            watches.stop(&id);
        });
    }

    /// Returns a reader of a watch's events; `None` if there is no such watch.
    #[must_use]
    pub fn events(&self, id: &WatchId, from: streams::StartAt) -> Option<Reader<Arc<WatchEvent>>> {
        match self.inner.slots.lock().get(id) {
            Some(Slot::Active { log, .. }) => Some(log.reader(from)),
            _ => None,
        }
    }

    /// Stops a watch and ends its readers' streams. Returns `false` if there is no such watch.
    pub fn stop(&self, id: &WatchId) -> bool {
        let is_active = |slot: &Slot| matches!(slot, Slot::Active { .. });
        match self.inner.remove_if(id, is_active) {
            Some(Slot::Active { log, watch }) => {
                log.close();
                tokio::task::spawn_blocking(move || drop(watch));
                true
            }
            _ => false,
        }
    }

    fn reserve(&self, id: WatchId) -> Result<Reservation, StartWatchError> {
        if self.inner.shutdown.is_requested() {
            return Err(StartWatchError::ShuttingDown);
        }
        let mut slots = self.inner.slots.lock();
        if slots.len() >= MAX_WATCHES {
            return Err(StartWatchError::LimitReached);
        }
        slots.insert(id.clone(), Slot::Reserved);
        drop(slots);
        Ok(Reservation {
            inner: self.inner.clone(),
            id,
        })
    }
}

impl Inner {
    fn set(&self, id: WatchId, slot: Slot) {
        let mut slots = self.slots.lock();
        slots.insert(id, slot);
        gauge!("berth_fs_watches").set(slots.len() as f64);
    }

    /// Removes and returns a slot that satisfies the condition. Dropping it ends its watch.
    fn remove_if(&self, id: &WatchId, condition: impl Fn(&Slot) -> bool) -> Option<Slot> {
        let mut slots = self.slots.lock();
        if !slots.get(id).is_some_and(condition) {
            return None;
        }
        let removed = slots.remove(id);
        gauge!("berth_fs_watches").set(slots.len() as f64);
        removed
    }
}

/// A reserved slot. It is freed if this is dropped before the watch is active, as when the setup
/// fails.
struct Reservation {
    inner: Arc<Inner>,
    id: WatchId,
}

impl Reservation {
    fn activate(self, log: Log<Arc<WatchEvent>>, watch: Watch) {
        let slot = Slot::Active { log, watch };
        self.inner.set(self.id.clone(), slot);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let is_reserved = |slot: &Slot| matches!(slot, Slot::Reserved);
        self.inner.remove_if(&self.id, is_reserved);
    }
}

fn append_change(log: &Log<Arc<WatchEvent>>, change: Change) {
    if change == Change::RootGone {
        log.close();
        return;
    }
    let event = to_event(change);
    let paths = [&event.path, &event.name, &event.new_path, &event.old_path];
    let weight = paths.into_iter().flatten().map(String::len).sum::<usize>() + EVENT_BYTES;
    log.append(Arc::new(event), weight);
}

fn to_event(change: Change) -> WatchEvent {
    let event = |kind, path: PathBuf, is_dir| WatchEvent {
        kind,
        name: path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
        path: Some(to_text(path)),
        is_dir: Some(is_dir),
        new_path: None,
        old_path: None,
        missed: None,
    };
    match change {
        Change::Created { path, is_dir, from } => WatchEvent {
            old_path: from.map(to_text),
            ..event(WatchEventKind::Create, path, is_dir)
        },
        Change::Written { path } => event(WatchEventKind::Write, path, false),
        Change::Deleted { path, is_dir } => event(WatchEventKind::Delete, path, is_dir),
        Change::Renamed { path, is_dir, to } => WatchEvent {
            new_path: to.map(to_text),
            ..event(WatchEventKind::Rename, path, is_dir)
        },
        Change::Overflow | Change::RootGone => overflow_event(None),
    }
}

fn to_text(path: PathBuf) -> String {
    let text = path.into_os_string().into_string();
    text.unwrap_or_else(|path| path.to_string_lossy().into_owned())
}

/// Returns the event for lost events, with their number if it is known.
#[must_use]
pub fn overflow_event(missed: Option<u64>) -> WatchEvent {
    WatchEvent {
        kind: WatchEventKind::Overflow,
        path: None,
        name: None,
        is_dir: None,
        new_path: None,
        old_path: None,
        missed,
    }
}
