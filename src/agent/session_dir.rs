//! The directory of a session: its layout, and the replacement of the profile.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    state_dir::{PASSABLE_DIRECTORY, PRIVATE_DIRECTORY, set_mode},
    system::files::remove::{remove_all, remove_or_warn},
};

const USER_DATA: &str = "user-data";
const CACHE: &str = "cache";
const DOWNLOADS: &str = "downloads";
const HOME: &str = "home";
const CLIENT_HOME: &str = "client-home";
/// The directories that file operations of clients reach. The agent trusts the others, and opens
/// nothing through links in these.
pub(super) const CLIENT_DIRECTORIES: [&str; 5] = [USER_DATA, CACHE, DOWNLOADS, HOME, CLIENT_HOME];

/// The paths inside the directory of a session. Creating this value does not access the directory;
/// use `SessionDir::prepare` for that.
#[derive(Clone, Debug)]
pub struct SessionDir {
    root: PathBuf,
    replays: PathBuf,
}

impl SessionDir {
    /// Recordings are outside the directory, because they outlive the session.
    pub(super) fn new(root: PathBuf, replays: PathBuf) -> Self {
        Self { root, replays }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Chromium's profile.
    pub fn user_data(&self) -> PathBuf {
        self.root.join(USER_DATA)
    }

    /// The profile that is being replaced, during the replacement.
    fn replaced_user_data(&self) -> PathBuf {
        self.root.join("user-data.old")
    }

    /// Replaces Chromium's profile. Chromium must not run. If this is interrupted, the next
    /// `SessionDir::prepare` restores either the old or the new profile, complete.
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
        self.root.join(CACHE)
    }

    /// The scratch directories of scripts.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    pub fn downloads(&self) -> PathBuf {
        self.root.join(DOWNLOADS)
    }

    /// Recordings of the screen.
    pub fn replays(&self) -> PathBuf {
        self.replays.clone()
    }

    /// Files of operations in progress. The next agent removes them.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Run files: records of child processes, the display's cookie.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The changes that clients have made to the browser. The URL may contain a secret; other users
    /// cannot enter the directory.
    pub fn browser_changes(&self) -> PathBuf {
        self.run().join("browser.json")
    }

    /// Chromium's home directory.
    pub fn home(&self) -> PathBuf {
        self.root.join(HOME)
    }

    /// Chromium's temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.home().join("tmp")
    }

    /// The home directory of client programs that have a user of their own.
    pub fn client_home(&self) -> PathBuf {
        client_home_in(&self.root)
    }

    /// The directories that take the place of those of the machine for client programs.
    pub fn private(&self) -> PathBuf {
        self.root.join("private")
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

    /// Creates the directories, and recovers from an agent that was killed. No other process may
    /// use them.
    ///
    /// # Errors
    /// Fails if a directory cannot be created or read.
    pub(super) fn prepare(&self) -> io::Result<()> {
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
        for entry in fs::read_dir(self.work())? {
            remove_or_warn(&entry?.path());
        }
        self.recover_user_data()?;
        create_directory(&self.user_data(), PRIVATE_DIRECTORY)
    }
}

/// Returns the home directory of client programs in the directory of a session.
pub(super) fn client_home_in(session: &Path) -> PathBuf {
    session.join(CLIENT_HOME)
}

pub(super) fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    set_mode(path, mode)
}
