//! Reading and changing single files and directories. Everything blocks.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::Path,
};

use chrono::{DateTime, Utc};
use nix::{
    libc,
    unistd::{Gid, Group, Uid, User},
};

use crate::{
    api::fs::{Account, FileInfo, Mode},
    system::files::virtual_fs::is_virtual,
};

/// The largest directory that is listed, in entries.
pub const MAX_ENTRIES: usize = 100_000;
/// The permissions of a new directory.
const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("no such file or directory")]
    NotFound,
    #[error("is not a regular file")]
    NotRegular,
    #[error("is not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("already exists")]
    AlreadyExists,
    #[error("is a directory that is not empty")]
    NotEmpty,
    #[error("permission denied")]
    PermissionDenied,
    #[error("is the root directory")]
    RootDirectory,
    #[error("is inside the directory to be moved")]
    InsideItself,
    #[error("must not end in {0}")]
    InvalidEnding(&'static str),
    #[error("is too long, or has too many levels of symbolic links")]
    InvalidPath,
    #[error("has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    #[error("is on a virtual file system")]
    VirtualFileSystem,
    #[error("is in use, for example as a mount point")]
    Busy,
    #[error("is on another file system")]
    OtherFileSystem,
    #[error("no such user")]
    UnknownUser,
    #[error("no such group")]
    UnknownGroup,
    #[error("no space left on the device")]
    NoSpace,
    #[error("is on a read-only file system")]
    ReadOnly,
    #[error(transparent)]
    Other(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::NotFound => FileError::NotFound,
            Kind::NotADirectory => FileError::NotADirectory,
            Kind::IsADirectory => FileError::IsADirectory,
            Kind::AlreadyExists => FileError::AlreadyExists,
            Kind::DirectoryNotEmpty => FileError::NotEmpty,
            Kind::PermissionDenied => FileError::PermissionDenied,
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => FileError::NoSpace,
            Kind::ResourceBusy => FileError::Busy,
            Kind::CrossesDevices => FileError::OtherFileSystem,
            Kind::ReadOnlyFilesystem => FileError::ReadOnly,
            Kind::InvalidFilename => FileError::InvalidPath,
            _ if error.raw_os_error() == Some(libc::ELOOP) => FileError::InvalidPath,
            _ => FileError::Other(error),
        }
    }
}

/// Opens a regular file for reading. Also returns its length, or `None` for a file that has no
/// meaningful length because the kernel generates its content, as below `/proc` and `/sys`.
///
/// # Errors
/// If it cannot be read, or is not a regular file.
pub fn open_regular(path: &Path) -> Result<(File, Option<u64>), FileError> {
    // Opening a device may have side effects and opening a FIFO may block, so the type is checked
    // before, and again after in case the name changed in between.
    require_regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    require_regular(&metadata)?;
    // Generated files claim a length of 0 or of one page.
    let has_length = metadata.len() > 0 && !is_virtual(&file)?;
    let length = has_length.then_some(metadata.len());
    Ok((file, length))
}

pub(super) fn require_regular(metadata: &Metadata) -> Result<(), FileError> {
    match () {
        () if metadata.is_dir() => Err(FileError::IsADirectory),
        () if metadata.is_file() => Ok(()),
        () => Err(FileError::NotRegular),
    }
}

/// Describes a file, directory or symbolic link.
///
/// # Errors
/// If it does not exist, or may not be accessed.
pub fn info(path: &Path) -> Result<FileInfo, FileError> {
    Ok(describe(path, &fs::symlink_metadata(path)?))
}

/// Lists a directory, sorted by name.
///
/// # Errors
/// If it cannot be read, or has more than [`MAX_ENTRIES`] entries.
pub fn list(path: &Path) -> Result<Vec<FileInfo>, FileError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        // Skip an entry that was deleted in the meantime.
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if entries.len() == MAX_ENTRIES {
            return Err(FileError::TooManyEntries);
        }
        entries.push(describe(&path, &metadata));
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Creates a directory and its missing parents. An existing directory is not changed.
///
/// # Errors
/// If the path, or a parent, exists and is not a directory.
pub fn create_directory(path: &Path, mode: Option<Mode>) -> Result<(), FileError> {
    let created = match path.parent() {
        Some(parent) => {
            let mut builder = DirBuilder::new();
            let parents = builder.recursive(true).mode(DIRECTORY_MODE).create(parent);
            parents.and_then(|()| fs::create_dir(path))
        }
        None => Ok(()),
    };
    match created {
        Ok(()) => {
            let bits = mode.map_or(DIRECTORY_MODE, Mode::bits);
            Ok(fs::set_permissions(path, Permissions::from_mode(bits))?)
        }
        Err(_) if path.is_dir() => Ok(()),
        // A parent is a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(FileError::AlreadyExists),
        Err(error) => Err(error.into()),
    }
}

/// Removes a directory and its content.
///
/// # Errors
/// If it is not a directory, or is the root.
pub fn delete_directory(path: &Path) -> Result<(), FileError> {
    if path.ends_with("..") {
        return Err(FileError::InvalidEnding("`..`"));
    }
    // A symbolic link is followed only if the path ends in a slash.
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(FileError::NotADirectory);
    }
    // By its canonical name: `directory/.` and `link/` could be emptied, but not removed.
    let directory = fs::canonicalize(path)?;
    if directory.parent().is_none() {
        return Err(FileError::RootDirectory);
    }
    Ok(fs::remove_dir_all(directory)?)
}

/// Removes a file or symbolic link.
///
/// # Errors
/// If it does not exist, or is a directory.
pub fn delete_file(path: &Path) -> Result<(), FileError> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Err(FileError::IsADirectory);
    }
    Ok(fs::remove_file(path)?)
}

/// Sets permissions, and optionally owner and group.
///
/// # Errors
/// If there is no such file, user or group, or it is not permitted.
pub fn set_permissions(
    path: &Path,
    mode: Mode,
    owner: Option<&Account>,
    group: Option<&Account>,
) -> Result<(), FileError> {
    let owner = owner.map(user_id).transpose()?;
    let group = group.map(group_id).transpose()?;
    // One handle, so that every change applies to the same file. `O_PATH` needs no permission to
    // read the file.
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    let handle_path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    if owner.is_some() || group.is_some() {
        let (owner, group) = (owner.map(Uid::as_raw), group.map(Gid::as_raw));
        std::os::unix::fs::chown(&handle_path, owner, group)?;
    }
    Ok(fs::set_permissions(
        &handle_path,
        Permissions::from_mode(mode.bits()),
    )?)
}

fn user_id(account: &Account) -> Result<Uid, FileError> {
    if let Ok(number) = account.as_str().parse() {
        return Ok(Uid::from_raw(number));
    }
    let user = User::from_name(account.as_str()).map_err(io::Error::from)?;
    user.map(|user| user.uid).ok_or(FileError::UnknownUser)
}

fn group_id(account: &Account) -> Result<Gid, FileError> {
    if let Ok(number) = account.as_str().parse() {
        return Ok(Gid::from_raw(number));
    }
    let group = Group::from_name(account.as_str()).map_err(io::Error::from)?;
    group.map(|group| group.gid).ok_or(FileError::UnknownGroup)
}

fn describe(path: &Path, metadata: &Metadata) -> FileInfo {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let modified = DateTime::<Utc>::from_timestamp(
        metadata.mtime(),
        u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
    );
    FileInfo {
        name: name.to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
        is_dir: metadata.is_dir(),
        mode: mode_text(metadata),
        size_bytes: metadata.len(),
        mod_time: modified.unwrap_or_default().into(),
    }
}

/// Formats type and permissions as `ls -l` does.
fn mode_text(metadata: &Metadata) -> String {
    let kind = metadata.file_type();
    let type_letter = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_fifo() => 'p',
        () if kind.is_socket() => 's',
        () if kind.is_char_device() => 'c',
        () if kind.is_block_device() => 'b',
        () => '-',
    };
    let mode = metadata.mode();
    let mut text = String::from(type_letter);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}
