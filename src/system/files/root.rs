//! The directory that absolute paths start at.

use std::{
    fs::{self, Metadata},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};

use super::{
    directory::{DirectoryHandle, descriptor_path},
    resolve::{LastLink, ResolveError, resolve},
};

/// The directory that absolute paths start at: `/` of this process, or of another mount namespace.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RootDirectory(Option<Arc<NamespaceRoot>>);

#[derive(Debug)]
struct NamespaceRoot {
    directory: DirectoryHandle,
    /// Without it, the mounts below the directory disappear.
    _namespace: Arc<OwnedFd>,
}

impl RootDirectory {
    /// Returns the root of a mount namespace, which was opened there.
    #[must_use]
    pub fn of_namespace(root: OwnedFd, namespace: Arc<OwnedFd>) -> Self {
        RootDirectory(Some(Arc::new(NamespaceRoot {
            directory: DirectoryHandle::from_entry(root.into()),
            _namespace: namespace,
        })))
    }

    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self) -> io::Result<DirectoryHandle> {
        match &self.0 {
            Some(root) => root.directory.try_clone(),
            None => DirectoryHandle::root(),
        }
    }

    /// Returns the path by which system calls of this process reach an absolute path without links,
    /// as long as a clone of this value exists.
    #[must_use]
    pub fn reach(&self, path: &Path) -> PathBuf {
        match &self.0 {
            Some(root) => {
                let relative = path.strip_prefix("/").unwrap_or(path);
                root.directory.descriptor_path().join(relative)
            }
            None => path.to_owned(),
        }
    }

    /// Returns the absolute path without links that leads to an existing entry.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let Some(root) = &self.0 else {
            return fs::canonicalize(path);
        };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let entry = openat2(&root.directory, path, how)?;
        fs::read_link(descriptor_path(&entry))
    }

    /// Returns the attributes of the entry that a path leads to.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let Some(_) = &self.0 else {
            return fs::metadata(path);
        };
        match resolve(self, path, LastLink::Follow) {
            Ok(resolved) => resolved.existing()?.entry.metadata(),
            Err(ResolveError::Io(error)) => Err(error),
            Err(ResolveError::ForeignLink) => Err(Errno::EACCES.into()),
        }
    }
}
