//! Moving what is there, also to another file system.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use nix::libc;

use super::{files::FileError, temp_files::TempFileJournal};

/// Which of the two paths of a move is wrong.
#[derive(Debug)]
pub enum MoveError {
    Source(FileError),
    Destination(FileError),
}

/// Gives something another name. What a file replaces is gone in the same step.
///
/// # Errors
/// Where the one is not there, or the other cannot be.
pub fn move_path(from: &Path, to: &Path, temp_files: &TempFileJournal) -> Result<(), MoveError> {
    let source = fs::symlink_metadata(from).map_err(|error| MoveError::Source(error.into()))?;
    match fs::rename(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            across(from, to, &source, temp_files)
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(MoveError::Destination(FileError::InsideItself))
        }
        // The file is there, so it is the other's directory that is not.
        Err(error) => Err(MoveError::Destination(error.into())),
    }
}

/// A move to another file system: a copy beside the new place, which then takes its name.
fn across(
    from: &Path,
    to: &Path,
    source: &Metadata,
    temp_files: &TempFileJournal,
) -> Result<(), MoveError> {
    let wrong = |error: io::Error| MoveError::Destination(error.into());
    let parent = to
        .parent()
        .ok_or(MoveError::Destination(FileError::RootDirectory))?;
    let beside = temp_files.directory_in(parent).map_err(wrong)?;
    let copy = beside.path().join("copy");
    copy_all(from, &copy, source).map_err(wrong)?;
    fs::rename(&copy, to).map_err(wrong)?;
    let removed = if source.is_dir() {
        fs::remove_dir_all(from)
    } else {
        fs::remove_file(from)
    };
    removed.map_err(|error| MoveError::Source(error.into()))
}

fn copy_all(from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_all(
                &entry.path(),
                &to.join(entry.file_name()),
                &entry.metadata()?,
            )?;
        }
    } else if kind.is_file() {
        let mut copy = File::create_new(to)?;
        io::copy(&mut File::open(from)?, &mut copy)?;
        copy.set_modified(metadata.modified()?)?;
    } else {
        return Err(io::Error::other(
            "pipes, sockets and devices stay on their file system",
        ));
    }
    std::os::unix::fs::lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    if kind.is_symlink() {
        return Ok(());
    }
    // After the owner, whose change takes the set-user bit away.
    fs::set_permissions(to, metadata.permissions())
}
