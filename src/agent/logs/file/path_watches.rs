//! Watches on every directory entry that takes part in the resolution of a path, so that a change
//! of any of them is noticed.

use std::{
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::errno::Errno;
use tokio::sync::Notify;

use crate::{
    agent::{fs::files::FileError, logs::OpenLogError},
    system::files::{
        root::RootDirectory,
        watcher::{Change, SharedWatcher, Watch, WatchError},
    },
};

/// The longest chain of symbolic links that is followed; the kernel follows no more either.
const MAX_LINKS: usize = 40;

/// The watches on the path of a log.
pub(super) struct PathWatches {
    watcher: SharedWatcher,
    signals: Arc<Signals>,
    watches: Vec<EntryWatch>,
}

/// A watch on the directory of one entry.
struct EntryWatch {
    path: PathBuf,
    _watch: Watch,
}

/// The flags that the watches set for the reader.
struct Signals {
    changed: Arc<Notify>,
    /// A watched directory is gone.
    directory_gone: AtomicBool,
    /// The file that is read no longer has the path, and may have any name. Every change in the
    /// watched directories is then reported.
    detached: AtomicBool,
}

impl PathWatches {
    pub(super) fn new(watcher: SharedWatcher, changed: Arc<Notify>) -> Self {
        let signals = Signals {
            changed,
            directory_gone: AtomicBool::new(false),
            detached: AtomicBool::new(false),
        };
        PathWatches {
            watcher,
            signals: Arc::new(signals),
            watches: Vec::new(),
        }
    }

    /// Watches the directories of all entries that `path` is resolved through. Returns `true` if
    /// they changed, so that earlier changes may have gone unnoticed.
    pub(super) fn update(&mut self, path: &Path) -> Result<bool, OpenLogError> {
        let entries = resolution_entries(self.watcher.root(), path).map_err(FileError::from)?;
        let directory_gone = self.signals.directory_gone.swap(false, Ordering::AcqRel);
        let watched = self.watches.iter().map(|watch| &watch.path);
        if !directory_gone && watched.eq(&entries) {
            return Ok(false);
        }
        let watcher = self.watcher.get()?;
        let mut watches = Vec::new();
        for path in entries {
            let signals = self.signals.clone();
            let entry = path.clone();
            let directory = path.parent().unwrap_or(&path);
            let on_change = move |change| signals.handle_change(&entry, &change);
            match watcher.watch(directory, false, on_change) {
                Ok(watch) => watches.push(EntryWatch {
                    _watch: watch,
                    path,
                }),
                // Just deleted: the path must be resolved again.
                Err(WatchError::NotFound | WatchError::NotADirectory) => {
                    self.signals.directory_gone.store(true, Ordering::Release);
                    return Ok(true);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.watches = watches;
        Ok(true)
    }

    /// Sets whether the file that is read no longer has the path. Returns `true` if that is new.
    pub(super) fn set_detached(&self, detached: bool) -> bool {
        !self.signals.detached.swap(detached, Ordering::AcqRel) && detached
    }
}

impl Signals {
    fn handle_change(&self, entry: &Path, change: &Change) {
        let is_relevant = match change {
            Change::Created { path, .. }
            | Change::Written { path }
            | Change::Deleted { path, .. }
            | Change::Renamed { path, .. } => {
                path == entry || self.detached.load(Ordering::Acquire)
            }
            Change::Overflow => true,
            Change::RootGone => {
                self.directory_gone.store(true, Ordering::Release);
                true
            }
        };
        if is_relevant {
            self.changed.notify_one();
        }
    }
}

/// Returns the directory entries that can change what `path` leads to: each symbolic link on the
/// way, and the file itself or the first missing directory. All are in existing directories.
fn resolution_entries(root: &RootDirectory, path: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut entries, mut resolved) = (Vec::new(), PathBuf::from("/"));
    let mut remaining = reversed_components(path);
    while let Some(component) = remaining.pop() {
        if component == ".." {
            resolved.pop();
            continue;
        }
        let entry = resolved.join(component);
        let reached = root.reach(&entry);
        match fs::read_link(&reached) {
            Ok(target) => {
                entries.push(entry);
                if entries.len() > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                if target.is_absolute() {
                    resolved = PathBuf::from("/");
                }
                remaining.extend(reversed_components(&target));
            }
            Err(_) if remaining.is_empty() || !reached.is_dir() => {
                entries.push(entry);
                break;
            }
            Err(_) => resolved = entry,
        }
    }
    Ok(entries)
}

/// Returns the components of a path as a stack, with the first on top.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let components = path.components().rev();
    let components = components.filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    components.collect()
}
