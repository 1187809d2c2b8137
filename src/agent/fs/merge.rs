//! Moving a tree that was built in a temporary directory to its destination.

use std::{ffi::OsStr, io, os::unix::fs::MetadataExt};

use super::files::FileError;
use crate::system::files::directory::DirectoryHandle;

/// Moves every entry below `from` to `to`. A directory that `to` lacks is moved with its content,
/// files and symbolic links are replaced. No symbolic link of either tree is followed.
///
/// # Errors
/// If an entry cannot be moved; those before it were.
pub(super) fn merge(from: &DirectoryHandle, to: &DirectoryHandle) -> Result<(), FileError> {
    for name in from.names()? {
        match from.open(&name) {
            Ok(directory) => merge_directory(from, &name, &directory, to)?,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                from.rename(&name, to, &name)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn merge_directory(
    from: &DirectoryHandle,
    name: &OsStr,
    directory: &DirectoryHandle,
    to: &DirectoryHandle,
) -> Result<(), FileError> {
    match move_directory(from, name, directory, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            merge(directory, &to.open(name)?)
        }
        moved => Ok(moved?),
    }
}

/// Moves a directory. Renaming one requires write permission on it, so a read-only directory gets
/// its permissions only after the move.
fn move_directory(
    from: &DirectoryHandle,
    name: &OsStr,
    directory: &DirectoryHandle,
    to: &DirectoryHandle,
) -> io::Result<()> {
    let mode = directory.metadata()?.mode() & 0o7777;
    if mode & 0o700 == 0o700 {
        return from.rename_new(name, to, name);
    }
    directory.set_mode(mode | 0o700)?;
    from.rename_new(name, to, name)?;
    // The handle identifies this directory even if its new name is replaced in the meantime.
    directory.set_mode(mode)
}
