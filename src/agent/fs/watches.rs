//! Watched directories, and their events until somebody reads them.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use metrics::gauge;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    api::{
        fs::{WatchEvent, WatchEventKind},
        ids::WatchId,
    },
    shutdown::Shutdown,
    streams::{self, Bounds, Log, Reader},
    system::files::watcher::{Change, SharedWatcher, Watch, WatchError},
};

/// Directories that may be watched at once.
pub const MAX_WATCHES: usize = 64;
/// Events that a watch keeps for its readers, and the bytes they may take.
const KEPT: Bounds = Bounds {
    entries: 1 << 17,
    weight: 16 << 20,
};
/// What an event takes besides its paths.
const EVENT_BYTES: usize = 160;
/// How long the last events of a directory that has gone can still be read.
const RETENTION: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum StartWatchError {
    #[error("{MAX_WATCHES} directories are watched, which is the limit")]
    LimitReached,
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("the agent is being stopped")]
    ShuttingDown,
}

/// The watches of this agent; clones share them.
#[derive(Debug, Clone)]
pub struct Watches {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    watches: Mutex<HashMap<WatchId, Place>>,
    watcher: SharedWatcher,
    /// How long a watch lives that nobody reads.
    idle: Duration,
    shutdown: Shutdown,
}

#[derive(Debug)]
enum Place {
    /// It is being set up, which takes as long as the directory is large.
    Taken,
    Watched {
        log: Log<Arc<WatchEvent>>,
        watch: Watch,
    },
}

impl Watches {
    #[must_use]
    pub fn new(idle: Duration, watcher: SharedWatcher, shutdown: &Shutdown) -> Self {
        Watches {
            inner: Arc::new(Inner {
                watches: Mutex::default(),
                watcher,
                idle,
                shutdown: shutdown.clone(),
            }),
        }
    }

    /// Watches a directory from now on.
    ///
    /// # Errors
    /// Where there is no such directory, or one watch too many.
    pub async fn start(&self, path: PathBuf, recursive: bool) -> Result<WatchId, StartWatchError> {
        let id = WatchId::generate();
        let place = self.take_place(id.clone())?;
        let log = Log::new(KEPT);
        let told = log.clone();
        let watcher = self.inner.watcher.clone();
        // The place is taken for as long as the walk goes on, be the caller there or not.
        let watching = tokio::task::spawn_blocking(move || {
            let watch = watcher
                .get()?
                .watch(&path, recursive, move |change| tell(&told, change))?;
            Ok::<_, WatchError>((place, watch))
        });
        let (place, watch) = watching
            .await
            .map_err(|error| WatchError::Other(error.to_string()))??;
        place.fill(log.clone(), watch);
        let (watches, expired) = (self.clone(), id.clone());
        let stop = self.inner.shutdown.token();
        self.inner.shutdown.spawn(async move {
            tokio::select! {
                () = log.unread_for(watches.inner.idle) => {}
                () = async {
                    log.ended().await;
                    tokio::time::sleep(RETENTION).await;
                } => {}
                () = stop.cancelled() => {}
            }
            watches.stop(&expired);
        });
        Ok(id)
    }

    /// The events of a watch; `None` where there is no such watch.
    #[must_use]
    pub fn events(&self, id: &WatchId, from: streams::From) -> Option<Reader<Arc<WatchEvent>>> {
        match self.inner.watches().get(id) {
            Some(Place::Watched { log, .. }) => Some(log.reader(from)),
            _ => None,
        }
    }

    /// Ends a watch and its readers' streams; `false` where there is no such watch.
    pub fn stop(&self, id: &WatchId) -> bool {
        let is_watched = |place: &Place| matches!(place, Place::Watched { .. });
        match self.inner.remove_if(id, is_watched) {
            Some(Place::Watched { log, watch }) => {
                log.end();
                tokio::task::spawn_blocking(move || drop(watch));
                true
            }
            _ => false,
        }
    }

    fn take_place(&self, id: WatchId) -> Result<TakenPlace, StartWatchError> {
        if self.inner.shutdown.stopping() {
            return Err(StartWatchError::ShuttingDown);
        }
        let mut watches = self.inner.watches();
        if watches.len() >= MAX_WATCHES {
            return Err(StartWatchError::LimitReached);
        }
        watches.insert(id.clone(), Place::Taken);
        drop(watches);
        Ok(TakenPlace {
            inner: self.inner.clone(),
            id,
        })
    }
}

impl Inner {
    fn set(&self, id: WatchId, place: Place) {
        let mut watches = self.watches();
        watches.insert(id, place);
        gauge!("berth_fs_watches").set(watches.len() as f64);
    }

    /// What was there; a watch ends when that is dropped.
    fn remove_if(&self, id: &WatchId, is_meant: impl Fn(&Place) -> bool) -> Option<Place> {
        let mut watches = self.watches();
        if !watches.get(id).is_some_and(is_meant) {
            return None;
        }
        let removed = watches.remove(id);
        gauge!("berth_fs_watches").set(watches.len() as f64);
        removed
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<WatchId, Place>> {
        self.watches.lock()
    }
}

/// A place that is free again when this is dropped before it was filled: the caller may go away meanwhile.
struct TakenPlace {
    inner: Arc<Inner>,
    id: WatchId,
}

impl TakenPlace {
    fn fill(self, log: Log<Arc<WatchEvent>>, watch: Watch) {
        let place = Place::Watched { log, watch };
        self.inner.set(self.id.clone(), place);
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let is_taken = |place: &Place| matches!(place, Place::Taken);
        self.inner.remove_if(&self.id, is_taken);
    }
}

fn tell(log: &Log<Arc<WatchEvent>>, change: Change) {
    if change == Change::Gone {
        log.end();
        return;
    }
    let event = describe(change);
    let paths = [&event.path, &event.name, &event.new_path, &event.old_path];
    let weight = paths.into_iter().flatten().map(String::len).sum::<usize>() + EVENT_BYTES;
    log.append(Arc::new(event), weight);
}

fn describe(change: Change) -> WatchEvent {
    let event = |kind, path: PathBuf, is_dir| WatchEvent {
        kind,
        name: path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
        path: Some(text(path)),
        is_dir: Some(is_dir),
        new_path: None,
        old_path: None,
        missed: None,
    };
    match change {
        Change::Created { path, is_dir, from } => WatchEvent {
            old_path: from.map(text),
            ..event(WatchEventKind::Create, path, is_dir)
        },
        Change::Written { path } => event(WatchEventKind::Write, path, false),
        Change::Deleted { path, is_dir } => event(WatchEventKind::Delete, path, is_dir),
        Change::Renamed { path, is_dir, to } => WatchEvent {
            new_path: to.map(text),
            ..event(WatchEventKind::Rename, path, is_dir)
        },
        Change::Overflow | Change::Gone => overflow_event(None),
    }
}

fn text(path: PathBuf) -> String {
    let text = path.into_os_string().into_string();
    text.unwrap_or_else(|path| path.to_string_lossy().into_owned())
}

/// Events were lost, so many where that is known.
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
