//! A blob store in a directory: one of the state directory, or one that processes share, on one
//! machine or on a network file system.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use nix::{
    fcntl::{AT_FDCWD, AtFlags},
    unistd::linkat,
};
use object_store::local::LocalFileSystem;
use tempfile::{Builder, TempPath};
use tokio::{io::AsyncWriteExt, runtime::Handle, task::spawn_blocking};

use super::BlobKeys;
use crate::{
    state_dir::{PRIVATE_DIRECTORY, PRIVATE_FILE},
    system::files::directory::descriptor_path,
};

/// The age at which an incomplete file of a shared directory is that of a killed process: one that
/// is being written has just changed, and clocks differ by less.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// The file that identifies a shared directory.
const ID_FILE: &str = ".berth-id";
/// The longest id in bytes.
const MAX_ID: usize = 64;
/// Separates the name of a blob from the random number of an incomplete file. `LocalFileSystem`
/// lists no files with such a name.
const INCOMPLETE: char = '#';

/// Why a shared directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedDirectoryError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{0}: not a directory")]
    NoDirectory(String),
    #[error("{0}: belongs to another user")]
    Foreign(String),
    #[error(
        "{0}: accessible by other users; if its file system is mounted, change its mode to 700"
    )]
    Accessible(String),
    #[error("{0}: not an id that control has written")]
    Id(String),
}

/// The directory of a store.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
    kinds: &'static [BlobKeys],
    /// Identifies a shared directory.
    id: Option<String>,
}

/// A blob that is being written. Dropping it removes what was written.
pub(super) struct Incomplete {
    /// `None` once it is complete or removed.
    written: Option<(tokio::fs::File, TempPath)>,
    target: PathBuf,
}

impl Directory {
    /// Opens a directory that no other process uses, creating it if it is missing. Removes
    /// incomplete files of blobs of these kinds.
    pub(super) fn open(path: &Path, kinds: &'static [BlobKeys]) -> io::Result<Self> {
        create_private(path)?;
        let directory = Self {
            path: path.to_owned(),
            kinds,
            id: None,
        };
        directory.remove_incomplete(None)?;
        // A killed process may not have synced what it created.
        File::open(path)?.sync_all()?;
        Ok(directory)
    }

    /// Opens a directory that other processes may use. It must exist: it is missing if a file
    /// system is not mounted.
    pub(super) fn open_shared(
        path: &Path,
        kinds: &'static [BlobKeys],
    ) -> Result<Self, SharedDirectoryError> {
        let failed = |source| io_error(path, source);
        let found = fs::metadata(path).map_err(failed)?;
        if !found.is_dir() {
            return Err(SharedDirectoryError::NoDirectory(name(path)));
        }
        if found.uid() != nix::unistd::geteuid().as_raw() {
            return Err(SharedDirectoryError::Foreign(name(path)));
        }
        if found.mode() & 0o077 != 0 {
            return Err(SharedDirectoryError::Accessible(name(path)));
        }
        let directory = Self {
            path: path.to_owned(),
            kinds,
            id: Some(shared_id(path)?),
        };
        directory.create_prefixes().map_err(failed)?;
        let removed = directory.remove_incomplete(Some(INTERRUPTED_AFTER));
        removed.map_err(failed)?;
        Ok(directory)
    }

    /// Creates the directories of the blobs. They survive a power failure, also if another process
    /// was killed between the two steps.
    fn create_prefixes(&self) -> io::Result<()> {
        for keys in self.kinds {
            create_private(&self.path.join(keys.prefix))?;
        }
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the id by which processes find that they use the same shared directory.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns a store that reads and removes blobs.
    pub(super) fn store(&self) -> io::Result<LocalFileSystem> {
        LocalFileSystem::new_with_prefix(&self.path).map_err(io::Error::other)
    }

    /// Begins to write a blob.
    pub(super) async fn create(&self, key: &str) -> io::Result<Incomplete> {
        let (root, target) = (self.path.clone(), self.path.join(key));
        let creating = spawn_blocking(move || {
            let parent = target.parent().unwrap_or(&root);
            create_private(parent)?;
            // A new name: files of other processes are neither found nor replaced.
            let random = uuid::Uuid::new_v4().as_u128();
            let mut name = target.file_name().unwrap_or_default().to_owned();
            name.push(format!("{INCOMPLETE}{random}"));
            let path = parent.join(name);
            let mut options = File::options();
            let file = options.write(true).create_new(true).mode(PRIVATE_FILE);
            let file = tokio::fs::File::from_std(file.open(&path)?);
            Ok(Incomplete {
                written: Some((file, TempPath::try_from_path(path)?)),
                target,
            })
        });
        creating.await?
    }

    /// Stores a file without a name under an unused key, without copying its content. It survives a
    /// power failure then. Fails if it is of another file system, or the key is used.
    pub(super) async fn link(&self, key: &str, file: Arc<File>) -> io::Result<()> {
        let (root, target) = (self.path.clone(), self.path.join(key));
        let linking = spawn_blocking(move || {
            let parent = target.parent().unwrap_or(&root);
            create_private(parent)?;
            file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?;
            file.sync_all()?;
            let source = descriptor_path(&*file);
            linkat(
                AT_FDCWD,
                &source,
                AT_FDCWD,
                &target,
                AtFlags::AT_SYMLINK_FOLLOW,
            )?;
            File::open(parent)?.sync_all()
        });
        linking.await?
    }

    /// Checks that a shared directory is the one that was opened. It is not if its file system was
    /// unmounted.
    pub(super) async fn check_mounted(&self) -> io::Result<()> {
        let Some(id) = self.id.clone() else {
            return Ok(());
        };
        let path = self.path.clone();
        let checking = spawn_blocking(move || {
            let reason = match read_id(&path.join(ID_FILE)) {
                Ok(found) if found == id => return Ok(()),
                Ok(_) => "it has another id".to_owned(),
                Err(error) => error.to_string(),
            };
            Err(io::Error::other(format!(
                "{}: not the directory that was opened; is its file system mounted? ({reason})",
                path.display()
            )))
        });
        checking.await?
    }

    /// Removes files that other processes of a shared directory left incomplete. What cannot be
    /// removed is logged.
    pub(super) async fn remove_interrupted(&self) {
        // Those of an exclusive directory are removed when it is opened.
        if self.id.is_none() {
            return;
        }
        let directory = self.clone();
        let removed = spawn_blocking(move || directory.remove_incomplete(Some(INTERRUPTED_AFTER)));
        if let Err(error) = removed.await.unwrap_or_else(|error| Err(error.into())) {
            tracing::warn!(%error, directory = %self.path.display(), "cannot remove incomplete files");
        }
    }

    /// Removes incomplete files of that age, or all.
    fn remove_incomplete(&self, age: Option<Duration>) -> io::Result<()> {
        let until = age.map(|age| SystemTime::now() - age);
        let mut kinds = self.kinds.iter();
        kinds.try_for_each(|keys| remove_incomplete(&self.path, *keys, until))
    }
}

impl Incomplete {
    pub(super) async fn write(&mut self, chunk: &Bytes) -> io::Result<()> {
        match &mut self.written {
            Some((file, _)) => file.write_all(chunk).await,
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Makes the blob visible. It survives a power failure then, because the caller removes its
    /// source.
    pub(super) async fn complete(mut self) -> io::Result<()> {
        let Some((file, _)) = &mut self.written else {
            return Err(ErrorKind::NotFound.into());
        };
        file.flush().await?;
        file.sync_all().await?;
        let (written, target) = (self.written.take(), self.target.clone());
        let renaming = spawn_blocking(move || {
            if let Some((_, path)) = written {
                path.persist(&target).map_err(|error| error.error)?;
            }
            match target.parent() {
                Some(parent) => File::open(parent)?.sync_all(),
                None => Ok(()),
            }
        });
        renaming.await?
    }

    /// Removes what was written.
    pub(super) async fn remove(mut self) {
        let written = self.written.take();
        // A failed task has dropped it, too.
        let _ = spawn_blocking(move || drop(written)).await;
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        // Not on this thread: a network file system may write all it has when a file is closed.
        if let (Some(written), Ok(runtime)) = (self.written.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(written));
        }
    }
}

/// Creates the directory, and its parents, if they are missing. They survive a power failure.
fn create_private(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    if let Some(parent) = parent {
        create_private(parent)?;
    }
    match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match parent {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Returns the id of a shared directory. Gives it one if it has none.
fn shared_id(directory: &Path) -> Result<String, SharedDirectoryError> {
    let file = directory.join(ID_FILE);
    create_id(directory, &file).map_err(|source| io_error(&file, source))?;
    match read_id(&file) {
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(SharedDirectoryError::Id(name(&file)))
        }
        id => id.map_err(|source| io_error(&file, source)),
    }
}

fn read_id(file: &Path) -> io::Result<String> {
    let content = fs::read_to_string(file)?;
    let id = content.trim_end();
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(is_id) {
        true => Ok(id.to_owned()),
        false => Err(ErrorKind::InvalidData.into()),
    }
}

/// Writes a complete file with a new id, unless there is one.
fn create_id(directory: &Path, file: &Path) -> io::Result<()> {
    if file.try_exists()? {
        return Ok(());
    }
    let mut new = Builder::new()
        .permissions(Permissions::from_mode(PRIVATE_FILE))
        .tempfile_in(directory)?;
    writeln!(new, "{}", uuid::Uuid::new_v4())?;
    new.as_file().sync_all()?;
    match new.persist_noclobber(file) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

pub(super) fn io_error(path: &Path, source: io::Error) -> SharedDirectoryError {
    let path = name(path);
    SharedDirectoryError::Io { path, source }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Removes the files of interrupted writes that last changed before `until`, or all. Another
/// process may complete or remove some at the same time.
fn remove_incomplete(
    directory: &Path,
    keys: BlobKeys,
    until: Option<SystemTime>,
) -> io::Result<()> {
    let entries = match fs::read_dir(directory.join(keys.prefix)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let key = name.to_str().and_then(key_of_incomplete);
        if key.is_some_and(|name| (keys.includes)(&format!("{}/{name}", keys.prefix))) {
            remove_if_older(&entry.path(), until)?;
        }
    }
    Ok(())
}

/// Returns the name of the blob that an incomplete file is for.
fn key_of_incomplete(name: &str) -> Option<&str> {
    let (name, random) = name.rsplit_once(INCOMPLETE)?;
    let is_number = !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(name)
}

/// Removes a file that last changed before `until`, if that is set. Links are neither followed nor
/// removed.
fn remove_if_older(path: &Path, until: Option<SystemTime>) -> io::Result<()> {
    let removed = || -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        let is_older = match until {
            Some(until) => found.modified()? <= until,
            None => true,
        };
        if found.is_file() && is_older {
            fs::remove_file(path)?;
        }
        Ok(())
    };
    match removed() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
