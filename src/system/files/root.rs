//! The directory that absolute paths start at.

use std::{
    fs::Metadata,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::errno::Errno;

use super::{
    directory::DirectoryHandle,
    protected::ProtectedTree,
    resolve::{LastLink, ResolveError, resolve},
};

/// The directory that absolute paths start at: `/` of this process, or of another mount namespace.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RootDirectory {
    namespace: Option<Arc<NamespaceRoot>>,
    protected: Option<Arc<ProtectedTree>>,
}

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
        RootDirectory {
            namespace: Some(Arc::new(NamespaceRoot {
                directory: DirectoryHandle::from_entry(root.into()),
                _namespace: namespace,
            })),
            protected: None,
        }
    }

    /// Makes all paths lead past this tree.
    #[must_use]
    pub fn protecting(mut self, tree: ProtectedTree) -> Self {
        self.protected = Some(Arc::new(tree));
        self
    }

    /// Returns the tree that paths do not lead to.
    #[must_use]
    pub fn protected(&self) -> Option<&ProtectedTree> {
        self.protected.as_deref()
    }

    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self) -> io::Result<DirectoryHandle> {
        match &self.namespace {
            Some(root) => root.directory.try_clone(),
            None => DirectoryHandle::root(),
        }
    }

    /// Returns the path by which system calls of this process reach an absolute path without links,
    /// as long as a clone of this value exists.
    #[must_use]
    pub fn reach(&self, path: &Path) -> PathBuf {
        match &self.namespace {
            Some(root) => {
                let relative = path.strip_prefix("/").unwrap_or(path);
                root.directory.descriptor_path().join(relative)
            }
            None => path.to_owned(),
        }
    }

    /// Returns the attributes of the entry that a path leads to.
    ///
    /// # Errors
    /// If there is no such entry, or the path may not lead to it.
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match resolve(self, path, LastLink::Follow) {
            Ok(resolved) => resolved.existing()?.entry.metadata(),
            Err(ResolveError::Io(error)) => Err(error),
            Err(_) => Err(Errno::EACCES.into()),
        }
    }
}
