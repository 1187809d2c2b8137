//! The parts shared by the state directories of both servers: private files, and locks that allow
//! one process per directory.
//!
//! The layout of a state directory is with its server, in `agent/state_dir.rs` and
//! `control/state_dir.rs`.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// The mode of a directory that only its owner can enter.
pub(crate) const PRIVATE_DIRECTORY: u32 = 0o700;
/// The mode of a directory that all users can pass through, but only its owner can list.
pub(crate) const PASSABLE_DIRECTORY: u32 = 0o711;
/// The mode of a file that only its owner can access.
pub(crate) const PRIVATE_FILE: u32 = 0o600;

/// An exclusive lock on a file. The kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct FileLock(File);

/// Why a lock was not acquired.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds the lock. The content of the file may describe it.
    InUse(File),
    Io(io::Error),
}

impl FileLock {
    /// Acquires the lock, or fails at once if another process holds it.
    pub(crate) fn try_acquire(path: &Path) -> Result<Self, LockError> {
        let file = open_private_file(path).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse(file)),
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }

    /// Waits until no other process holds the lock, and acquires it. Blocks.
    pub(crate) fn acquire(path: &Path) -> io::Result<Self> {
        let file = open_private_file(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// Returns the locked file.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: until it calls exec, a child that another thread has just
        // forked holds the file open too.
        let _ = self.0.unlock();
    }
}

/// Opens a file for reading and writing. Creates it with [`PRIVATE_FILE`] if it is missing.
pub(crate) fn open_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE)
        .open(path)
}

/// Replaces the content of a file. A process that is killed leaves the old or the new content.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    fs::write(&draft, content)?;
    fs::rename(draft, path)
}

/// Makes the names in the directory of a file durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    File::open(parent)?.sync_all()
}

/// Replaces the content of a private file, like [`replace_file`] but also if the machine fails.
pub(crate) fn replace_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = open_private_file(&draft)?;
    file.set_len(0)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(draft, path)
}

/// Returns the mode of a directory that contains one of Chromium's. Chromium runs as another user
/// if the agent is root.
pub(crate) fn mode_around_chromium() -> u32 {
    match nix::unistd::geteuid().is_root() {
        true => PASSABLE_DIRECTORY,
        false => PRIVATE_DIRECTORY,
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_of_a_file_is_in_use_until_the_first_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = FileLock::try_acquire(&path).unwrap();
        let second = FileLock::try_acquire(&path).unwrap_err();
        assert!(matches!(second, LockError::InUse(_)));
        drop(first);
        FileLock::acquire(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE_FILE);
    }
}
