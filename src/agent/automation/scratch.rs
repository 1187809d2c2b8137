//! Scratch directories: one per worker. They hold the only files that a script can reach except
//! through the browser.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use nix::unistd::Gid;

use crate::system::files::remove::remove_or_warn;

/// The parent of all scratch directories.
#[derive(Debug)]
pub(super) struct ScratchRoot {
    path: PathBuf,
    /// The group of Chromium's user, which reads the files that a script uploads.
    chromium_group: Gid,
    next: AtomicU64,
}

/// The directory of one worker, removed on drop. The worker changes its owner to the user that it
/// becomes.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

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
        })
    }

    pub(super) fn create(&self) -> io::Result<Scratch> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        fs::create_dir(&path)?;
        let scratch = Scratch(path);
        // Files and directories in it get its group.
        give_to_group(&scratch.0, self.chromium_group, 0o2750)?;
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
        &self.0
    }

    /// Returns the name of the directory in the parent of all.
    pub(super) fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Removes the directory without blocking the async runtime.
    pub(super) async fn remove(self) {
        // Fails only if the removal panics.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_or_warn(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_removed_at_start_and_directories_on_drop() {
        let state = tempfile::tempdir().unwrap();
        let root = state.path().join("scratch");
        fs::create_dir_all(root.join("7/deep")).unwrap();
        fs::write(root.join("7/deep/file"), "x").unwrap();
        fs::write(root.join("stray"), "x").unwrap();
        let scratch_root = ScratchRoot::open(&root, Gid::effective()).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        let scratch = scratch_root.create().unwrap();
        fs::write(scratch.path().join("made"), "x").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }
}
