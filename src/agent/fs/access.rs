//! The access of a session's file operations to the machine's files.

use std::{
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
};

use nix::{
    fcntl::AtFlags,
    unistd::{Gid, Uid, fchownat},
};

use crate::{
    agent::sessions::Taints,
    system::files::{directory::DirectoryHandle, owner::give_tree, root::RootDirectory},
};

/// The root of the paths of a session, the user of its files, and its taints. The default is that
/// of no session: the root of this process.
#[derive(Clone, Debug, Default)]
pub struct FileAccess {
    root: RootDirectory,
    /// The user of the session's programs, if they have one of their own.
    user: Option<(Uid, Gid)>,
    taints: Option<Taints>,
}

impl FileAccess {
    #[must_use]
    pub fn new(root: RootDirectory, user: Option<(Uid, Gid)>, taints: Taints) -> Self {
        FileAccess {
            root,
            user,
            taints: Some(taints),
        }
    }

    #[must_use]
    pub fn root(&self) -> &RootDirectory {
        &self.root
    }

    /// Notes that a file, or an entry of a directory, is about to change. The handle decides
    /// whether it is the session's: its path may lead elsewhere by now.
    pub(super) fn note_change(&self, entry: &impl AsFd) {
        if let Some(taints) = &self.taints {
            taints.change(entry.as_fd());
        }
    }

    /// Gives a new file or directory to the user of the session's programs if its directory belongs
    /// to that user.
    pub(super) fn give(&self, entry: &impl AsFd, directory: &DirectoryHandle) -> io::Result<()> {
        if let Some((uid, gid)) = self.user_of(directory)? {
            fchownat(entry, c"", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)?;
        }
        Ok(())
    }

    /// Gives a new tree, as [`FileAccess::give`] does.
    pub(super) fn give_tree(
        &self,
        tree: &DirectoryHandle,
        directory: &DirectoryHandle,
    ) -> io::Result<()> {
        match self.user_of(directory)? {
            Some((uid, gid)) => give_tree(&tree.descriptor_path().join("."), uid, gid),
            None => Ok(()),
        }
    }

    fn user_of(&self, directory: &DirectoryHandle) -> io::Result<Option<(Uid, Gid)>> {
        let Some(user) = self.user else {
            return Ok(None);
        };
        let owner = Uid::from_raw(directory.metadata()?.uid());
        Ok((owner == user.0).then_some(user))
    }
}
