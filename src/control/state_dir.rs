//! The state directory of control: the database, its secrets, the blobs, and one directory for each
//! local browser.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};

use crate::state_dir::{
    FileLock, LockError, PRIVATE_DIRECTORY, PRIVATE_FILE, mode_around_chromium, open_private_file,
    set_mode,
};

#[cfg(test)]
mod tests;

/// The most bytes of a secret that are read. Secrets are one line of text.
const MAX_SECRET_BYTES: u64 = 4096;
const DATABASE: &str = "berth.db";
const LOCK: &str = "lock";
/// Holds a random id, which a database outside the directory names.
const ID: &str = "id";

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
    #[error("{path} belongs to another user; only this user's directories are used")]
    ForeignPart { path: String },
    #[error(
        "{path} is a link to a directory that is accessible to other users; make that private: chmod 700 {target}"
    )]
    SharedTarget { path: String, target: String },
    #[error("{path} is not a directory")]
    NotADirectory { path: String },
    #[error(
        "{path} must contain {expected} hexadecimal digits; it has {found} characters; restore it, or remove it to invalidate all links and have a new one created"
    )]
    InvalidSecret {
        path: String,
        expected: usize,
        found: usize,
    },
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
        let directories = [
            state_dir.blobs(),
            state_dir.uploads(),
            state_dir.orphaned_recordings(),
        ];
        for directory in directories {
            create_private(&directory)?;
        }
        Ok(state_dir)
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        StateDir::database_in(&self.root)
    }

    /// Returns the path of the database in the state directory `root`, which may not exist.
    pub fn database_in(root: &Path) -> PathBuf {
        root.join(DATABASE)
    }

    /// Returns the id of the directory, and gives it one if it has none.
    pub fn id(&self) -> Result<String, StateDirError> {
        if let Some(id) = self.read_secret(ID)? {
            return Ok(id.expose_secret().to_owned());
        }
        let id = uuid::Uuid::new_v4().to_string();
        self.write_secret(ID, &id)?;
        Ok(id)
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

    /// Returns the directory that has one directory for each local host, named by its id.
    pub fn hosts(&self) -> PathBuf {
        self.root.join("hosts")
    }

    /// Returns the directory that earlier versions had for local hosts, one for each browser.
    pub fn earlier_hosts(&self) -> PathBuf {
        self.root.join("browsers")
    }

    /// Returns the directory of the blob store.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Returns the directory of the records of uploads in progress to a bucket.
    pub fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    /// Returns the directory for recordings that stopped hosts left behind, with one directory for
    /// each browser.
    pub fn orphaned_recordings(&self) -> PathBuf {
        self.root.join("left-replays")
    }

    /// Returns the empty directory of archives of profiles that are being received. Removes what a
    /// killed process has left there. The caller must hold the lock.
    pub(crate) fn clear_profile_spool(&self) -> Result<PathBuf, StateDirError> {
        let directory = self.root.join("profile-spool");
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error(&directory, error));
            }
            _ => {}
        }
        create_private(&directory)?;
        Ok(directory)
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
        // The process id is only for the error message of another process. On a full disk there is
        // no room for it.
        let file = lock.file();
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "cannot write the process id");
        }
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

    /// Excludes other rotations of keys. Returns `None` if there is one.
    pub(crate) fn rotation_lock(&self) -> Result<Option<FileLock>, StateDirError> {
        let path = self.root.join("secrets.lock");
        match FileLock::try_acquire(&path) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::InUse(_)) => Ok(None),
            Err(LockError::Io(source)) => Err(io_error(&path, source)),
        }
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

    /// Reads a secret of `bytes` bytes as hexadecimal digits in the file `name`, if there is one.
    pub fn read_hex_secret(
        &self,
        name: &str,
        bytes: usize,
    ) -> Result<Option<SecretString>, StateDirError> {
        let Some(secret) = self.read_secret(name)? else {
            return Ok(None);
        };
        let text = secret.expose_secret();
        if !is_hex(text, bytes) {
            return Err(StateDirError::InvalidSecret {
                path: self.root.join(name).display().to_string(),
                expected: 2 * bytes,
                found: text.chars().count(),
            });
        }
        Ok(Some(secret))
    }

    /// Writes a secret to the file `name` atomically, readable by its owner only.
    pub fn write_secret(&self, name: &str, secret: &str) -> Result<(), StateDirError> {
        write_private(&self.root.join(name), secret)
    }
}

/// Returns whether `text` is the hexadecimal form of `bytes` bytes.
pub fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
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
        // Without it, a power failure can take the file of a key, and all that it encrypts.
        fs::File::open(directory)?.sync_all()
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

/// Creates a directory that only its owner can enter. Makes an existing one so, unless it is
/// reached through a link: that one must be private already, because it may have other uses.
fn create_private(directory: &Path) -> Result<(), StateDirError> {
    let with_path = |source| io_error(directory, source);
    let path = || directory.display().to_string();
    match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(with_path(error)),
        _ => {}
    }
    let found = fs::metadata(directory).map_err(with_path)?;
    if !found.is_dir() {
        return Err(StateDirError::NotADirectory { path: path() });
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(StateDirError::ForeignPart { path: path() });
    }
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    if fs::symlink_metadata(directory)
        .map_err(with_path)?
        .is_symlink()
    {
        let target = fs::canonicalize(directory).map_err(with_path)?;
        return Err(StateDirError::SharedTarget {
            path: path(),
            target: target.display().to_string(),
        });
    }
    set_mode(directory, PRIVATE_DIRECTORY).map_err(with_path)
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
