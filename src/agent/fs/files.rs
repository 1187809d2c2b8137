//! Reading and changing files. Everything here blocks; the routes run it beside the server's own threads.

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

/// The entries of a directory that are listed at most.
pub const MAX_ENTRIES: usize = 100_000;
/// A new directory's permissions.
const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("there is no such file or directory")]
    NotFound,
    #[error("is not a regular file")]
    NotRegular,
    #[error("is not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("there is something of that name already")]
    AlreadyExists,
    #[error("is a directory that is not empty")]
    NotEmpty,
    #[error("may not be done by this user")]
    PermissionDenied,
    #[error("is the root of the file system")]
    RootDirectory,
    #[error("would be inside itself")]
    InsideItself,
    #[error("must not end in {0}")]
    InvalidEnding(&'static str),
    #[error("is too long, or leads through too many links")]
    InvalidPath,
    #[error("has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    #[error("is on a file system that the kernel makes up")]
    VirtualFileSystem,
    #[error("is in use, such as a place where a file system is mounted")]
    Busy,
    #[error("is on another file system")]
    OtherFileSystem,
    #[error("there is no such user")]
    UnknownUser,
    #[error("there is no such group")]
    UnknownGroup,
    #[error("there is no space left")]
    NoSpace,
    #[error("is on a file system that cannot be written")]
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

/// Opens a regular file to read it, and says how long it is; `None` where only its end will tell, as below `/proc` and `/sys`.
///
/// # Errors
/// Where it cannot be read, or is something else.
pub fn open_regular(path: &Path) -> Result<(File, Option<u64>), FileError> {
    // To open a device may be to do something, and to open a FIFO may be to wait: a look comes first, and another one after.
    regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    // What is made as it is read has a length of 0, or of a page.
    let is_known = metadata.len() > 0 && !is_virtual(&file)?;
    let length = is_known.then_some(metadata.len());
    Ok((file, length))
}

pub(super) fn regular(metadata: &Metadata) -> Result<(), FileError> {
    match () {
        () if metadata.is_dir() => Err(FileError::IsADirectory),
        () if metadata.is_file() => Ok(()),
        () => Err(FileError::NotRegular),
    }
}

/// # Errors
/// Where there is nothing of that name, or it may not be seen.
pub fn info(path: &Path) -> Result<FileInfo, FileError> {
    Ok(describe(path, &fs::symlink_metadata(path)?))
}

/// What is in a directory, by name.
///
/// # Errors
/// Where it cannot be read, or has more than [`MAX_ENTRIES`].
pub fn list(path: &Path) -> Result<Vec<FileInfo>, FileError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        // One that has gone meanwhile is not there.
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if entries.len() == MAX_ENTRIES {
            return Err(FileError::TooManyEntries);
        }
        entries.push(describe(&path, &metadata));
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Makes a directory and its missing parents. One that is there already stays as it is.
///
/// # Errors
/// Where something else is in the way.
pub fn create_directory(path: &Path, mode: Option<Mode>) -> Result<(), FileError> {
    let made = match path.parent() {
        Some(parent) => {
            let mut builder = DirBuilder::new();
            let parents = builder.recursive(true).mode(DIRECTORY_MODE).create(parent);
            parents.and_then(|()| fs::create_dir(path))
        }
        None => Ok(()),
    };
    match made {
        Ok(()) => {
            let bits = mode.map_or(DIRECTORY_MODE, Mode::bits);
            Ok(fs::set_permissions(path, Permissions::from_mode(bits))?)
        }
        Err(_) if path.is_dir() => Ok(()),
        // At whatever depth the file is that is in the way.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(FileError::AlreadyExists),
        Err(error) => Err(error.into()),
    }
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// Where it is none, or the root.
pub fn delete_directory(path: &Path) -> Result<(), FileError> {
    if path.ends_with("..") {
        return Err(FileError::InvalidEnding("`..`"));
    }
    // Of a link, what it leads to only where a slash behind it says so.
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(FileError::NotADirectory);
    }
    // By a name that its parent has: `directory/.` and `link/` can be emptied, but not removed.
    let directory = fs::canonicalize(path)?;
    if directory.parent().is_none() {
        return Err(FileError::RootDirectory);
    }
    Ok(fs::remove_dir_all(directory)?)
}

/// # Errors
/// Where there is no such file, or it is a directory.
pub fn delete_file(path: &Path) -> Result<(), FileError> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Err(FileError::IsADirectory);
    }
    Ok(fs::remove_file(path)?)
}

/// Sets permissions, and owner and group where they are given.
///
/// # Errors
/// Where there is no such file, user or group, or it may not be done.
pub fn set_permissions(
    path: &Path,
    mode: Mode,
    owner: Option<&Account>,
    group: Option<&Account>,
) -> Result<(), FileError> {
    let owner = owner.map(user_id).transpose()?;
    let group = group.map(group_id).transpose()?;
    // One handle for all, so that all is done to the same file. A path alone, as it may be one that cannot be opened.
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
    if owner.is_some() || group.is_some() {
        let raw = (owner.map(Uid::as_raw), group.map(Gid::as_raw));
        std::os::unix::fs::chown(&itself, raw.0, raw.1)?;
    }
    Ok(fs::set_permissions(
        &itself,
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

/// Kind and permissions as `ls -l` writes them.
fn mode_text(metadata: &Metadata) -> String {
    let kind = metadata.file_type();
    let letter = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_fifo() => 'p',
        () if kind.is_socket() => 's',
        () if kind.is_char_device() => 'c',
        () if kind.is_block_device() => 'b',
        () => '-',
    };
    let mode = metadata.mode();
    let mut text = String::from(letter);
    for (shift, special, mark) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => mark,
            (true, false) => mark.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}
