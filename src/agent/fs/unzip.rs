//! Unpacking an archive into a directory, which is changed only after all of it was unpacked.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::AtFlags,
    unistd::{AccessFlags, faccessat},
};
use tokio_util::sync::CancellationToken;

use super::{
    files::{DIRECTORY_MODE, FileError},
    merge::merge,
    temp_files::TempFileJournal,
};
use crate::system::files::{
    archive::unpack::{self, UnpackError, UnpackLimits},
    directory::DirectoryHandle,
    protected::ProtectedTree,
    resolve::{LastLink, ResolvedPath, resolve},
    root::RootDirectory,
};

#[cfg(test)]
mod fuzz;

#[derive(Debug, thiserror::Error)]
pub enum UnzipError {
    /// The destination is unsuitable.
    #[error(transparent)]
    File(#[from] FileError),
    /// The archive is unsuitable.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error("contains `{0}`, which is not a directory, where the archive has a directory")]
    NotADirectory(String),
    #[error("contains the directory `{0}` where the archive has a file")]
    IsADirectory(String),
    #[error("contains `{0}`, which is on another file system")]
    OtherFileSystem(String),
    #[error("contains `{0}`, which this user may not write to")]
    PermissionDenied(String),
}

/// Unpacks a zip archive into a directory, which is created with its parents if it is missing.
/// Existing files of the same names are replaced; others stay.
///
/// # Errors
/// If the archive is unsuitable or conflicts with existing entries, or the destination may not be
/// written to; nothing was changed then. If an entry cannot be moved to its destination although
/// the checks passed, for example over a file that is a mount point, the entries before it were
/// moved.
pub fn unzip(
    archive: File,
    path: &Path,
    temp_files: &TempFileJournal,
    limits: UnpackLimits,
    shutdown: &CancellationToken,
) -> Result<(), UnzipError> {
    let access = temp_files.access();
    let (directory, missing) = resolve_destination(access.root(), path)?;
    access.note_change(&directory);
    // On the destination's file system, so that the result needs only to be renamed.
    let staging = temp_files
        .create_directory_in(Arc::new(directory))
        .map_err(FileError::from)?;
    let (staged, directory) = (staging.handle(), staging.parent());
    let unpacked = staged
        .create_directories(&missing, DIRECTORY_MODE)
        .map_err(FileError::from)?;
    let into = unpacked.open_readable().map_err(FileError::from)?;
    unpack::unpack_zip(archive, into, limits, shutdown)?;
    let protected = access.root().protected();
    check_mergeable(staged, directory, Path::new(""), protected)?;
    let given = access.give_tree(staged, directory);
    given.map_err(FileError::from)?;
    Ok(merge(staged, directory)?)
}

/// Returns the deepest directory of the path that exists, and the names of those below it that are
/// missing.
fn resolve_destination(
    root: &RootDirectory,
    path: &Path,
) -> Result<(DirectoryHandle, Vec<OsString>), FileError> {
    match resolve(root, path, LastLink::Follow)? {
        ResolvedPath::Existing(existing) => Ok((existing.into_directory()?, Vec::new())),
        ResolvedPath::Missing(missing) if missing.is_link_target => Err(FileError::NotFound),
        ResolvedPath::Missing(missing) => {
            let mut names = missing.parents;
            names.push(missing.name);
            Ok((missing.directory, names))
        }
    }
}

/// Checks that every entry below `from` can be moved to `to`. `relative` is the path of both below
/// their roots, for error messages. Nothing is moved into a protected tree.
fn check_mergeable(
    from: &DirectoryHandle,
    to: &DirectoryHandle,
    relative: &Path,
    protected: Option<&ProtectedTree>,
) -> Result<(), UnzipError> {
    let device = from.metadata().map_err(FileError::from)?.dev();
    let mut adds_names = false;
    for name in from.names().map_err(FileError::from)? {
        let relative = relative.join(&name);
        let display_path = relative.to_string_lossy().into_owned();
        let existing = to.entry(&name).and_then(|entry| match entry {
            Some(entry) => entry.metadata().map(Some),
            None => Ok(None),
        });
        let existing = existing.map_err(FileError::from)?;
        let unpacked = open_if_directory(from, &name)?;
        match (unpacked, existing) {
            (Some(unpacked), Some(existing)) if existing.is_dir() => {
                if protected.is_some_and(|tree| tree.is_edge(&existing)) {
                    return Err(FileError::Protected.into());
                }
                if existing.dev() != device {
                    return Err(UnzipError::OtherFileSystem(display_path));
                }
                // This directory itself is not moved, only its content: its permissions no longer
                // matter, but must not prevent that.
                unpacked.set_mode(0o700).map_err(FileError::from)?;
                let existing =
                    open_if_directory(to, &name)?.ok_or(UnzipError::NotADirectory(display_path))?;
                check_mergeable(&unpacked, &existing, &relative, protected)?;
            }
            (Some(_), Some(_)) => return Err(UnzipError::NotADirectory(display_path)),
            (None, Some(existing)) if existing.is_dir() => {
                return Err(UnzipError::IsADirectory(display_path));
            }
            (None, Some(_)) | (_, None) => adds_names = true,
        }
    }
    match adds_names {
        true => check_writable(to, relative),
        false => Ok(()),
    }
}

fn open_if_directory(
    parent: &DirectoryHandle,
    name: &OsString,
) -> Result<Option<DirectoryHandle>, FileError> {
    match parent.open(name) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Checks that entries can be added to a directory.
fn check_writable(directory: &DirectoryHandle, relative: &Path) -> Result<(), UnzipError> {
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    match faccessat(directory.as_fd(), ".", access, AtFlags::AT_EACCESS) {
        Ok(()) => Ok(()),
        Err(Errno::EACCES) => {
            let display_path = relative.to_string_lossy().into_owned();
            Err(UnzipError::PermissionDenied(display_path))
        }
        Err(error) => Err(FileError::from(io::Error::from(error)).into()),
    }
}
