//! Moving files and directories, also to another file system.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{MetadataExt, lchown, symlink},
    path::Path,
};

use nix::libc;

use super::{files::FileError, temp_files::TempFileJournal};

/// The error of a move, by the path it concerns.
#[derive(Debug)]
pub enum MoveError {
    Source(FileError),
    Destination(FileError),
}

/// Moves a file or directory. A file at the destination is replaced in the same step.
///
/// # Errors
/// If the source does not exist, or the destination is unsuitable.
pub fn move_path(from: &Path, to: &Path, temp_files: &TempFileJournal) -> Result<(), MoveError> {
    let source = fs::symlink_metadata(from).map_err(|error| MoveError::Source(error.into()))?;
    match fs::rename(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            move_across_file_systems(from, to, &source, temp_files)
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(MoveError::Destination(FileError::InsideItself))
        }
        // The source exists, so a missing directory is the destination's.
        Err(error) => Err(MoveError::Destination(error.into())),
    }
}

/// Copies the source beside the destination, renames the copy and removes the source.
fn move_across_file_systems(
    from: &Path,
    to: &Path,
    source: &Metadata,
    temp_files: &TempFileJournal,
) -> Result<(), MoveError> {
    let destination_error = |error: io::Error| MoveError::Destination(error.into());
    let Some(parent) = to.parent() else {
        return Err(MoveError::Destination(FileError::RootDirectory));
    };
    let staging = temp_files
        .create_directory_in(parent)
        .map_err(destination_error)?;
    let copy = staging.path().join("copy");
    copy_tree(from, &copy, source).map_err(destination_error)?;
    fs::rename(&copy, to).map_err(destination_error)?;
    let removed = if source.is_dir() {
        fs::remove_dir_all(from)
    } else {
        fs::remove_file(from)
    };
    removed.map_err(|error| MoveError::Source(error.into()))
}

fn copy_tree(from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let copy = to.join(entry.file_name());
            copy_tree(&entry.path(), &copy, &entry.metadata()?)?;
        }
    } else if kind.is_file() {
        let mut copy = File::create_new(to)?;
        io::copy(&mut File::open(from)?, &mut copy)?;
        copy.set_modified(metadata.modified()?)?;
    } else {
        return Err(io::Error::other(
            "pipes, sockets and devices cannot be moved to another file system",
        ));
    }
    lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    if kind.is_symlink() {
        return Ok(());
    }
    // After the change of owner, which clears the set-user-ID bit.
    fs::set_permissions(to, metadata.permissions())
}
