//! The state directory of an agent: its layout, its lock, and the replacement of the profile.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    state_dir::{FileLock, LockError, PASSABLE_DIRECTORY, PRIVATE_DIRECTORY, set_mode},
    system::{
        files::remove::{remove_all, remove_or_warn},
        media::recorder,
    },
};

/// The paths inside the state directory. Creating this value does not access the directory; use
/// `StateDir::lock` for that.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    pub fn new(root: &Path) -> io::Result<Self> {
        let root = std::path::absolute(root)?;
        if root.exists() && !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Chromium's profile.
    pub fn user_data(&self) -> PathBuf {
        self.root.join("user-data")
    }

    /// The profile that is being replaced, during the replacement.
    fn replaced_user_data(&self) -> PathBuf {
        self.root.join("user-data.old")
    }

    /// Replaces Chromium's profile. Chromium must not run. If this is interrupted, the next
    /// `StateDir::lock` restores either the old or the new profile, complete.
    pub fn replace_user_data(&self, new: &Path) -> io::Result<()> {
        let (current, old) = (self.user_data(), self.replaced_user_data());
        remove_all(&old)?;
        fs::rename(&current, &old)?;
        if let Err(error) = fs::rename(new, &current) {
            fs::rename(&old, &current)?;
            return Err(error);
        }
        // The replacement is complete even if this fails.
        remove_or_warn(&old);
        Ok(())
    }

    /// Completes or undoes the replacement of the profile by an agent that was killed.
    fn recover_user_data(&self) -> io::Result<()> {
        let (current, old) = (self.user_data(), self.replaced_user_data());
        if !old.exists() {
            return Ok(());
        }
        if current.exists() {
            remove_or_warn(&old);
            return Ok(());
        }
        tracing::warn!("restored the profile after an interrupted replacement");
        fs::rename(old, current)
    }

    /// Chromium's disk cache. It is outside the profile, so that an archive of the profile is
    /// small.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The scratch directories of scripts.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    pub fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// Recordings of the screen.
    pub fn replays(&self) -> PathBuf {
        self.root.join(recorder::files::DIRECTORY)
    }

    /// Files of operations in progress. The next agent removes them.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Run files: records of child processes, the lock, the display's cookie.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Chromium's home directory.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// Chromium's temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.home().join("tmp")
    }

    /// The directories that belong to Chromium's user.
    pub(super) fn of_chromium(&self) -> [PathBuf; 4] {
        [
            self.user_data(),
            self.cache(),
            self.downloads(),
            self.home(),
        ]
    }

    /// The authority file of the display.
    pub fn display_authority(&self) -> PathBuf {
        self.run().join("Xauthority")
    }

    /// Creates the directories, locks the state directory for this process, and recovers from a
    /// killed agent. Fails if another agent uses the directory.
    pub(super) fn lock(&self) -> io::Result<FileLock> {
        // Chromium runs as another user, and must be able to reach its directories.
        create_directory(&self.root, PASSABLE_DIRECTORY)?;
        for directory in [
            self.scratch(),
            self.cache(),
            self.downloads(),
            self.home(),
            self.replays(),
            self.run(),
            self.work(),
        ] {
            create_directory(&directory, PRIVATE_DIRECTORY)?;
        }
        let lock = match FileLock::try_acquire(&self.run().join("lock")) {
            Ok(lock) => lock,
            Err(LockError::InUse(_)) => {
                let message = format!("another agent uses {}", self.root.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            Err(LockError::Io(error)) => return Err(error),
        };
        for entry in fs::read_dir(self.work())? {
            remove_or_warn(&entry?.path());
        }
        self.recover_user_data()?;
        create_directory(&self.user_data(), PRIVATE_DIRECTORY)?;
        Ok(lock)
    }
}

fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    set_mode(path, mode)
}
