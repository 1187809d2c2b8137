//! Changes in directories, from inotify.
//!
//! inotify watches single directories. A recursive watch therefore adds every directory below its
//! root, and when a directory appears it lists it, so that the entries created before the directory
//! was watched are reported as well. All watches share one inotify instance, of which a user may
//! have only a few.
//!
//! ```text
//! kernel ─► inotify thread ─► bounded queue ─► dispatch thread ─► WatchState ─► on_change
//!           (crate `notify`)   full: sets the                     one per watch
//!                              `missed` flag
//! ```
//!
//! - [`inotify`]: the instance, with a use count per directory. It never waits for readers.
//! - [`dispatch`]: the thread that passes each event to every watch.
//! - [`state`]: one watch; turns events into [`Change`]s.
//! - [`recursion`]: the set of directories that a watch consists of.
//!
//! The dispatch thread ends when the [`Watcher`] and all its [`Watch`]es are dropped. Where both
//! locks are needed, the table of watches is locked before the inotify instance.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use notify::ErrorKind;
use parking_lot::Mutex;

mod dispatch;
mod inotify;
mod recursion;
mod state;

use dispatch::Shared;
use state::{OnChange, WatchState};

use super::{
    resolve::{LastLink, ResolveError, resolve},
    root::RootDirectory,
};

/// The limit on directories below the roots of recursive watches. A directory that is part of two
/// watches counts twice.
pub const MAX_NESTED: usize = 1 << 16;

/// A change of an entry of a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Created {
        path: PathBuf,
        is_dir: bool,
        /// The previous path, if it was moved here from within the watch.
        from: Option<PathBuf>,
    },
    Written {
        path: PathBuf,
    },
    Deleted {
        path: PathBuf,
        is_dir: bool,
    },
    Renamed {
        path: PathBuf,
        is_dir: bool,
        /// The new path; `None` if it was moved out of the watch.
        to: Option<PathBuf>,
    },
    /// Changes were lost.
    Overflow,
    /// The watched directory was deleted or moved. No more changes follow.
    RootGone,
}

impl Change {
    fn paths_mut(&mut self) -> [Option<&mut PathBuf>; 2] {
        match self {
            Change::Created { path, from, .. } => [Some(path), from.as_mut()],
            Change::Written { path } | Change::Deleted { path, .. } => [Some(path), None],
            Change::Renamed { path, to, .. } => [Some(path), to.as_mut()],
            Change::Overflow | Change::RootGone => [None, None],
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("no such directory")]
    NotFound,
    #[error("is not a directory")]
    NotADirectory,
    #[error("permission denied")]
    PermissionDenied,
    #[error("is protected, or contains a protected directory")]
    Protected,
    #[error("limit of watched subdirectories reached ({MAX_NESTED})")]
    LimitReached,
    #[error("the system's limit of inotify watches is reached")]
    SystemLimit,
    #[error("cannot be watched: {0}")]
    Other(String),
}

/// A watcher that is started when it is first needed; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedWatcher {
    root: RootDirectory,
    started: Arc<Mutex<Option<Arc<Watcher>>>>,
}

/// Watches any number of directories with one inotify instance.
#[derive(Debug)]
pub struct Watcher {
    root: RootDirectory,
    shared: Arc<Shared>,
}

/// A watched directory. Dropping this ends the watch, which takes the longer the more directories
/// are below it.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    id: u64,
}

impl SharedWatcher {
    /// Returns one of paths that start at `root`.
    #[must_use]
    pub fn new(root: RootDirectory) -> Self {
        SharedWatcher {
            root,
            started: Arc::default(),
        }
    }

    #[must_use]
    pub fn root(&self) -> &RootDirectory {
        &self.root
    }

    /// Returns the watcher, and starts it if this is the first call.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn get(&self) -> Result<Arc<Watcher>, WatchError> {
        let mut watcher = self.started.lock();
        if let Some(watcher) = &*watcher {
            return Ok(watcher.clone());
        }
        let started = Arc::new(Watcher::start(self.root.clone())?);
        *watcher = Some(started.clone());
        Ok(started)
    }
}

impl Watcher {
    /// # Errors
    /// If the user's limit of inotify instances is reached.
    pub fn start(root: RootDirectory) -> Result<Self, WatchError> {
        Ok(Watcher {
            root,
            shared: dispatch::start()?,
        })
    }

    /// Watches the directory `path`; with `recursive`, also those below it, except virtual file
    /// systems that are mounted there. The dispatch thread calls `on_change` until the watch is
    /// dropped or [`Change::RootGone`]. A directory above a protected tree is not watched with
    /// `recursive`.
    ///
    /// Blocks while it lists the directories.
    ///
    /// # Errors
    /// If the directory cannot be watched.
    pub fn watch(
        &self,
        path: &Path,
        recursive: bool,
        on_change: impl FnMut(Change) + Send + 'static,
    ) -> Result<Watch, WatchError> {
        let existing = resolve(&self.root, path, LastLink::Follow)?.existing()?;
        if recursive && existing.is_above_protected {
            return Err(WatchError::Protected);
        }
        // inotify identifies directories by inode. With two paths for the same one, its events
        // would be reported under only one of them, so the canonical path is watched.
        let canonical = existing.into_directory()?.path()?;
        let root = self.root.reach(&canonical);
        fs::read_dir(&root)?;
        let on_change = report_below(path.to_owned(), root.clone(), on_change);
        // Registered before anything is watched for it, so that no event is lost.
        let id = self.shared.register(WatchState {
            device: fs::metadata(&root)?.dev(),
            root: root.clone(),
            _start: self.root.clone(),
            recursive,
            shared: Arc::downgrade(&self.shared),
            watched: BTreeSet::new(),
            directories: BTreeSet::new(),
            announced: BTreeSet::new(),
            pending_move: None,
            on_change,
        });
        let watch = Watch {
            shared: self.shared.clone(),
            id,
        };
        self.add_existing(&watch, root)?;
        Ok(watch)
    }

    /// Adds the directories that exist when a watch starts. They are not reported as changes.
    fn add_existing(&self, watch: &Watch, root: PathBuf) -> Result<(), WatchError> {
        let mut pending = vec![root];
        while let Some(directory) = pending.pop() {
            // Locked separately for each directory, so that other watches get their events
            // meanwhile.
            let subdirectories = match self.shared.watches.lock().get_mut(watch.id) {
                Some(state) => state.add_existing(&directory),
                // The root is gone, which was reported.
                None => break,
            };
            pending.extend(subdirectories?);
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.unregister(self.id);
    }
}

impl From<io::Error> for WatchError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => WatchError::NotFound,
            io::ErrorKind::NotADirectory => WatchError::NotADirectory,
            io::ErrorKind::PermissionDenied => WatchError::PermissionDenied,
            // The limit of inotify instances: this process stays far below that of descriptors.
            _ if error.raw_os_error() == Some(nix::libc::EMFILE) => WatchError::SystemLimit,
            _ => WatchError::Other(error.to_string()),
        }
    }
}

impl From<ResolveError> for WatchError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Io(error) => error.into(),
            ResolveError::Protected => WatchError::Protected,
            ResolveError::ForeignLink | ResolveError::NoPath => WatchError::PermissionDenied,
        }
    }
}

impl From<notify::Error> for WatchError {
    fn from(error: notify::Error) -> Self {
        match error.kind {
            ErrorKind::PathNotFound => WatchError::NotFound,
            ErrorKind::MaxFilesWatch => WatchError::SystemLimit,
            ErrorKind::Io(error) => error.into(),
            _ => WatchError::Other(error.to_string()),
        }
    }
}

/// Wraps a callback so that it gets paths below `requested` instead of below `root`, the canonical
/// path of the same directory.
fn report_below(
    requested: PathBuf,
    root: PathBuf,
    mut on_change: impl FnMut(Change) + Send + 'static,
) -> OnChange {
    if requested == root {
        return Box::new(on_change);
    }
    let rewrite = move |path: &mut PathBuf| {
        if *path == root {
            path.clone_from(&requested);
        } else if let Ok(relative) = path.strip_prefix(&root) {
            *path = requested.join(relative);
        }
    };
    Box::new(move |mut change| {
        change.paths_mut().into_iter().flatten().for_each(&rewrite);
        on_change(change);
    })
}
