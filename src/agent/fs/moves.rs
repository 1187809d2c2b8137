//! Moving files and directories, also to another file system.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    sync::Arc,
};

use nix::{
    fcntl::{AtFlags, readlinkat},
    libc,
    unistd::{Gid, Uid, fchown, fchownat, symlinkat},
};

use super::{
    files::{FileError, place_of},
    temp_files::TempFileJournal,
};
use crate::system::files::{
    directory::{DirectoryHandle, descriptor_path},
    resolve::{LastLink, ResolvedPath, resolve},
};

/// The name of the copy in its temporary directory.
const COPY: &str = "copy";

/// The error of a move, by the path it concerns.
#[derive(Debug)]
pub enum MoveError {
    Source(FileError),
    Destination(FileError),
}

/// An end of a move.
struct MoveEnd {
    directory: DirectoryHandle,
    name: OsString,
}

/// Moves a file or directory. A file at the destination is replaced in the same step.
///
/// # Errors
/// If the source does not exist, or the destination is unsuitable.
pub fn move_path(from: &Path, to: &Path, temp_files: &TempFileJournal) -> Result<(), MoveError> {
    let (source, is_directory) = resolve_source(from).map_err(MoveError::Source)?;
    let destination = resolve_destination(to, is_directory).map_err(MoveError::Destination)?;
    let renamed = source
        .directory
        .rename(&source.name, &destination.directory, &destination.name);
    match renamed {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            move_across_file_systems(&source, destination, temp_files)
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(MoveError::Destination(FileError::InsideItself))
        }
        // The source exists, so the destination is unsuitable.
        Err(error) => Err(MoveError::Destination(error.into())),
    }
}

/// Returns the source, and whether it is a directory.
fn resolve_source(path: &Path) -> Result<(MoveEnd, bool), FileError> {
    let existing = resolve(path, LastLink::Keep)?.existing()?;
    let is_directory = existing.entry.metadata()?.is_dir();
    let (directory, name) = place_of(path, existing)?;
    Ok((MoveEnd { directory, name }, is_directory))
}

fn resolve_destination(path: &Path, is_directory: bool) -> Result<MoveEnd, FileError> {
    let missing = match resolve(path, LastLink::Keep)? {
        ResolvedPath::Existing(existing) => {
            let (directory, name) = place_of(path, existing)?;
            return Ok(MoveEnd { directory, name });
        }
        ResolvedPath::Missing(missing) => missing,
    };
    if let Some(first) = missing.parents.first() {
        let parent = missing.directory.path()?.join(first);
        return Err(FileError::MissingDirectory(parent));
    }
    if missing.must_be_directory && !is_directory {
        return Err(FileError::NotADirectory);
    }
    Ok(MoveEnd {
        directory: missing.directory,
        name: missing.name,
    })
}

/// Copies the source beside the destination, renames the copy and removes the source.
fn move_across_file_systems(
    source: &MoveEnd,
    destination: MoveEnd,
    temp_files: &TempFileJournal,
) -> Result<(), MoveError> {
    let destination_error = |error: io::Error| MoveError::Destination(error.into());
    let staging = temp_files
        .create_directory_in(Arc::new(destination.directory))
        .map_err(destination_error)?;
    let (copy, name) = (OsStr::new(COPY), &source.name);
    copy_entry(&source.directory, name, staging.handle(), copy)
        .and_then(|()| {
            let (staged, directory) = (staging.handle(), staging.parent());
            staged.rename(copy, directory, &destination.name)
        })
        .map_err(destination_error)?;
    let removed = source.directory.remove_all(name);
    removed.map_err(|error| MoveError::Source(error.into()))
}

/// Copies an entry with its attributes.
fn copy_entry(
    from: &DirectoryHandle,
    name: &OsStr,
    to: &DirectoryHandle,
    new_name: &OsStr,
) -> io::Result<()> {
    match from.open(name) {
        Ok(source) => copy_directory(&source, to, new_name),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let entry = from.entry(name)?.ok_or(io::ErrorKind::NotFound)?;
            copy_file_or_link(&entry, to, new_name)
        }
        Err(error) => Err(error),
    }
}

fn copy_directory(source: &DirectoryHandle, to: &DirectoryHandle, name: &OsStr) -> io::Result<()> {
    let copy = to.create_directory(name, 0o700)?;
    for name in source.names()? {
        copy_entry(source, &name, &copy, &name)?;
    }
    let metadata = source.metadata()?;
    let path = copy.descriptor_path();
    chown(&path, Some(metadata.uid()), Some(metadata.gid()))?;
    fs::set_permissions(&path, metadata.permissions())
}

fn copy_file_or_link(entry: &File, to: &DirectoryHandle, name: &OsStr) -> io::Result<()> {
    let metadata = entry.metadata()?;
    let owner = owner_of(&metadata);
    if metadata.is_symlink() {
        let target = readlinkat(entry, "")?;
        symlinkat(target.as_os_str(), to, name)?;
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        return Ok(fchownat(to, name, owner.0, owner.1, flags)?);
    }
    if !metadata.is_file() {
        return Err(io::Error::other(
            "pipes, sockets and devices cannot be moved to another file system",
        ));
    }
    let mut copy = to.create_file(name)?;
    io::copy(&mut File::open(descriptor_path(entry))?, &mut copy)?;
    copy.set_modified(metadata.modified()?)?;
    fchown(&copy, owner.0, owner.1)?;
    // After the change of owner, which clears the set-user-ID bit.
    copy.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))
}

fn owner_of(metadata: &Metadata) -> (Option<Uid>, Option<Gid>) {
    let (user, group) = (metadata.uid(), metadata.gid());
    (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
}
