//! The folder everything of one agent lies in.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};

use crate::system::{
    files::remove::{remove_all, remove_or_warn},
    media::recorder,
};

/// Paths inside the state folder. Making one of these touches nothing; [`StateDir::claim`] does.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

/// Held as long as the agent uses the folder; the kernel lets go of it with the process.
#[derive(Debug)]
pub struct Claim(#[allow(dead_code, reason = "held for its lock")] Flock<File>);

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

    /// The profile that another one replaces, for as long as that takes.
    fn replaced_user_data(&self) -> PathBuf {
        self.root.join("user-data.old")
    }

    /// Puts another profile in the place of Chromium's, which must not run, and removes that. Wherever this is broken off, the next
    /// [`StateDir::claim`] finds the one or the other, whole.
    pub fn replace_user_data(&self, new: &Path) -> io::Result<()> {
        let (current, old) = (self.user_data(), self.replaced_user_data());
        remove_all(&old)?;
        fs::rename(&current, &old)?;
        if let Err(error) = fs::rename(new, &current) {
            fs::rename(&old, &current)?;
            return Err(error);
        }
        // The new one is in its place whatever becomes of this.
        remove_or_warn(&old);
        Ok(())
    }

    /// Ends what a killed agent had begun.
    fn recover_user_data(&self) -> io::Result<()> {
        let (current, old) = (self.user_data(), self.replaced_user_data());
        if !old.exists() {
            return Ok(());
        }
        if current.exists() {
            remove_or_warn(&old);
            return Ok(());
        }
        tracing::warn!("a profile is back in its place that was just to be replaced");
        fs::rename(old, current)
    }

    /// Chromium's disk cache, outside the profile so that an archive of that stays small.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// One folder per script.
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

    /// What is only there while something is being done: nothing of it outlives the agent.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Records of running children, locks, the display's cookie.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Chromium's temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.run().join("tmp")
    }

    /// What lets programs onto the display.
    pub fn display_authority(&self) -> PathBuf {
        self.run().join("Xauthority")
    }

    /// Makes the folders and takes the folder for this process; a second agent on the same folder is refused.
    pub fn claim(&self) -> io::Result<Claim> {
        // Scripts run as another user and must be able to pass through to their own folder; the others are private.
        for (folder, mode) in [
            (self.root.clone(), 0o711),
            (self.scratch(), 0o711),
            (self.cache(), 0o700),
            (self.downloads(), 0o700),
            (self.replays(), 0o700),
            (self.run(), 0o700),
            (self.work(), 0o700),
        ] {
            make_folder(&folder, mode)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.run().join("lock"))?;
        match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                for left in fs::read_dir(self.work())? {
                    remove_or_warn(&left?.path());
                }
                self.recover_user_data()?;
                make_folder(&self.user_data(), 0o700)?;
                Ok(Claim(lock))
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("another agent uses {}", self.root.display()),
            )),
            Err((_, error)) => Err(error.into()),
        }
    }
}

fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}
