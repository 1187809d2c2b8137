//! Open directories whose entries are reached by descriptor, never by path.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, RenameFlags, open, openat, renameat, renameat2},
    sys::stat::{Mode, mkdirat},
    unistd::{Uid, UnlinkatFlags, unlinkat},
};

use super::remove::remove_all;

/// The bit by which entries of a directory get its group.
const SET_GROUP_ID: u32 = 0o2000;
/// The permissions that a directory is created with: private, and with the sticky bit, which no
/// umask clears. Other directories do not have this combination. Another directory in the place of
/// the new one is recognized by that.
const NEW_DIRECTORY_MODE: u32 = 0o1700;
/// The bits by which it is recognized: a umask may clear the others.
const NEW_DIRECTORY_MASK: u32 = 0o1077;

/// An open directory. It stays the same directory if its path is replaced.
///
/// Names passed to its methods are single components, and no symbolic link is followed. The
/// descriptor needs no permission to read the directory (`O_PATH`).
#[derive(Debug)]
pub struct DirectoryHandle(File);

impl DirectoryHandle {
    /// Opens `/`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn root() -> io::Result<Self> {
        let root = open("/", directory_flags(), Mode::empty())?;
        Ok(DirectoryHandle(root.into()))
    }

    /// # Errors
    /// If no descriptor is available.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(DirectoryHandle)
    }

    /// Opens the directory at a path that only this process's user can change. A link at its end is
    /// not followed.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn open_path(path: &Path) -> io::Result<Self> {
        let opened = open(path, directory_flags(), Mode::empty())?;
        Ok(DirectoryHandle(opened.into()))
    }

    /// Opens the directory `name`.
    ///
    /// # Errors
    /// If there is no such directory. A symbolic link is `NotADirectory`.
    pub fn open(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let opened = openat(&self.0, name.as_ref(), directory_flags(), Mode::empty())?;
        Ok(DirectoryHandle(opened.into()))
    }

    /// Returns a handle on the entry `name`, of whatever type, that allows only to examine it
    /// (`O_PATH`). `None` if there is no such entry.
    ///
    /// # Errors
    /// If the entry may not be accessed.
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<File>> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Ok(entry) => Ok(Some(entry.into())),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a handle of an open directory.
    pub(super) fn from_entry(entry: File) -> Self {
        DirectoryHandle(entry)
    }

    pub(super) fn into_entry(self) -> File {
        self.0
    }

    /// Creates a directory with these permissions, whatever the umask is. A set-group-ID bit that
    /// is inherited from the parent stays.
    ///
    /// # Errors
    /// If it exists, or cannot be created. A directory that another user puts in its place
    /// meanwhile is `AlreadyExists` and stays unchanged.
    pub fn create_directory(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        mkdirat(&self.0, name, Mode::from_bits_truncate(NEW_DIRECTORY_MODE))?;
        let created = self.open(name).inspect_err(|_| self.discard(name))?;
        let actual = self.require_new(&created)?;
        created
            .set_mode(mode | actual & SET_GROUP_ID)
            .inspect_err(|_| self.discard(name))?;
        Ok(created)
    }

    /// Checks that a directory, opened by its name, is the one that was just created, and returns
    /// its permissions.
    fn require_new(&self, opened: &DirectoryHandle) -> io::Result<u32> {
        let (metadata, parent) = (opened.metadata()?, self.metadata()?);
        let mode = metadata.mode() & 0o7777;
        let is_new = mode & NEW_DIRECTORY_MASK == NEW_DIRECTORY_MODE & NEW_DIRECTORY_MASK
            && metadata.uid() == Uid::effective().as_raw()
            && metadata.dev() == parent.dev();
        match is_new {
            true => Ok(mode),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Removes a new directory. Fails only if it was replaced.
    fn discard(&self, name: &OsStr) {
        let _ = self.remove_empty_directory(name);
    }

    /// Creates a chain of directories, one within the other, and returns the innermost. Those that
    /// exist stay unchanged.
    ///
    /// # Errors
    /// If one of them cannot be created.
    pub fn create_directories(&self, names: &[OsString], mode: u32) -> io::Result<Self> {
        let mut directory = self.try_clone()?;
        for name in names {
            directory = match directory.create_directory(name, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    directory.open(name)?
                }
                created => created?,
            };
        }
        Ok(directory)
    }

    /// Creates a file that only its owner can access.
    ///
    /// # Errors
    /// If the name exists, or the file cannot be created.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Ok(openat(&self.0, name, flags, mode)?.into())
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// If there is no such file, or the entry is a symbolic link.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Renames the entry `name` to `new_name` in `to`, and replaces what has that name.
    ///
    /// # Errors
    /// If it cannot have that name.
    pub fn rename(&self, name: &OsStr, to: &DirectoryHandle, new_name: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, name, &to.0, new_name)?)
    }

    /// Renames like [`DirectoryHandle::rename`], but replaces nothing.
    ///
    /// # Errors
    /// If the new name exists or cannot be given.
    pub fn rename_new(
        &self,
        name: &OsStr,
        to: &DirectoryHandle,
        new_name: &OsStr,
    ) -> io::Result<()> {
        match renameat2(
            &self.0,
            name,
            &to.0,
            new_name,
            RenameFlags::RENAME_NOREPLACE,
        ) {
            // The file system lacks the flag.
            Err(Errno::EINVAL) if to.entry(new_name)?.is_none() => self.rename(name, to, new_name),
            Err(Errno::EINVAL) => Err(io::ErrorKind::AlreadyExists.into()),
            renamed => Ok(renamed?),
        }
    }

    /// Removes a file or symbolic link.
    ///
    /// # Errors
    /// If it does not exist or is a directory.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If it is not an empty directory.
    pub fn remove_empty_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)?)
    }

    /// Removes an entry of any type, as [`remove_all`] does.
    ///
    /// # Errors
    /// If something could not be removed.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        remove_all(&self.descriptor_path().join(name))
    }

    /// Returns the names of the entries.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(self.descriptor_path())?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    /// # Errors
    /// If the attributes cannot be read.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// If it is not permitted.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.descriptor_path(), Permissions::from_mode(mode))
    }

    /// Returns a descriptor that the directory can be read with.
    ///
    /// # Errors
    /// If that is not permitted.
    pub fn open_readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(open(&self.descriptor_path(), flags, Mode::empty())?)
    }

    /// Returns the path that the directory has now.
    ///
    /// # Errors
    /// If it cannot be determined.
    pub fn path(&self) -> io::Result<PathBuf> {
        fs::read_link(self.descriptor_path())
    }

    /// Returns a path that leads to this directory as long as the handle exists.
    pub fn descriptor_path(&self) -> PathBuf {
        descriptor_path(&self.0)
    }
}

impl AsFd for DirectoryHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns a path that leads to an open file, of whatever type, without a lookup of its name.
pub fn descriptor_path(file: &impl AsRawFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

fn directory_flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}
