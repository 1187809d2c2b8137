//! Reading and changing files. Everything here blocks; the routes run it beside the server's own threads.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use nix::{
    libc,
    unistd::{Gid, Group, Uid, User, fchown},
};

use super::drafts::{DraftFile, Drafts};
use crate::api::fs::{Account, FileInfo, Mode};

/// The entries of a directory that are listed at most.
pub const MAX_ENTRIES: usize = 100_000;
/// A new file's permissions, and a new directory's.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("there is no such file or directory")]
    NotFound,
    #[error("is not a regular file")]
    NotAFile,
    #[error("is not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("there is something of that name already")]
    Exists,
    #[error("is a directory that is not empty")]
    NotEmpty,
    #[error("may not be done by this user")]
    Denied,
    #[error("is the root of the file system")]
    Root,
    #[error("would be inside itself")]
    InsideItself,
    #[error("is too long, or leads through too many links")]
    BadPath,
    #[error("has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    #[error("is on a file system that the kernel makes up")]
    Virtual,
    #[error("is in use, such as a place where a file system is mounted")]
    Busy,
    #[error("is on another file system")]
    OtherFileSystem,
    #[error("there is no such user")]
    NoUser,
    #[error("there is no such group")]
    NoGroup,
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
            Kind::AlreadyExists => FileError::Exists,
            Kind::DirectoryNotEmpty => FileError::NotEmpty,
            Kind::PermissionDenied => FileError::Denied,
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => FileError::NoSpace,
            Kind::ResourceBusy => FileError::Busy,
            Kind::CrossesDevices => FileError::OtherFileSystem,
            Kind::ReadOnlyFilesystem => FileError::ReadOnly,
            Kind::InvalidFilename => FileError::BadPath,
            _ if error.raw_os_error() == Some(libc::ELOOP) => FileError::BadPath,
            _ => FileError::Other(error),
        }
    }
}

/// Opens a regular file to read it, and says how long it is; `None` where only its end will tell, as below `/proc`.
///
/// # Errors
/// Where it cannot be read, or is something else.
pub fn open(path: &Path) -> Result<(File, Option<u64>), FileError> {
    // To open a device may be to do something, and to open a FIFO may be to wait: a look comes first, and another one after.
    regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    let length = (metadata.len() > 0).then_some(metadata.len());
    Ok((file, length))
}

fn regular(metadata: &Metadata) -> Result<(), FileError> {
    match () {
        () if metadata.is_dir() => Err(FileError::IsADirectory),
        () if metadata.is_file() => Ok(()),
        () => Err(FileError::NotAFile),
    }
}

/// A file that is being written. Until [`Draft::publish`] nothing is to be seen of it under its name; dropped, it never was.
#[derive(Debug)]
pub struct Draft {
    file: DraftFile,
    target: PathBuf,
}

impl Draft {
    /// # Errors
    /// Where there cannot be a file of that name.
    pub fn new(path: &Path, mode: Option<Mode>, drafts: &Drafts) -> Result<Self, FileError> {
        // What a link leads to is written, and the link stays.
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => new_file(path)?,
            Err(error) => return Err(error.into()),
        };
        let replaced = match fs::metadata(&target) {
            Ok(metadata) => {
                regular(&metadata)?;
                Some(metadata)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let (Some(directory), Some(_)) = (target.parent(), target.file_name()) else {
            return Err(FileError::IsADirectory);
        };
        let mut file = drafts.file_in(directory)?;
        let bits = mode.map(Mode::bits);
        let bits = bits.or(replaced.as_ref().map(|metadata| metadata.mode() & 0o7777));
        if let Some(replaced) = &replaced {
            let owner = (Uid::from_raw(replaced.uid()), Gid::from_raw(replaced.gid()));
            if owner != (Uid::effective(), Gid::effective()) {
                fchown(file.file(), Some(owner.0), Some(owner.1)).map_err(io::Error::from)?;
            }
        }
        let permissions = Permissions::from_mode(bits.unwrap_or(FILE_MODE));
        file.file().set_permissions(permissions)?;
        Ok(Draft { file, target })
    }

    pub fn file(&mut self) -> &mut File {
        self.file.file()
    }

    /// What it is going to be or to replace.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its name, in one step.
    ///
    /// # Errors
    /// Where something else has taken the name meanwhile.
    pub fn publish(self) -> Result<(), FileError> {
        Ok(self.file.rename(&self.target)?)
    }
}

/// Where a file is going to be that is not there, by the one name that its directory has.
fn new_file(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => Ok(fs::canonicalize(directory)?.join(name)),
        _ => Ok(path.to_owned()),
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
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => {
            let bits = mode.map_or(DIRECTORY_MODE, Mode::bits);
            Ok(fs::set_permissions(path, Permissions::from_mode(bits))?)
        }
        Err(_) if path.is_dir() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// Where it is none, or the root.
pub fn delete_directory(path: &Path) -> Result<(), FileError> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Err(FileError::NotADirectory);
    }
    if fs::canonicalize(path)?.parent().is_none() {
        return Err(FileError::Root);
    }
    Ok(fs::remove_dir_all(path)?)
}

/// # Errors
/// Where there is no such file, or it is a directory.
pub fn delete_file(path: &Path) -> Result<(), FileError> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Err(FileError::IsADirectory);
    }
    Ok(fs::remove_file(path)?)
}

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
pub fn rename(from: &Path, to: &Path, drafts: &Drafts) -> Result<(), MoveError> {
    let source = fs::symlink_metadata(from).map_err(|error| MoveError::Source(error.into()))?;
    match fs::rename(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            across(from, to, &source, drafts)
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(MoveError::Destination(FileError::InsideItself))
        }
        // The file is there, so it is the other's directory that is not.
        Err(error) => Err(MoveError::Destination(error.into())),
    }
}

/// A move to another file system: a copy beside the new place, which then takes its name.
fn across(from: &Path, to: &Path, source: &Metadata, drafts: &Drafts) -> Result<(), MoveError> {
    let wrong = |error: io::Error| MoveError::Destination(error.into());
    let parent = to.parent().ok_or(MoveError::Destination(FileError::Root))?;
    let beside = drafts.directory_in(parent).map_err(wrong)?;
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
    user.map(|user| user.uid).ok_or(FileError::NoUser)
}

fn group_id(account: &Account) -> Result<Gid, FileError> {
    if let Ok(number) = account.as_str().parse() {
        return Ok(Gid::from_raw(number));
    }
    let group = Group::from_name(account.as_str()).map_err(io::Error::from)?;
    group.map(|group| group.gid).ok_or(FileError::NoGroup)
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
