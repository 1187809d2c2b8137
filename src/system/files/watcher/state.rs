//! The state of a watch, which turns inotify events into changes.

use std::{
    collections::BTreeSet,
    fmt, fs, mem,
    path::{Path, PathBuf},
    sync::Weak,
};

use notify::{
    Event, EventKind,
    event::{CreateKind, Flag, ModifyKind, RemoveKind, RenameMode},
};

use super::{Change, dispatch::Shared};
use crate::system::files::root::RootDirectory;

pub(super) type OnChange = Box<dyn FnMut(Change) + Send>;

/// The state of one watch.
pub(super) struct WatchState {
    pub(super) root: PathBuf,
    /// Keeps the path of the root valid.
    pub(super) _start: RootDirectory,
    /// The root's file system.
    pub(super) device: u64,
    pub(super) recursive: bool,
    pub(super) shared: Weak<Shared>,
    /// The directories that inotify watches for this watch.
    pub(super) watched: BTreeSet<PathBuf>,
    /// The known directories: all below a recursive watch, otherwise those in the root. Some events
    /// do not say whether they concern a directory.
    pub(super) directories: BTreeSet<PathBuf>,
    /// The entries that were reported when a new directory was listed. An event of their creation
    /// may or may not follow.
    pub(super) announced: BTreeSet<PathBuf>,
    /// A move whose second half has not been received.
    pub(super) pending_move: Option<PendingMove>,
    pub(super) on_change: OnChange,
}

/// The first half of a move: the old path, and the number that the second half also has.
pub(super) struct PendingMove {
    from: PathBuf,
    tracker: Option<usize>,
}

impl fmt::Debug for WatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchState")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Drop for WatchState {
    fn drop(&mut self) {
        let watched = mem::take(&mut self.watched);
        if let Some(shared) = self.shared.upgrade() {
            let mut inotify = shared.inotify.lock();
            let release = |path: &PathBuf| inotify.release(path, *path == self.root);
            watched.iter().for_each(release);
        }
    }
}

impl WatchState {
    pub(super) fn has_pending_move(&self) -> bool {
        self.pending_move.is_some()
    }

    /// Handles an event, which may concern another watch. Returns `false` if the root is gone.
    pub(super) fn handle_event(&mut self, event: &Event) -> bool {
        if event.flag() == Some(Flag::Rescan) {
            return self.handle_overflow();
        }
        let Some(path) = event.paths.first() else {
            return true;
        };
        let is_concerned = *path == self.root
            || path.parent() == Some(&self.root)
            || self.recursive && path.starts_with(&self.root);
        if is_concerned && !self.apply_event(event, path) {
            (self.on_change)(Change::RootGone);
            return false;
        }
        true
    }

    /// Returns `false` if the root is gone.
    fn apply_event(&mut self, event: &Event, path: &Path) -> bool {
        let kind = event.kind;
        let is_arrival = matches!(kind, EventKind::Modify(ModifyKind::Name(RenameMode::To)));
        if !is_arrival {
            self.flush_pending_move();
        }
        match kind {
            EventKind::Create(kind) => self.handle_creation(path, kind == CreateKind::Folder),
            EventKind::Modify(ModifyKind::Data(_)) => (self.on_change)(Change::Written {
                path: path.to_owned(),
            }),
            EventKind::Remove(_) if path == self.root => {
                (self.on_change)(Change::Deleted {
                    path: path.to_owned(),
                    is_dir: true,
                });
                return false;
            }
            EventKind::Remove(kind) => self.handle_removal(path, kind == RemoveKind::Folder),
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if path == self.root => {
                (self.on_change)(Change::Renamed {
                    path: path.to_owned(),
                    is_dir: true,
                    to: None,
                });
                return false;
            }
            // Without a tracker it is the moved directory's own event; its parent has sent one too.
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if event.tracker().is_some() => {
                self.pending_move = Some(PendingMove {
                    from: path.to_owned(),
                    tracker: event.tracker(),
                });
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                self.handle_arrival(path, event.tracker());
            }
            _ => {}
        }
        true
    }

    fn handle_creation(&mut self, path: &Path, is_dir: bool) {
        if self.announced.remove(path) {
            return;
        }
        self.report_created(path, is_dir, None);
        if is_dir {
            self.add_new_directory(path);
        }
    }

    fn handle_removal(&mut self, path: &Path, is_dir: bool) {
        self.announced.remove(path);
        // The deletion of a watched directory is an event of its own and one of its parent.
        if !self.forget_directory(path) && is_dir {
            return;
        }
        (self.on_change)(Change::Deleted {
            path: path.to_owned(),
            is_dir,
        });
    }

    /// Handles the second half of a move.
    fn handle_arrival(&mut self, path: &Path, tracker: Option<usize>) {
        let from = match self.pending_move.take() {
            Some(pending) if pending.tracker == tracker => Some(pending.from),
            other => {
                self.pending_move = other;
                self.flush_pending_move();
                None
            }
        };
        self.announced.remove(path);
        match from {
            Some(from) => self.handle_move(from, path),
            None => self.handle_move_in(path),
        }
    }

    /// Handles a move into the watch.
    fn handle_move_in(&mut self, path: &Path) {
        let metadata = fs::symlink_metadata(path);
        let is_dir = metadata.as_ref().is_ok_and(fs::Metadata::is_dir);
        self.report_created(path, is_dir, None);
        if is_dir {
            self.add_new_directory(path);
        } else if metadata.is_err() {
            // Already gone; it may have been a directory.
            self.directories.insert(path.to_owned());
        }
    }

    /// Handles a move within the watch.
    fn handle_move(&mut self, from: PathBuf, path: &Path) {
        self.announced.remove(&from);
        // The content of a directory that was moved before it could be watched is still unreported.
        let reported = self.watched_paths_after_move(&from, path);
        let is_dir = self.forget_directory(&from);
        if is_dir {
            // Watched before it is reported, so that changes made after the report are noticed. Its
            // content was reported under the old path. Changes between the end of the old watch and
            // the start of the new one, some microseconds, are not noticed: to the kernel both
            // paths are one watch, which cannot be renamed.
            self.directories.insert(path.to_owned());
            if self.recursive {
                self.explore(path, |directory| !reported.contains(directory));
            }
        }
        (self.on_change)(Change::Renamed {
            path: from.clone(),
            is_dir,
            to: Some(path.to_owned()),
        });
        self.report_created(path, is_dir, Some(from));
    }

    /// Reports a pending move as one out of the watch, as its second half was not received.
    pub(super) fn flush_pending_move(&mut self) {
        if let Some(PendingMove { from, .. }) = self.pending_move.take() {
            self.announced.remove(&from);
            let is_dir = self.forget_directory(&from);
            (self.on_change)(Change::Renamed {
                path: from,
                is_dir,
                to: None,
            });
        }
    }

    /// Handles a loss of events: watches what exists now, then reports the loss. Returns `false` if
    /// the root is gone.
    pub(super) fn handle_overflow(&mut self) -> bool {
        self.flush_pending_move();
        self.announced.clear();
        let root_exists = fs::symlink_metadata(&self.root).is_ok_and(|root| root.is_dir());
        if root_exists && self.recursive {
            self.rescan();
        }
        (self.on_change)(Change::Overflow);
        if !root_exists {
            (self.on_change)(Change::RootGone);
        }
        root_exists
    }

    pub(super) fn report_created(&mut self, path: &Path, is_dir: bool, from: Option<PathBuf>) {
        (self.on_change)(Change::Created {
            path: path.to_owned(),
            is_dir,
            from,
        });
    }
}
