//! Scratch directories: one per worker. They hold the only files that a script can reach except
//! through the browser.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use nix::unistd::Gid;
use parking_lot::Mutex;

use crate::system::files::remove::remove_or_warn;

/// The most directories that are kept for later workers.
const MAX_KEPT: usize = 16;
/// The modification time of a directory in which nothing was created or removed yet. A worker has
/// no system call that could set it.
const UNUSED: SystemTime = SystemTime::UNIX_EPOCH;

/// The parent of all scratch directories.
#[derive(Debug)]
pub(super) struct ScratchRoot {
    path: PathBuf,
    /// The group of Chromium's user, which reads the files that a script uploads.
    chromium_group: Gid,
    next: AtomicU64,
    kept: Arc<KeptDirectories>,
}

/// The directory of one worker, removed on drop unless it is kept for another one. The worker
/// changes its owner to the user that it becomes.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    kept: Arc<KeptDirectories>,
    is_kept: bool,
}

/// Directories that workers have left unused, for later ones: creating and removing one takes
/// longer than a short script runs. `None` once no more are kept.
#[derive(Debug)]
struct KeptDirectories(Mutex<Option<Vec<PathBuf>>>);

impl ScratchRoot {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates or opens the directory, and removes the leftovers of a crash.
    pub(super) fn open(path: &Path, chromium_group: Gid) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        // A worker opens its directory as root, before it becomes another user. Only Chromium
        // enters later, and may not list the directories.
        give_to_group(path, chromium_group, 0o710)?;
        for entry in fs::read_dir(path)? {
            remove_or_warn(&entry?.path());
        }
        Ok(ScratchRoot {
            // Without symbolic links: scripts name their files by this path to the browser.
            path: path.canonicalize()?,
            chromium_group,
            next: AtomicU64::new(1),
            kept: Arc::new(KeptDirectories(Mutex::new(Some(Vec::new())))),
        })
    }

    /// Removes the directories that are kept for later workers, and keeps none from now on.
    pub(super) fn discard_kept(&self) {
        let kept = self.kept.0.lock().take();
        for path in kept.into_iter().flatten() {
            remove_or_warn(&path);
        }
    }

    pub(super) fn create(&self) -> io::Result<Scratch> {
        let scratch = |path| Scratch {
            path,
            kept: self.kept.clone(),
            is_kept: false,
        };
        while let Some(kept) = self.kept.take().map(scratch) {
            if kept.is_unused() {
                return Ok(kept);
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        fs::create_dir(&path)?;
        let scratch = scratch(path);
        // Files and directories in it get its group.
        give_to_group(scratch.path(), self.chromium_group, 0o2750)?;
        File::open(scratch.path())?.set_modified(UNUSED)?;
        Ok(scratch)
    }
}

/// Sets the group and the mode of a directory. The agent's own group gets no rights.
fn give_to_group(path: &Path, group: Gid, mode: u32) -> io::Result<()> {
    chown(path, None, Some(group.as_raw()))?;
    let is_own = group == Gid::effective();
    let mode = if is_own { mode & 0o700 } else { mode };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

impl Scratch {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the directory in the parent of all.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn is_unused(&self) -> bool {
        let modified = fs::symlink_metadata(&self.path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|time| time == UNUSED)
    }

    /// Keeps the directory for another worker if it was not used, and removes it otherwise. Its own
    /// worker must have ended.
    pub(super) async fn release(mut self) {
        self.is_kept = self.is_unused() && self.kept.add(&self.path);
        if !self.is_kept {
            self.remove().await;
        }
    }

    /// Removes the directory without blocking the async runtime.
    pub(super) async fn remove(self) {
        // Fails only if the removal panics.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            remove_or_warn(&self.path);
        }
    }
}

impl KeptDirectories {
    fn take(&self) -> Option<PathBuf> {
        self.0.lock().as_mut()?.pop()
    }

    /// Returns whether it keeps the directory.
    fn add(&self, path: &Path) -> bool {
        let mut kept = self.0.lock();
        let Some(kept) = kept.as_mut().filter(|kept| kept.len() < MAX_KEPT) else {
            return false;
        };
        kept.push(path.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    fn empty_root() -> (tempfile::TempDir, ScratchRoot) {
        let state = tempfile::tempdir().unwrap();
        let root = ScratchRoot::open(&state.path().join("scratch"), Gid::effective());
        (state, root.unwrap())
    }

    #[test]
    fn leftovers_are_removed_at_start_and_directories_on_drop() {
        let state = tempfile::tempdir().unwrap();
        let root = state.path().join("scratch");
        fs::create_dir_all(root.join("7/deep")).unwrap();
        fs::write(root.join("7/deep/file"), "x").unwrap();
        fs::write(root.join("stray"), "x").unwrap();
        let scratch_root = ScratchRoot::open(&root, Gid::effective()).unwrap();
        assert_eq!(count(&root), 0);
        let scratch = scratch_root.create().unwrap();
        fs::write(scratch.path().join("made"), "x").unwrap();
        drop(scratch);
        assert_eq!(count(&root), 0);
    }

    #[tokio::test]
    async fn only_unused_directory_is_kept_for_next_worker() {
        let (_state, scratch_root) = empty_root();
        let unused = scratch_root.create().unwrap();
        let path = unused.path().to_owned();
        // What a worker does with it.
        chown(&path, None, None).unwrap();
        unused.release().await;
        assert_eq!(count(scratch_root.path()), 1);
        for leaves_file in [true, false] {
            let scratch = scratch_root.create().unwrap();
            assert_eq!(scratch.path() == path, leaves_file);
            let file = scratch.path().join("file");
            fs::write(&file, "x").unwrap();
            if !leaves_file {
                fs::remove_file(file).unwrap();
            }
            scratch.release().await;
            assert_eq!(count(scratch_root.path()), 0);
        }
    }

    #[tokio::test]
    async fn kept_directories_are_bounded_and_discarded_at_the_end() {
        let (_state, scratch_root) = empty_root();
        let all = [(); MAX_KEPT + 1].map(|()| scratch_root.create().unwrap());
        for scratch in all {
            scratch.release().await;
        }
        assert_eq!(count(scratch_root.path()), MAX_KEPT);
        let last = scratch_root.create().unwrap();
        scratch_root.discard_kept();
        assert_eq!(count(scratch_root.path()), 1);
        last.release().await;
        assert_eq!(count(scratch_root.path()), 0);
    }

    #[tokio::test]
    async fn kept_directory_with_file_of_another_process_is_removed() {
        let (_state, scratch_root) = empty_root();
        let scratch = scratch_root.create().unwrap();
        let path = scratch.path().to_owned();
        scratch.release().await;
        fs::write(path.join("file"), "x").unwrap();
        assert_ne!(scratch_root.create().unwrap().path(), path);
        assert!(!path.exists());
    }
}
