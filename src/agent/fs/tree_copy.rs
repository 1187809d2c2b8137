//! Copies of files and directories to another file system, with their attributes.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, Permissions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, readlinkat},
    libc::off_t,
    unistd::{Gid, Uid, Whence, fchown, fchownat, lseek, symlinkat},
};
use tokio_util::sync::CancellationToken;

use super::files::FileError;
use crate::system::files::{
    directory::{DirectoryHandle, descriptor_path},
    virtual_fs::is_virtual,
};

/// The deepest directory that is copied, counted from the copied one.
pub(super) const MAX_DEPTH: usize = 128;
/// The descriptors that a copy needs: two for each level, and those of one file.
pub(super) const DESCRIPTORS_PER_COPY: usize = 2 * (MAX_DEPTH + 1) + 3;
/// The bytes that are copied between two checks whether the copy is cancelled.
const CHUNK_BYTES: u64 = 8 << 20;

/// The error of a copy.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The source cannot be copied, whatever the destination is.
    Source(FileError),
    Io(io::Error),
    Cancelled,
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        CopyError::Io(error)
    }
}

impl From<Errno> for CopyError {
    fn from(error: Errno) -> Self {
        CopyError::Io(error.into())
    }
}

/// Copies the entry `name` of `from` to `new_name` in `to`, with its content and attributes.
///
/// # Errors
/// If something cannot be copied, directories are nested more than [`MAX_DEPTH`] deep, or `cancel`
/// is cancelled. What was copied until then stays.
pub(super) fn copy_entry(
    from: &DirectoryHandle,
    name: &OsStr,
    to: &DirectoryHandle,
    new_name: &OsStr,
    cancel: &CancellationToken,
) -> Result<(), CopyError> {
    TreeCopy { cancel, depth: 0 }.copy(from, name, to, new_name)
}

/// A copy in progress.
struct TreeCopy<'a> {
    cancel: &'a CancellationToken,
    /// The level of the current directory, below the copied one.
    depth: usize,
}

impl TreeCopy<'_> {
    fn copy(
        &mut self,
        from: &DirectoryHandle,
        name: &OsStr,
        to: &DirectoryHandle,
        new_name: &OsStr,
    ) -> Result<(), CopyError> {
        self.check_cancelled()?;
        match from.open(name) {
            Ok(source) => self.copy_directory(&source, to, new_name),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let entry = from.entry(name)?.ok_or(io::ErrorKind::NotFound);
                self.copy_file_or_link(&entry.map_err(io::Error::from)?, to, new_name)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn copy_directory(
        &mut self,
        source: &DirectoryHandle,
        to: &DirectoryHandle,
        name: &OsStr,
    ) -> Result<(), CopyError> {
        if self.depth > MAX_DEPTH {
            return Err(CopyError::Source(FileError::TooDeep));
        }
        require_stored(source)?;
        let copy = to.create_directory(name, 0o700)?;
        self.depth += 1;
        for name in source.names()? {
            self.copy(source, &name, &copy, &name)?;
        }
        self.depth -= 1;
        let metadata = source.metadata()?;
        let path = copy.descriptor_path();
        chown(&path, Some(metadata.uid()), Some(metadata.gid()))?;
        Ok(fs::set_permissions(&path, metadata.permissions())?)
    }

    fn copy_file_or_link(
        &self,
        entry: &File,
        to: &DirectoryHandle,
        name: &OsStr,
    ) -> Result<(), CopyError> {
        let metadata = entry.metadata()?;
        let owner = owner_of(&metadata);
        if metadata.is_symlink() {
            let target = readlinkat(entry, "")?;
            symlinkat(target.as_os_str(), to, name)?;
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            return Ok(fchownat(to, name, owner.0, owner.1, flags)?);
        }
        if !metadata.is_file() {
            return Err(CopyError::Io(io::Error::other(
                "pipes, sockets and devices cannot be moved to another file system",
            )));
        }
        require_stored(entry)?;
        let copy = to.create_file(name)?;
        self.copy_content(&File::open(descriptor_path(entry))?, &copy)?;
        copy.set_modified(metadata.modified()?)?;
        fchown(&copy, owner.0, owner.1)?;
        // After the change of owner, which clears the set-user-ID bit.
        Ok(copy.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))?)
    }

    /// Copies the content of a file, and leaves out its holes.
    fn copy_content(&self, source: &File, copy: &File) -> Result<(), CopyError> {
        let mut position = 0;
        loop {
            self.check_cancelled()?;
            let data = match lseek(source, position, Whence::SeekData) {
                Ok(data) => data,
                // Nothing but a hole follows.
                Err(Errno::ENXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let end = lseek(source, data, Whence::SeekHole)?;
            lseek(source, data, Whence::SeekSet)?;
            lseek(copy, data, Whence::SeekSet)?;
            let length = u64::try_from(end - data).unwrap_or_default();
            // `io::copy` lets the kernel copy.
            let mut chunk = Read::take(source, length.min(CHUNK_BYTES));
            let copied = io::copy(&mut chunk, &mut &*copy)?;
            if copied == 0 {
                // It was truncated meanwhile.
                break;
            }
            position = data + off_t::try_from(copied).unwrap_or(off_t::MAX);
        }
        Ok(copy.set_len(source.metadata()?.len())?)
    }

    fn check_cancelled(&self) -> Result<(), CopyError> {
        match self.cancel.is_cancelled() {
            true => Err(CopyError::Cancelled),
            false => Ok(()),
        }
    }
}

/// Rejects a file or directory whose content the kernel generates: it may be endless or block its
/// reader, and could not be removed after the copy.
fn require_stored(source: impl std::os::fd::AsFd) -> Result<(), CopyError> {
    match is_virtual(source)? {
        true => Err(CopyError::Source(FileError::VirtualFileSystem)),
        false => Ok(()),
    }
}

fn owner_of(metadata: &Metadata) -> (Option<Uid>, Option<Gid>) {
    let (user, group) = (metadata.uid(), metadata.gid());
    (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
}
