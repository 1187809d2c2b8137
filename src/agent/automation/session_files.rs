//! The files of a session that scripts may give to pages: downloads, and files that clients have
//! put into the directories for temporary files.

use std::{
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use crate::{agent::session_dir::SessionDir, system::files::root::RootDirectory};

/// The directories for temporary files, which are the session's own if its programs are isolated.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// The files of a session. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionFiles {
    root: RootDirectory,
    directories: Arc<[PathBuf]>,
}

/// Why a path is not given to a page.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionFileError {
    #[error("permission denied")]
    Outside,
    #[error("no such file")]
    Missing,
    #[error(transparent)]
    Io(io::Error),
}

impl SessionFiles {
    /// `root` is the root directory that clients have.
    pub(super) fn new(root: RootDirectory, session: &SessionDir) -> Self {
        let temporary = TEMPORARY.into_iter().map(PathBuf::from);
        SessionFiles {
            root,
            directories: temporary.chain([session.downloads()]).collect(),
        }
    }

    /// Checks that an absolute path leads to a file of the session. Blocks for the lookup.
    ///
    /// # Errors
    /// Fails if the path is in none of the directories or leads to a file of the agent, or if there
    /// is no such file.
    pub(super) fn check(&self, path: &Path) -> Result<(), SessionFileError> {
        let mut directories = self.directories.iter();
        if !directories.any(|directory| is_below(path, directory)) {
            return Err(SessionFileError::Outside);
        }
        match self.root.metadata(path) {
            Ok(found) if found.is_file() || found.is_dir() => Ok(()),
            Ok(_) => Err(SessionFileError::Outside),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(SessionFileError::Outside)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SessionFileError::Missing),
            Err(error) => Err(SessionFileError::Io(error)),
        }
    }

    /// Returns the directories, for messages.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(PathBuf::as_path)
    }
}

/// Whether a path is below a directory by its text: no component of it leads back.
pub(super) fn is_below(path: &Path, directory: &Path) -> bool {
    let is_name = |component| matches!(component, Component::Normal(_));
    let inside = path.strip_prefix(directory);
    inside.is_ok_and(|inside| inside.components().all(is_name))
}
