//! Reading and changing single files and directories. Everything blocks.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use nix::{
    libc,
    unistd::{Gid, Group, Uid, User},
};

use super::{access::FileAccess, tree_copy::MAX_DEPTH};
use crate::{
    api::fs::{Account, FileInfo, Mode},
    system::files::{
        directory::{DirectoryHandle, descriptor_path},
        resolve::{ExistingEntry, LastLink, ResolveError, ResolvedPath, resolve},
        root::RootDirectory,
        virtual_fs::is_virtual,
    },
};

/// The largest directory that is listed, in entries.
pub const MAX_ENTRIES: usize = 100_000;
/// The limit on the names and paths of a listing, in bytes.
const MAX_LISTING_BYTES: usize = 64 << 20;
/// The estimated size of a listed entry without its name and path.
const ENTRY_BYTES: usize = 128;
/// The permissions of a new directory.
pub(super) const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("no such file or directory")]
    NotFound,
    #[error("no such directory: {}", .0.display())]
    MissingDirectory(PathBuf),
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
    #[error("leads through another user's symbolic link in a sticky directory")]
    ForeignLink,
    #[error("is another user's file in a sticky directory")]
    ForeignFile,
    #[error("is part of the agent's own files, or contains them")]
    Protected,
    #[error("leads through a link of `/proc` to what no path leads to")]
    NoPath,
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
    #[error("has a list of entries of more than {0} bytes")]
    ListingTooLarge(usize),
    #[error("has more than {MAX_DEPTH} nested directories")]
    TooDeep,
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

impl From<ResolveError> for FileError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Io(error) => error.into(),
            ResolveError::ForeignLink => FileError::ForeignLink,
            ResolveError::Protected => FileError::Protected,
            ResolveError::NoPath => FileError::NoPath,
        }
    }
}

/// Opens the directory at `path`, following links.
///
/// # Errors
/// If there is no such directory.
pub(super) fn open_directory(
    root: &RootDirectory,
    path: &Path,
) -> Result<DirectoryHandle, FileError> {
    let existing = resolve(root, path, LastLink::Follow)?.existing()?;
    Ok(existing.into_directory()?)
}

/// Opens the directory at `path` like [`open_directory`], to read everything below it.
///
/// # Errors
/// If there is no such directory, or files of the agent are below it.
pub(super) fn open_tree(root: &RootDirectory, path: &Path) -> Result<DirectoryHandle, FileError> {
    let existing = resolve(root, path, LastLink::Follow)?.existing()?;
    match existing.is_above_protected {
        true => Err(FileError::Protected),
        false => Ok(existing.into_directory()?),
    }
}

/// Returns the directory of an entry and its name there, by which it can be removed or renamed.
///
/// # Errors
/// If `path`, which led to the entry, does not name it: `/`, or a path that ends in `..`. If files
/// of the agent would be moved with it, or it is one of the directories that the agent has created
/// for the session.
pub(super) fn place_of(
    path: &Path,
    existing: ExistingEntry,
) -> Result<(DirectoryHandle, OsString), FileError> {
    let place = existing.place.ok_or_else(|| match path.parent() {
        Some(_) => FileError::InvalidEnding("`..`"),
        None => FileError::RootDirectory,
    })?;
    match existing.is_fixed {
        true => Err(FileError::Protected),
        false => Ok(place),
    }
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct RegularFile {
    pub file: File,
    /// The length. `None` for a file that claims to be empty, and for one that has no meaningful
    /// length because the kernel generates its content, as below `/proc` and `/sys`.
    pub length: Option<u64>,
    /// Whether the kernel generates the content.
    pub is_generated: bool,
}

/// Opens a regular file for reading. A read that would have to wait for more content fails with
/// `WouldBlock`.
///
/// # Errors
/// If it cannot be read, or is not a regular file.
pub fn open_regular(root: &RootDirectory, path: &Path) -> Result<RegularFile, FileError> {
    // Opening a device may have side effects and opening a FIFO may block, so the type is checked
    // before, on a handle that does neither.
    let entry = resolve(root, path, LastLink::Follow)?.existing()?.entry;
    require_regular(&entry.metadata()?)?;
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(descriptor_path(&entry))?;
    let metadata = file.metadata()?;
    // Generated files claim a length of 0 or of one page.
    let is_generated = is_virtual(&file)?;
    let has_length = metadata.len() > 0 && !is_generated;
    Ok(RegularFile {
        file,
        length: has_length.then_some(metadata.len()),
        is_generated,
    })
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
pub fn info(root: &RootDirectory, path: &Path) -> Result<FileInfo, FileError> {
    let existing = resolve(root, path, LastLink::Keep)?.existing()?;
    Ok(describe(path, &existing.entry.metadata()?))
}

/// Lists a directory, sorted by name.
///
/// # Errors
/// If it cannot be read, has more than [`MAX_ENTRIES`] entries, or their list is too large.
pub fn list(root: &RootDirectory, path: &Path) -> Result<Vec<FileInfo>, FileError> {
    list_up_to(root, path, MAX_LISTING_BYTES)
}

fn list_up_to(
    root: &RootDirectory,
    path: &Path,
    max_bytes: usize,
) -> Result<Vec<FileInfo>, FileError> {
    let mut entries = Vec::new();
    let mut bytes: usize = 0;
    let directory = open_directory(root, path)?;
    // Without repeated `/` and `.`, which each entry would repeat.
    let path: PathBuf = path.components().collect();
    for entry in fs::read_dir(directory.descriptor_path())? {
        let entry = entry?;
        // Skip an entry that was deleted in the meantime.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if entries.len() == MAX_ENTRIES {
            return Err(FileError::TooManyEntries);
        }
        let info = describe(&path.join(entry.file_name()), &metadata);
        bytes += info.name.len() + info.path.len() + ENTRY_BYTES;
        if bytes > max_bytes {
            return Err(FileError::ListingTooLarge(max_bytes));
        }
        entries.push(info);
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Creates a directory and its missing parents. An existing directory is not changed.
///
/// # Errors
/// If the path, or a parent, exists and is not a directory.
pub fn create_directory(
    access: &FileAccess,
    path: &Path,
    mode: Option<Mode>,
) -> Result<(), FileError> {
    let missing = match resolve(access.root(), path, LastLink::Follow) {
        Ok(ResolvedPath::Missing(missing)) if !missing.is_link_target => missing,
        Ok(ResolvedPath::Existing(existing)) if existing.entry.metadata()?.is_dir() => {
            return Ok(());
        }
        // It is a file or a dangling link.
        Ok(_) => return Err(FileError::AlreadyExists),
        // A parent is a file.
        Err(ResolveError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(FileError::AlreadyExists);
        }
        Err(error) => return Err(error.into()),
    };
    let mut names = missing.parents;
    names.push(missing.name);
    let mode = mode.map_or(DIRECTORY_MODE, Mode::bits);
    access.note_change(&missing.directory);
    Ok(create_missing(access, &missing.directory, &names, mode)?)
}

/// Creates a chain of directories, of which the innermost gets `mode`. Creates none if it fails.
fn create_missing(
    access: &FileAccess,
    directory: &DirectoryHandle,
    names: &[OsString],
    mode: u32,
) -> io::Result<()> {
    let [name, inner @ ..] = names else {
        return Ok(());
    };
    let bits = if inner.is_empty() {
        mode
    } else {
        DIRECTORY_MODE
    };
    let created = match directory.create_directory(name, bits) {
        // It appeared in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return create_missing(access, &directory.open(name)?, inner, mode);
        }
        created => created?,
    };
    let given = access.give(&created, directory);
    let completed = given.and_then(|()| create_missing(access, &created, inner, mode));
    completed.inspect_err(|_| {
        // Fails only if it is in use by now.
        let _ = directory.remove_empty_directory(name);
    })
}

/// Removes a directory and its content.
///
/// # Errors
/// If it is not a directory, or is the root.
pub fn delete_directory(access: &FileAccess, path: &Path) -> Result<(), FileError> {
    // A symbolic link is followed only if the path ends in a slash.
    let existing = resolve(access.root(), path, LastLink::Keep)?.existing()?;
    if !existing.entry.metadata()?.is_dir() {
        return Err(FileError::NotADirectory);
    }
    let (directory, name) = place_of(path, existing)?;
    access.note_change(&directory);
    Ok(directory.remove_all(&name)?)
}

/// Removes a file or symbolic link.
///
/// # Errors
/// If it does not exist, or is a directory.
pub fn delete_file(access: &FileAccess, path: &Path) -> Result<(), FileError> {
    let existing = resolve(access.root(), path, LastLink::Keep)?.existing()?;
    if existing.entry.metadata()?.is_dir() {
        return Err(FileError::IsADirectory);
    }
    let (directory, name) = place_of(path, existing)?;
    access.note_change(&directory);
    Ok(directory.remove_file(&name)?)
}

/// Sets permissions, and optionally owner and group.
///
/// # Errors
/// If there is no such file, user or group, it is not permitted, or files of the agent are below
/// it: others could move these then.
pub fn set_permissions(
    access: &FileAccess,
    path: &Path,
    mode: Mode,
    owner: Option<&Account>,
    group: Option<&Account>,
) -> Result<(), FileError> {
    let owner = owner.map(user_id).transpose()?;
    let group = group.map(group_id).transpose()?;
    // One handle, so that every change applies to the same file.
    let existing = resolve(access.root(), path, LastLink::Follow)?.existing()?;
    if existing.is_above_protected {
        return Err(FileError::Protected);
    }
    access.note_change(&existing.entry);
    let handle_path = descriptor_path(&existing.entry);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_paths_repeat_no_superfluous_parts() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_str().unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        let listed = list(
            &RootDirectory::default(),
            Path::new(&format!("{root}//{}", "././".repeat(500))),
        )
        .unwrap();
        let paths: Vec<_> = listed.into_iter().map(|entry| entry.path).collect();
        assert_eq!(paths, [format!("{root}/file")]);
    }

    #[test]
    fn listing_is_limited_in_bytes() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let path_length = directory.path().as_os_str().len() + 2;
        let size = 2 * (path_length + 1 + ENTRY_BYTES);
        assert_eq!(
            list_up_to(&RootDirectory::default(), directory.path(), size)
                .unwrap()
                .len(),
            2
        );
        let refused = list_up_to(&RootDirectory::default(), directory.path(), size - 1);
        assert!(matches!(refused, Err(FileError::ListingTooLarge(_))));
    }
}
