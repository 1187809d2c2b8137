//! The state directory of an agent: its lock, and the directories of sessions.
//!
//! ```text
//! run/lock               held while an agent uses the directory
//! run/session            the generation of the current session
//! sessions/<generation>  the current session, the spare one, or what is left of another
//! run/host-key.pem       the key of a host that registers itself, which must stay private
//! run/hooks.sock         the hooks of a machine that others are resumed from
//! run/resumed            the identity that such a machine got, which must stay private
//! run/tainted            why the machine can be no other host, blank if it can
//! programs               a copy of the script worker, with its snapshot
//! replays/<generation>   the recordings of a session, which outlive it until they are deleted
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::session_dir::{CLIENT_DIRECTORIES, SessionDir, create_directory};
use crate::{
    state_dir::{FileLock, LockError, PASSABLE_DIRECTORY, PRIVATE_DIRECTORY, replace_private_file},
    system::{files::protected::ProtectedLayout, media::recorder, script::location},
};

/// The directory of all sessions.
const SESSIONS: &str = "sessions";
/// The memory of the machine, in which are the agent's keys.
const KERNEL_MEMORY: &str = "/proc/kcore";
/// The permissions of a directory that all users can read.
const READABLE_DIRECTORY: u32 = 0o755;
/// The parts of the only session of earlier versions, which were in the state directory itself.
const EARLIER_LAYOUT: [&str; 5] = ["user-data", "user-data.old", "cache", "downloads", "home"];

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

    /// The directory of the session with this generation.
    pub fn session(&self, generation: u64) -> SessionDir {
        let name = generation.to_string();
        SessionDir::new(self.sessions().join(&name), self.replays().join(name))
    }

    /// Creates the directories, and locks the state directory for this process. Fails if another
    /// agent uses the directory.
    pub(super) fn lock(&self) -> io::Result<FileLock> {
        create_directory(&self.root, PASSABLE_DIRECTORY)?;
        create_directory(&self.sessions(), PASSABLE_DIRECTORY)?;
        create_directory(&self.replays(), PRIVATE_DIRECTORY)?;
        create_directory(&self.run(), PRIVATE_DIRECTORY)?;
        match FileLock::try_acquire(&self.run().join("lock")) {
            Ok(lock) => Ok(lock),
            Err(LockError::InUse(_)) => {
                let message = format!("another agent uses {}", self.root.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
            }
            Err(LockError::Io(error)) => Err(error),
        }
    }

    /// Copies the script worker and its snapshot, and returns the path of the copy. A worker that
    /// runs keeps its file.
    ///
    /// # Errors
    /// Fails if a file cannot be copied.
    pub(super) fn copy_script_worker(&self, program: &Path) -> io::Result<PathBuf> {
        let directory = self.root.join("programs");
        // The users of scripts run it.
        create_directory(&directory, READABLE_DIRECTORY)?;
        let copy = directory.join(location::SCRIPT_WORKER);
        for (from, to) in [
            (program.to_owned(), copy.clone()),
            (
                program.with_file_name(location::SNAPSHOT),
                directory.join(location::SNAPSHOT),
            ),
        ] {
            copy_if_changed(&from, &to)?;
        }
        Ok(copy)
    }

    /// Moves what an earlier version has stored into the directories of the session with this
    /// generation, and returns whether there was anything. An interrupted move continues with the
    /// next call.
    ///
    /// # Errors
    /// Fails if something cannot be moved.
    pub(super) fn take_over_earlier_layout(&self, generation: u64) -> io::Result<bool> {
        let mut has_moved = false;
        let session = self.session(generation);
        let parts = EARLIER_LAYOUT.map(|name| (self.root.join(name), session.root().join(name)));
        let recordings = fs::read_dir(self.replays())?.collect::<io::Result<Vec<_>>>()?;
        let recordings = recordings.iter().map(fs::DirEntry::path);
        let recordings = recordings.filter(|path| path.is_file()).filter_map(|path| {
            let moved = session.replays().join(path.file_name()?);
            Some((path, moved))
        });
        for (from, to) in parts.into_iter().chain(recordings) {
            if let Some(parent) = to.parent().filter(|_| from.exists()) {
                fs::create_dir_all(parent)?;
                fs::rename(from, &to)?;
                has_moved = true;
            }
        }
        Ok(has_moved)
    }

    /// Returns the generation of the session that an earlier agent had, if there was one.
    ///
    /// # Errors
    /// Fails if the record cannot be read, or is not a number.
    pub(super) fn recorded_generation(&self) -> io::Result<Option<u64>> {
        let text = match fs::read_to_string(self.record()) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let generation = text.trim().parse().map_err(io::Error::other)?;
        Ok(Some(generation))
    }

    /// Records the generation of the current session. An agent that is killed at any time leaves
    /// the old or the new record.
    pub(super) fn record_generation(&self, generation: u64) -> io::Result<()> {
        replace_private_file(&self.record(), generation.to_string().as_bytes())
    }

    /// Returns the path of the record that a session has changed the machine.
    pub(super) fn machine_taint(&self) -> PathBuf {
        self.run().join("tainted")
    }

    /// Returns the path of the key of a host that registers itself.
    pub(super) fn host_key(&self) -> PathBuf {
        self.run().join("host-key.pem")
    }

    /// Returns the path of the socket for the hooks of a machine that others are resumed from.
    pub(super) fn hooks_socket(&self) -> PathBuf {
        self.run().join("hooks.sock")
    }

    /// Returns the path of the identity that the machine got when it was resumed.
    pub(super) fn resumption(&self) -> PathBuf {
        self.run().join("resumed")
    }

    /// Writes the identity that the machine got when it was resumed.
    pub(super) fn write_resumption(&self, text: &str) -> io::Result<()> {
        replace_private_file(&self.resumption(), text.as_bytes())
    }

    /// Writes the key of the host. An agent that is killed at any time leaves a complete one, or
    /// none.
    pub(super) fn write_host_key(&self, pem: &str) -> io::Result<()> {
        replace_private_file(&self.host_key(), pem.as_bytes())
    }

    /// Returns the directories of all sessions but that of `current`, with their generations.
    /// `None` is the one of a directory whose name is no number.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub(super) fn other_sessions(&self, current: u64) -> io::Result<Vec<(Option<u64>, PathBuf)>> {
        let current = self.session(current);
        let mut others = Vec::new();
        for entry in fs::read_dir(self.sessions())? {
            let entry = entry?;
            let path = entry.path();
            if path != current.root() {
                let name = entry.file_name();
                let generation = name.to_str().and_then(|name| name.parse().ok());
                others.push((generation, path));
            }
        }
        Ok(others)
    }

    /// Returns the directories of recordings of the sessions before `current`, with their
    /// generations.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub(super) fn ended_replays(&self, current: u64) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut ended = Vec::new();
        for entry in fs::read_dir(self.replays())? {
            let entry = entry?;
            let name = entry.file_name();
            let generation = name.to_str().and_then(|name| name.parse().ok());
            if let Some(generation) = generation.filter(|other| *other < current) {
                ended.push((generation, entry.path()));
            }
        }
        Ok(ended)
    }

    /// Returns what file operations of a session must not reach: everything but the directories of
    /// `session` that clients use.
    pub(super) fn protected(&self, session: &SessionDir) -> ProtectedLayout {
        let memory = PathBuf::from(KERNEL_MEMORY);
        // Containers have a device in its place.
        let memory = Some(memory).filter(|memory| memory.is_file());
        ProtectedLayout {
            passages: vec![
                self.root.clone(),
                self.sessions(),
                session.root().to_owned(),
            ],
            closed: [self.run(), self.replays()]
                .into_iter()
                .chain(memory)
                .collect(),
            open: &CLIENT_DIRECTORIES,
        }
    }

    fn sessions(&self) -> PathBuf {
        self.root.join(SESSIONS)
    }

    fn replays(&self) -> PathBuf {
        self.root.join(recorder::files::DIRECTORY)
    }

    fn record(&self) -> PathBuf {
        self.run().join("session")
    }

    fn run(&self) -> PathBuf {
        self.root.join("run")
    }
}

/// Copies a file with the time of its last change, unless there is such a copy already.
fn copy_if_changed(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::metadata(from)?;
    let changed_at = found.modified()?;
    let is_same = |copy: fs::Metadata| {
        copy.len() == found.len() && copy.modified().is_ok_and(|time| time == changed_at)
    };
    if fs::metadata(to).is_ok_and(is_same) {
        return Ok(());
    }
    let draft = to.with_extension("new");
    fs::copy(from, &draft)?;
    fs::File::options()
        .write(true)
        .open(&draft)?
        .set_modified(changed_at)?;
    fs::rename(draft, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_earlier_version_become_the_first_session() {
        let directory = tempfile::TempDir::new().unwrap();
        let state = StateDir::new(directory.path()).unwrap();
        let earlier = [
            "user-data/Default/Cookies",
            "downloads/file",
            "replays/rep_1.mp4",
        ];
        for file in earlier {
            let file = directory.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "kept").unwrap();
        }
        let _lock = state.lock().unwrap();
        for is_earlier in [true, false] {
            assert_eq!(state.take_over_earlier_layout(1).unwrap(), is_earlier);
            state.session(1).prepare().unwrap();
            for file in [
                "sessions/1/user-data/Default/Cookies",
                "sessions/1/downloads/file",
                "replays/1/rep_1.mp4",
            ] {
                let text = fs::read_to_string(directory.path().join(file)).unwrap();
                assert_eq!(text, "kept");
            }
        }
        assert!(!directory.path().join("user-data").exists());
    }

    #[test]
    fn generation_is_recorded_and_other_sessions_are_found() {
        let directory = tempfile::TempDir::new().unwrap();
        let state = StateDir::new(directory.path()).unwrap();
        let _lock = state.lock().unwrap();
        assert_eq!(state.recorded_generation().unwrap(), None);
        for generation in [1, 2, 3] {
            state.record_generation(generation).unwrap();
            state.session(generation).prepare().unwrap();
        }
        assert_eq!(state.recorded_generation().unwrap(), Some(3));
        let mut others = state.other_sessions(3).unwrap();
        others.sort_unstable();
        let expected = [1, 2].map(|other| (Some(other), state.session(other).root().to_owned()));
        assert_eq!(others, expected);
        let mut ended = state.ended_replays(3).unwrap();
        ended.sort_unstable();
        let expected = [1, 2].map(|other| (other, state.session(other).replays()));
        assert_eq!(ended, expected);
    }
}
