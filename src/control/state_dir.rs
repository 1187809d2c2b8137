//! The folder control keeps its state in: the database, its secrets, one folder per local browser.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use secrecy::SecretString;

use crate::state_dir::{
    FileLock, LockError, PRIVATE_DIRECTORY, PRIVATE_FILE, open_private_file, set_mode,
};

/// Secrets read from a file are a line of text; more is not one of ours.
const MAX_SECRET_BYTES: u64 = 4096;
const DATABASE: &str = "berth.db";
const LOCK: &str = "lock";

/// An existing folder that only its owner can enter.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("the state directory {path} is in use{by}; give another one with --state-dir")]
    InUse { path: String, by: String },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{path} may be read by others; make it private: chmod 600 {path}")]
    Exposed { path: String },
    #[error("{path} belongs to another user; give another folder with --state-dir")]
    Foreign { path: String },
    #[error(
        "{path} may be entered by others and holds what is not ours; give a folder of its own with --state-dir, or make it private: chmod 700 {path}"
    )]
    Shared { path: String },
    #[error("there is no home directory to keep state in; give a folder with --state-dir")]
    NoHome,
}

impl StateDir {
    /// `$XDG_STATE_HOME/berth`, else `~/.local/state/berth`.
    pub fn default_path(
        xdg_state_home: Option<&Path>,
        home: Option<&Path>,
    ) -> Result<PathBuf, StateDirError> {
        // The specification has relative paths ignored.
        let state = xdg_state_home.filter(|path| path.is_absolute());
        match (state, home) {
            (Some(state), _) => Ok(state.join("berth")),
            (None, Some(home)) if home.is_absolute() => Ok(home.join(".local/state/berth")),
            _ => Err(StateDirError::NoHome),
        }
    }

    /// Makes the folder where it is missing, and private where it is not.
    pub fn open(root: &Path) -> Result<StateDir, StateDirError> {
        let absolute = std::path::absolute(root).map_err(|source| io_error(root, source))?;
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_DIRECTORY)
            .create(&absolute)
            .map_err(|source| io_error(&absolute, source))?;
        make_private(&absolute)?;
        Ok(StateDir { root: absolute })
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join(DATABASE)
    }

    /// Sees to it that only its owner can read the database; the files SQLite makes beside it take after it.
    pub fn prepare_database(&self) -> Result<PathBuf, StateDirError> {
        let database = self.database();
        open_private_file(&database).map_err(|source| io_error(&database, source))?;
        for name in [DATABASE, "berth.db-wal", "berth.db-shm"] {
            let path = self.root.join(name);
            match set_mode(&path, PRIVATE_FILE) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                set => set.map_err(|source| io_error(&path, source))?,
            }
        }
        Ok(database)
    }

    /// Holds one folder per local browser, named by its id.
    pub fn browsers(&self) -> PathBuf {
        self.root.join("browsers")
    }

    /// Holds what outlives its browser.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Holds recordings that hosts have left, one folder per browser, on their way to the blobs.
    pub fn left_replays(&self) -> PathBuf {
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

    /// The secret kept in the file `name`, if there is one.
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

    /// Keeps a secret in the file `name`, readable by its owner alone. Whole or not at all.
    pub fn write_secret(&self, name: &str, secret: &str) -> Result<(), StateDirError> {
        write_private(&self.root.join(name), secret)
    }
}

/// Writes a file that only its owner can read; a reader sees the old content or all of the new.
pub fn write_private(path: &Path, content: &str) -> Result<(), StateDirError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)?;
        writeln!(file, "{content}")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| io_error(path, source))
}

/// A folder that holds other things may be one that others need (`/tmp`, say): it is not ours to close.
fn make_private(folder: &Path) -> Result<(), StateDirError> {
    let told = |source| io_error(folder, source);
    let found = fs::metadata(folder).map_err(told)?;
    let path = || folder.display().to_string();
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(StateDirError::Foreign { path: path() });
    }
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let ours = [LOCK, DATABASE]
        .iter()
        .any(|name| folder.join(name).is_file());
    if !ours && fs::read_dir(folder).map_err(told)?.next().is_some() {
        return Err(StateDirError::Shared { path: path() });
    }
    set_mode(folder, PRIVATE_DIRECTORY).map_err(told)
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

    fn folder() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(&folder.path().join("a/b")).unwrap();
        (folder, dir)
    }

    #[test]
    fn only_its_owner_can_enter_it() {
        let (_folder, dir) = folder();
        let mode = fs::metadata(dir.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn open_to_all(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_enter_is_closed_where_it_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        StateDir::open(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);

        fs::write(folder.path().join("other"), "").unwrap();
        open_to_all(folder.path());
        assert!(matches!(
            StateDir::open(folder.path()),
            Err(StateDirError::Shared { .. })
        ));
        assert_eq!(mode(folder.path()), 0o755);

        // One of an earlier run.
        fs::write(folder.path().join("lock"), "").unwrap();
        StateDir::open(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
    }

    #[test]
    fn a_folder_of_somebody_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let foreign = if nix::unistd::geteuid().is_root() {
            let nobody = nix::unistd::Uid::from_raw(65_534);
            nix::unistd::chown(folder.path(), Some(nobody), None).unwrap();
            folder.path()
        } else {
            Path::new("/")
        };
        let refused = StateDir::open(foreign).unwrap_err();
        assert!(matches!(refused, StateDirError::Foreign { .. }));
    }

    #[tokio::test]
    async fn the_database_is_private_even_where_it_was_not() {
        let (_folder, dir) = folder();
        let database = dir.database();
        fs::write(&database, "").unwrap();
        open_to_all(&database);
        let prepared = dir.prepare_database().unwrap();
        let opened = crate::control::store::Store::open_sqlite(&prepared).await;
        let _open = opened.unwrap();
        for file in ["berth.db", "berth.db-wal", "berth.db-shm"] {
            assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn a_second_user_is_told_who_has_it() {
        let (_folder, dir) = folder();
        let held = dir.lock().unwrap();
        let message = dir.lock().unwrap_err().to_string();
        let pid = std::process::id();
        assert!(
            message.contains(&format!("in use by process {pid}")),
            "{message}"
        );
        drop(held);
        dir.lock().unwrap();
    }

    #[test]
    fn a_secret_is_kept_private_and_found_again() {
        let (_folder, dir) = folder();
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
    fn the_default_path_follows_the_xdg_specification() {
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
