//! A directory out of an archive: nothing appears before all of it is there.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    sys::stat::{Mode, fchmod},
    unistd::{AccessFlags, faccessat},
};
use tokio_util::sync::CancellationToken;

use super::{files::FileError, temp_files::TempFileJournal};
use crate::system::files::archive::unpack::{self, Limits, UnpackError};

const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug, thiserror::Error)]
pub enum UnzipError {
    /// Of the place.
    #[error(transparent)]
    File(#[from] FileError),
    /// Of the archive.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error("the archive has a directory `{0}`, and something else of that name is there")]
    NotADirectory(String),
    #[error("the archive has a file `{0}`, and a directory of that name is there")]
    IsADirectory(String),
    #[error("has `{0}` on another file system")]
    OtherFileSystem(String),
    #[error("has `{0}`, where this user may not write")]
    PermissionDenied(String),
}

/// Unpacks a zip archive into a directory, which is made where it is missing, with its parents. Files of the same names are replaced, others stay.
///
/// # Errors
/// Where the archive is bad, or does not go together with what is there, or may not be written there: nothing has changed then. Where something cannot take its place although
/// all was found fine, such as over a file that is a mount point, what came before it has.
pub fn unzip(
    archive: File,
    path: &Path,
    temp_files: &TempFileJournal,
    limits: Limits,
    stop: &CancellationToken,
) -> Result<(), UnzipError> {
    let place = Place::find(path)?;
    // Beside the place, so that what is unpacked need only be renamed.
    let staging = temp_files
        .directory_in(&place.there)
        .map_err(FileError::from)?;
    let unpacked = staging.path().join("unpacked");
    DirBuilder::new()
        .mode(0o700)
        .create(&unpacked)
        .map_err(FileError::from)?;
    unpack::unpack_zip(archive, &unpacked, limits, stop)?;
    if place.missing.as_os_str().is_empty() {
        check(&unpacked, &place.there, Path::new(""))?;
        merge(&unpacked, &place.there)?;
        return Ok(());
    }
    let mode = Permissions::from_mode(DIRECTORY_MODE);
    fs::set_permissions(&unpacked, mode).map_err(FileError::from)?;
    let target = place.there.join(&place.missing);
    if let Some(parent) = target.parent() {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(DIRECTORY_MODE).create(parent);
        made.map_err(FileError::from)?;
    }
    fs::rename(&unpacked, &target).map_err(FileError::from)?;
    Ok(())
}

/// What there is of a path.
struct Place {
    /// The longest part that is there: a directory.
    there: PathBuf,
    /// The rest; empty where all is there.
    missing: PathBuf,
}

impl Place {
    fn find(path: &Path) -> Result<Self, FileError> {
        let mut there = path;
        loop {
            match fs::canonicalize(there) {
                Ok(found) => {
                    if !fs::metadata(&found)?.is_dir() {
                        return Err(FileError::NotADirectory);
                    }
                    let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
                    let is_plain = missing
                        .components()
                        .all(|part| matches!(part, std::path::Component::Normal(_)));
                    if !is_plain {
                        return Err(FileError::NotFound);
                    }
                    return Ok(Place {
                        there: found,
                        missing: missing.to_owned(),
                    });
                }
                // A link that leads nowhere is there all the same.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && fs::symlink_metadata(there).is_err() =>
                {
                    there = there.parent().ok_or(FileError::NotFound)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether all can be moved to its place.
fn check(from: &Path, to: &Path, below: &Path) -> Result<(), UnzipError> {
    let device = fs::symlink_metadata(from).map_err(FileError::from)?.dev();
    let mut gets_names = false;
    for entry in fs::read_dir(from).map_err(FileError::from)? {
        let name = entry.map_err(FileError::from)?.file_name();
        let (from, to, below) = (from.join(&name), to.join(&name), below.join(&name));
        let there = match fs::symlink_metadata(&to) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(FileError::from(error).into()),
        };
        let told = below.to_string_lossy().into_owned();
        let comes = fs::symlink_metadata(&from).map_err(FileError::from)?;
        match (comes.is_dir(), there) {
            (true, Some(there)) if there.is_dir() => {
                if there.dev() != device {
                    return Err(UnzipError::OtherFileSystem(told));
                }
                // It is not moved itself, so that its permissions are of no use any more; they must not keep what is in it.
                fs::set_permissions(&from, Permissions::from_mode(0o700))
                    .map_err(FileError::from)?;
                check(&from, &to, &below)?;
            }
            (true, Some(_)) => return Err(UnzipError::NotADirectory(told)),
            (false, Some(there)) if there.is_dir() => return Err(UnzipError::IsADirectory(told)),
            (false, Some(_)) | (_, None) => gets_names = true,
        }
    }
    match gets_names {
        true => check_writable(to, below),
        false => Ok(()),
    }
}

/// Whether names can be added to a directory.
fn check_writable(directory: &Path, below: &Path) -> Result<(), UnzipError> {
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    match faccessat(AT_FDCWD, directory, access, AtFlags::AT_EACCESS) {
        Ok(()) => Ok(()),
        Err(Errno::EACCES) => Err(UnzipError::PermissionDenied(
            below.to_string_lossy().into_owned(),
        )),
        Err(error) => Err(FileError::from(io::Error::from(error)).into()),
    }
}

/// Moves all to its place: directories that are not there as a whole.
fn merge(from: &Path, to: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        let (from, to) = (from.join(&name), to.join(&name));
        let is_directory =
            |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        match (is_directory(&from), is_directory(&to)) {
            (true, true) => merge(&from, &to)?,
            (true, false) => move_directory(&from, &to)?,
            (false, _) => fs::rename(&from, &to)?,
        }
    }
    Ok(())
}

/// Only who may write a directory may move it: one that is read-only becomes so once it is in its place.
fn move_directory(from: &Path, to: &Path) -> Result<(), FileError> {
    let mode = fs::symlink_metadata(from)?.permissions().mode();
    if mode & 0o700 == 0o700 {
        return Ok(fs::rename(from, to)?);
    }
    fs::set_permissions(from, Permissions::from_mode(mode | 0o700))?;
    // Held open, so that it is this one whose permissions are set whatever its name comes to mean.
    let moved = File::open(from)?;
    fs::rename(from, to)?;
    let mode = Mode::from_bits_truncate(mode & 0o777);
    fchmod(&moved, mode).map_err(|error| io::Error::from(error).into())
}
