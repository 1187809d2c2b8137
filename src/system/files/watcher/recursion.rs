//! The directories that a watch consists of: finding, adding and removing them.

use std::{
    collections::BTreeSet,
    fs, io,
    ops::Bound,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{WatchError, state::WatchState};
use crate::system::files::virtual_fs::is_virtual;

/// The limit on announced entries. When it is reached they are forgotten, and some creations may be
/// reported twice.
const MAX_ANNOUNCED: usize = 1 << 16;

impl WatchState {
    /// Adds a directory that existed before the watch. Returns the directories in it that are also
    /// to be added.
    pub(super) fn add_existing(&mut self, directory: &Path) -> Result<Vec<PathBuf>, WatchError> {
        let is_root = directory == self.root;
        match self.watch_directory(directory) {
            Ok(true) => {}
            Err(error @ (WatchError::SystemLimit | WatchError::LimitReached)) => return Err(error),
            Err(error) if is_root => return Err(error),
            // A virtual file system, deleted meanwhile, or inaccessible to this user.
            Ok(false) | Err(_) => return Ok(Vec::new()),
        }
        let subdirectories: Vec<_> = list(directory)
            .filter_map(|(path, is_dir)| is_dir.then_some(path))
            .collect();
        self.directories.extend(subdirectories.iter().cloned());
        Ok(match self.recursive {
            true => subdirectories,
            false => Vec::new(),
        })
    }

    /// Adds a directory that appeared during the watch.
    pub(super) fn add_new_directory(&mut self, path: &Path) {
        self.directories.insert(path.to_owned());
        if self.recursive {
            self.explore(path, |_| true);
        }
    }

    /// Removes a directory and all below it. Returns `false` if it was not known.
    pub(super) fn forget_directory(&mut self, path: &Path) -> bool {
        let is_known = self.directories.remove(path);
        if is_known && self.recursive {
            remove_subtree(&mut self.announced, path);
            remove_subtree(&mut self.directories, path);
            let removed = remove_subtree(&mut self.watched, path);
            self.release_nested(&removed);
        }
        is_known
    }

    /// Watches `path` and the directories below it. Reports the entries of directories for which
    /// `is_new` returns `true`.
    pub(super) fn explore(&mut self, path: &Path, is_new: impl Fn(&Path) -> bool) {
        let mut pending = vec![path.to_owned()];
        while let Some(directory) = pending.pop() {
            match self.watch_directory(&directory) {
                Ok(true) => {}
                // A virtual file system, or the watcher was dropped.
                Ok(false) => continue,
                // Already gone, which its parent reports.
                Err(WatchError::NotFound | WatchError::NotADirectory) => continue,
                Err(error) => {
                    tracing::warn!(%error, "subdirectory of a watched directory not watched");
                    (self.on_change)(super::Change::Overflow);
                    if matches!(error, WatchError::LimitReached | WatchError::SystemLimit) {
                        return;
                    }
                    continue;
                }
            }
            let is_new = is_new(&directory);
            for (entry, is_dir) in list(&directory) {
                if is_new {
                    self.announce(&entry, is_dir);
                }
                if is_dir && self.directories.insert(entry.clone()) {
                    pending.push(entry);
                }
            }
        }
    }

    /// Reports an entry whose creation event may still follow.
    fn announce(&mut self, entry: &Path, is_dir: bool) {
        self.report_created(entry, is_dir, None);
        if self.announced.len() >= MAX_ANNOUNCED {
            self.announced.clear();
        }
        self.announced.insert(entry.to_owned());
    }

    /// Watches every directory under its current path, after changes were lost.
    pub(super) fn rescan(&mut self) {
        let root = self.root.clone();
        if !self.watched.contains(&root) {
            // The watch is still being set up.
            return;
        }
        remove_subtree(&mut self.directories, &root);
        let mut outdated = remove_subtree(&mut self.watched, &root);
        outdated.retain(|path| *path != root);
        self.release_nested(&outdated);
        self.watched.insert(root.clone());
        self.explore(&root, |_| false);
    }

    /// Returns the watched directories at and below `from`, with the paths they have after a move
    /// to `to`.
    pub(super) fn watched_paths_after_move(&self, from: &Path, to: &Path) -> BTreeSet<PathBuf> {
        let range = (Bound::Included(from), Bound::Unbounded);
        let watched = self.watched.range::<Path, _>(range);
        watched
            .map_while(|path| path.strip_prefix(from).ok())
            .map(|relative| to.components().chain(relative.components()).collect())
            .collect()
    }

    /// Releases directories below the root.
    fn release_nested(&self, directories: &[PathBuf]) {
        if let Some(shared) = self.shared.upgrade() {
            let mut inotify = shared.inotify.lock();
            let release = |path: &PathBuf| inotify.release(path, false);
            directories.iter().for_each(release);
        }
    }

    /// Returns `false` if the directory is not part of the watch, or the watcher was dropped.
    fn watch_directory(&mut self, path: &Path) -> Result<bool, WatchError> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(false);
        };
        if self.watched.contains(path) {
            return Ok(true);
        }
        let is_root = path == self.root;
        if !is_root && is_virtual_mount(path, self.device)? {
            return Ok(false);
        }
        shared.inotify.lock().acquire(path, is_root)?;
        self.watched.insert(path.to_owned());
        Ok(true)
    }
}

/// Removes `path` and everything below it from a set, in which they are adjacent.
fn remove_subtree(paths: &mut BTreeSet<PathBuf>, path: &Path) -> Vec<PathBuf> {
    let range = (Bound::Included(path), Bound::Unbounded);
    let subtree: Vec<_> = paths
        .range::<Path, _>(range)
        .take_while(|candidate| candidate.starts_with(path))
        .cloned()
        .collect();
    for path in &subtree {
        paths.remove(path);
    }
    subtree
}

/// Returns whether a directory is on a virtual file system other than that of the root.
fn is_virtual_mount(directory: &Path, root_device: u64) -> io::Result<bool> {
    if fs::symlink_metadata(directory)?.dev() == root_device {
        return Ok(false);
    }
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW)
        .open(directory)?;
    is_virtual(opened)
}

/// Lists the paths in a directory, each with whether it is a directory. Yields nothing if the
/// directory cannot be read.
fn list(directory: &Path) -> impl Iterator<Item = (PathBuf, bool)> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (entry.path(), is_dir)
    })
}
