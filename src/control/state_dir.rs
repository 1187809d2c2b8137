//! The state directory of control: the database, its secrets, the blobs, and one directory for each
//! local browser.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use secrecy::SecretString;

use crate::state_dir::{
    FileLock, LockError, PRIVATE_DIRECTORY, PRIVATE_FILE, mode_around_chromium, open_private_file,
    set_mode,
};

/// The most bytes of a secret that are read. Secrets are one line of text.
const MAX_SECRET_BYTES: u64 = 4096;
const DATABASE: &str = "berth.db";
const LOCK: &str = "lock";

/// An existing directory that only its owner can list. Its files are private.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("the state directory {path} is in use{by}; select another one with --state-dir")]
    InUse { path: String, by: String },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{path} is readable by other users; make it private: chmod 600 {path}")]
    Exposed { path: String },
    #[error("{path} belongs to another user; select another directory with --state-dir")]
    Foreign { path: String },
    #[error(
        "{path} is accessible to other users and contains other files; select another directory with --state-dir, or make it private: chmod 700 {path}"
    )]
    Shared { path: String },
    #[error("no home directory; select a state directory with --state-dir")]
    NoHome,
}

impl StateDir {
    /// Returns `$XDG_STATE_HOME/berth`, or `~/.local/state/berth` without that variable.
    pub fn default_path(
        xdg_state_home: Option<&Path>,
        home: Option<&Path>,
    ) -> Result<PathBuf, StateDirError> {
        // The XDG specification demands that relative paths are ignored.
        let state = xdg_state_home.filter(|path| path.is_absolute());
        match (state, home) {
            (Some(state), _) => Ok(state.join("berth")),
            (None, Some(home)) if home.is_absolute() => Ok(home.join(".local/state/berth")),
            _ => Err(StateDirError::NoHome),
        }
    }

    /// Opens the directory. Creates it if it is missing, and makes it private if it is not: other
    /// users can at most pass through it, to the directories of Chromium's user.
    pub fn open(root: &Path) -> Result<StateDir, StateDirError> {
        let absolute = std::path::absolute(root).map_err(|source| io_error(root, source))?;
        DirBuilder::new()
            .recursive(true)
            .mode(mode_around_chromium())
            .create(&absolute)
            .map_err(|source| io_error(&absolute, source))?;
        make_private(&absolute)?;
        let state_dir = StateDir { root: absolute };
        for directory in [state_dir.blobs(), state_dir.orphaned_recordings()] {
            create_private(&directory).map_err(|source| io_error(&directory, source))?;
        }
        Ok(state_dir)
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join(DATABASE)
    }

    /// Makes the database readable by its owner only. SQLite creates its other files with the same
    /// mode.
    pub fn prepare_database(&self) -> Result<PathBuf, StateDirError> {
        let database = self.database();
        open_private_file(&database).map_err(|source| io_error(&database, source))?;
        for name in [DATABASE, "berth.db-wal", "berth.db-shm"] {
            let path = self.root.join(name);
            match set_mode(&path, PRIVATE_FILE) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.map_err(|source| io_error(&path, source))?,
            }
        }
        Ok(database)
    }

    /// Returns the directory that has one directory for each local browser, named by its id.
    pub fn browsers(&self) -> PathBuf {
        self.root.join("browsers")
    }

    /// Returns the directory of the blob store.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Returns the directory for recordings that stopped hosts left behind, with one directory for
    /// each browser.
    pub fn orphaned_recordings(&self) -> PathBuf {
        self.root.join("left-replays")
    }

    /// Locks the directory for this process.
    pub(crate) fn lock(&self) -> Result<FileLock, StateDirError> {
        let path = self.root.join(LOCK);
        let mut lock = match FileLock::try_acquire(&path) {
            Ok(lock) => lock,
            Err(LockError::InUse(file)) => {
                let path = self.root.display().to_string();
                return Err(StateDirError::InUse {
                    path,
                    by: describe_lock_owner(file),
                });
            }
            Err(LockError::Io(source)) => return Err(io_error(&path, source)),
        };
        // The process id is only for the error message of another process.
        let file = lock.file();
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|source| io_error(&path, source))?;
        Ok(lock)
    }

    /// Waits until no other process migrates the database.
    pub(crate) async fn store_lock(&self) -> Result<FileLock, StateDirError> {
        let path = self.root.join("berth.db.lock");
        let lock_path = path.clone();
        let locked = tokio::task::spawn_blocking(move || FileLock::acquire(&lock_path)).await;
        let locked = locked.map_err(io::Error::other).and_then(|lock| lock);
        locked.map_err(|source| io_error(&path, source))
    }

    /// Reads the secret in the file `name`, if there is one.
    pub fn read_secret(&self, name: &str) -> Result<Option<SecretString>, StateDirError> {
        let path = self.root.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error(&path, source)),
        };
        let mode = file
            .metadata()
            .map_err(|source| io_error(&path, source))?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            let path = path.display().to_string();
            return Err(StateDirError::Exposed { path });
        }
        let mut text = String::new();
        file.take(MAX_SECRET_BYTES)
            .read_to_string(&mut text)
            .map_err(|source| io_error(&path, source))?;
        let secret = text.trim();
        Ok((!secret.is_empty()).then(|| SecretString::from(secret)))
    }

    /// Writes a secret to the file `name` atomically, readable by its owner only.
    pub fn write_secret(&self, name: &str, secret: &str) -> Result<(), StateDirError> {
        write_private(&self.root.join(name), secret)
    }
}

/// Writes a file atomically, readable by its owner only.
pub fn write_private(path: &Path, content: &str) -> Result<(), StateDirError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(directory)?;
        writeln!(file, "{content}")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| io_error(path, source))
}

/// Makes the directory private.
///
/// Refuses a directory that contains other files, because other users may need it (`/tmp`, for
/// example).
fn make_private(directory: &Path) -> Result<(), StateDirError> {
    let with_path = |source| io_error(directory, source);
    let found = fs::metadata(directory).map_err(with_path)?;
    let path = || directory.display().to_string();
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(StateDirError::Foreign { path: path() });
    }
    let mode = mode_around_chromium();
    if found.mode() & 0o777 == mode {
        return Ok(());
    }
    let is_state_dir = [LOCK, DATABASE]
        .iter()
        .any(|name| directory.join(name).is_file());
    if !is_state_dir && fs::read_dir(directory).map_err(with_path)?.next().is_some() {
        // A private directory with other files stays as it is.
        return match found.mode() & 0o077 {
            0 => Ok(()),
            _ => Err(StateDirError::Shared { path: path() }),
        };
    }
    set_mode(directory, mode).map_err(with_path)
}

fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_DIRECTORY)
        .create(directory)?;
    set_mode(directory, PRIVATE_DIRECTORY)
}

/// Returns " by process N" if the file of the lock contains a process id.
fn describe_lock_owner(file: File) -> String {
    let mut content = String::new();
    let _ = file.take(32).read_to_string(&mut content);
    match content.trim().parse::<u32>() {
        Ok(pid) => format!(" by process {pid}"),
        Err(_) => String::new(),
    }
}

fn io_error(path: &Path, source: io::Error) -> StateDirError {
    let path = path.display().to_string();
    StateDirError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn state_dir() -> (tempfile::TempDir, StateDir) {
        let directory = tempfile::tempdir().unwrap();
        let dir = StateDir::open(&directory.path().join("a/b")).unwrap();
        (directory, dir)
    }

    #[test]
    fn new_directory_is_private() {
        let (_directory, dir) = state_dir();
        assert_eq!(mode(dir.path()), mode_around_chromium());
        assert_eq!(mode(dir.path()) & 0o066, 0);
        for inner in [dir.blobs(), dir.orphaned_recordings()] {
            assert_eq!(mode(&inner), 0o700, "{}", inner.display());
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn make_accessible(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn accessible_directory_is_made_private_if_it_has_no_other_files() {
        let directory = tempfile::tempdir().unwrap();
        make_accessible(directory.path());
        StateDir::open(directory.path()).unwrap();
        assert_eq!(mode(directory.path()), mode_around_chromium());
        for inner in ["blobs", "left-replays"] {
            fs::remove_dir(directory.path().join(inner)).unwrap();
        }

        fs::write(directory.path().join("other"), "").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        make_private(directory.path()).unwrap();
        assert_eq!(mode(directory.path()), 0o700);
        make_accessible(directory.path());
        assert!(matches!(
            StateDir::open(directory.path()),
            Err(StateDirError::Shared { .. })
        ));
        assert_eq!(mode(directory.path()), 0o755);

        // The state directory of an earlier run.
        fs::write(directory.path().join("lock"), "").unwrap();
        StateDir::open(directory.path()).unwrap();
        assert_eq!(mode(directory.path()), mode_around_chromium());
    }

    #[test]
    fn directory_of_another_user_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let foreign = if nix::unistd::geteuid().is_root() {
            let other_user = nix::unistd::Uid::from_raw(65_534);
            nix::unistd::chown(directory.path(), Some(other_user), None).unwrap();
            directory.path()
        } else {
            Path::new("/")
        };
        let rejected = StateDir::open(foreign).unwrap_err();
        assert!(matches!(rejected, StateDirError::Foreign { .. }));
    }

    #[tokio::test]
    async fn prepared_database_is_private() {
        let (_directory, dir) = state_dir();
        let database = dir.database();
        fs::write(&database, "").unwrap();
        make_accessible(&database);
        let prepared = dir.prepare_database().unwrap();
        let opened = crate::control::store::Store::open_sqlite(&prepared).await;
        let _open = opened.unwrap();
        for file in ["berth.db", "berth.db-wal", "berth.db-shm"] {
            assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn lock_error_names_the_process_that_holds_it() {
        let (_directory, dir) = state_dir();
        let lock = dir.lock().unwrap();
        let message = dir.lock().unwrap_err().to_string();
        let pid = std::process::id();
        assert!(
            message.contains(&format!("in use by process {pid}")),
            "{message}"
        );
        drop(lock);
        dir.lock().unwrap();
    }

    #[test]
    fn secret_is_stored_privately_and_read_again() {
        let (_directory, dir) = state_dir();
        assert!(dir.read_secret("s").unwrap().is_none());
        dir.write_secret("s", "one").unwrap();
        dir.write_secret("s", "two").unwrap();
        let found = dir.read_secret("s").unwrap().unwrap();
        assert_eq!(found.expose_secret(), "two");

        let path = dir.path().join("s");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            dir.read_secret("s"),
            Err(StateDirError::Exposed { .. })
        ));
    }

    #[test]
    fn default_path_follows_the_xdg_specification() {
        let path = |xdg: Option<&str>, home: Option<&str>| {
            StateDir::default_path(xdg.map(Path::new), home.map(Path::new)).ok()
        };
        assert_eq!(path(Some("/x"), Some("/h")), Some("/x/berth".into()));
        assert_eq!(path(None, Some("/h")), Some("/h/.local/state/berth".into()));
        assert_eq!(
            path(Some("x"), Some("/h")),
            Some("/h/.local/state/berth".into())
        );
        assert_eq!(path(None, None), None);
    }
}
