//! Unpacking an archive into a directory, which is changed only after all of it was unpacked.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    sys::stat::{Mode, fchmod},
    unistd::{AccessFlags, faccessat},
};
use tokio_util::sync::CancellationToken;

use super::{files::FileError, temp_files::TempFileJournal};
use crate::system::files::archive::unpack::{self, UnpackError, UnpackLimits};

const DIRECTORY_MODE: u32 = 0o755;

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
    let destination = Destination::resolve(path)?;
    // On the destination's file system, so that the result needs only to be renamed.
    let staging = temp_files
        .create_directory_in(&destination.existing)
        .map_err(FileError::from)?;
    let unpacked = staging.path().join("unpacked");
    DirBuilder::new()
        .mode(0o700)
        .create(&unpacked)
        .map_err(FileError::from)?;
    unpack::unpack_zip(archive, &unpacked, limits, shutdown)?;
    if destination.missing.as_os_str().is_empty() {
        check_mergeable(&unpacked, &destination.existing, Path::new(""))?;
        merge(&unpacked, &destination.existing)?;
        return Ok(());
    }
    Ok(move_to_new(&unpacked, &destination)?)
}

/// Creates the missing parents of the destination and renames the directory to it.
fn move_to_new(unpacked: &Path, destination: &Destination) -> Result<(), FileError> {
    fs::set_permissions(unpacked, Permissions::from_mode(DIRECTORY_MODE))?;
    let target = destination.existing.join(&destination.missing);
    if let Some(parent) = target.parent() {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(parent)?;
    }
    Ok(fs::rename(unpacked, &target)?)
}

/// A path, divided into the part that exists and the part that does not.
struct Destination {
    /// The deepest existing directory, in canonical form.
    existing: PathBuf,
    /// The rest; empty if the complete path exists.
    missing: PathBuf,
}

impl Destination {
    fn resolve(path: &Path) -> Result<Self, FileError> {
        let mut existing = path;
        loop {
            match fs::canonicalize(existing) {
                Ok(canonical) => return Self::divide(path, existing, canonical),
                // A dangling link exists all the same, and is an error.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && fs::symlink_metadata(existing).is_err() =>
                {
                    existing = existing.parent().ok_or(FileError::NotFound)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn divide(path: &Path, existing: &Path, canonical: PathBuf) -> Result<Self, FileError> {
        if !fs::metadata(&canonical)?.is_dir() {
            return Err(FileError::NotADirectory);
        }
        let missing = path.strip_prefix(existing).unwrap_or(Path::new(""));
        let is_plain = missing
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        if !is_plain {
            return Err(FileError::NotFound);
        }
        Ok(Destination {
            existing: canonical,
            missing: missing.to_owned(),
        })
    }
}

/// Checks that every entry below `from` can be moved to `to`. `relative` is the path of both below
/// their roots, for error messages.
fn check_mergeable(from: &Path, to: &Path, relative: &Path) -> Result<(), UnzipError> {
    let device = fs::symlink_metadata(from).map_err(FileError::from)?.dev();
    let mut adds_names = false;
    for entry in fs::read_dir(from).map_err(FileError::from)? {
        let name = entry.map_err(FileError::from)?.file_name();
        let (from, to, relative) = (from.join(&name), to.join(&name), relative.join(&name));
        let existing = match fs::symlink_metadata(&to) {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(FileError::from(error).into()),
        };
        let display_path = relative.to_string_lossy().into_owned();
        let unpacked = fs::symlink_metadata(&from).map_err(FileError::from)?;
        match (unpacked.is_dir(), existing) {
            (true, Some(existing)) if existing.is_dir() => {
                if existing.dev() != device {
                    return Err(UnzipError::OtherFileSystem(display_path));
                }
                // This directory itself is not moved, only its content: its permissions no longer
                // matter, but must not prevent that.
                fs::set_permissions(&from, Permissions::from_mode(0o700))
                    .map_err(FileError::from)?;
                check_mergeable(&from, &to, &relative)?;
            }
            (true, Some(_)) => return Err(UnzipError::NotADirectory(display_path)),
            (false, Some(existing)) if existing.is_dir() => {
                return Err(UnzipError::IsADirectory(display_path));
            }
            (false, Some(_)) | (_, None) => adds_names = true,
        }
    }
    match adds_names {
        true => check_writable(to, relative),
        false => Ok(()),
    }
}

/// Checks that entries can be added to a directory.
fn check_writable(directory: &Path, relative: &Path) -> Result<(), UnzipError> {
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    match faccessat(AT_FDCWD, directory, access, AtFlags::AT_EACCESS) {
        Ok(()) => Ok(()),
        Err(Errno::EACCES) => {
            let display_path = relative.to_string_lossy().into_owned();
            Err(UnzipError::PermissionDenied(display_path))
        }
        Err(error) => Err(FileError::from(io::Error::from(error)).into()),
    }
}

/// Moves every entry below `from` to `to`. A directory that `to` lacks is moved with its content.
fn merge(from: &Path, to: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        let (from, to) = (from.join(&name), to.join(&name));
        let is_directory =
            |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        match (is_directory(&from), is_directory(&to)) {
            (true, true) => merge(&from, &to)?,
            (true, false) => move_directory(&from, &to)?,
            (false, _) => fs::rename(&from, &to)?,
        }
    }
    Ok(())
}

/// Moves a directory. Renaming one requires write permission on it, so a read-only directory gets
/// its permissions only after the move.
fn move_directory(from: &Path, to: &Path) -> Result<(), FileError> {
    let mode = fs::symlink_metadata(from)?.permissions().mode();
    if mode & 0o700 == 0o700 {
        return Ok(fs::rename(from, to)?);
    }
    fs::set_permissions(from, Permissions::from_mode(mode | 0o700))?;
    // The open handle identifies this directory even if its new name is replaced in the meantime.
    let moved = File::open(from)?;
    fs::rename(from, to)?;
    let mode = Mode::from_bits_truncate(mode & 0o777);
    fchmod(&moved, mode).map_err(|error| io::Error::from(error).into())
}
