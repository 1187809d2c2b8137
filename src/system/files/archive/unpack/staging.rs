//! The directory an archive is unpacked into.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    mem,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open, openat},
    sys::{
        stat::{Mode, SFlag, fchmod, fstatat, futimens, mkdirat},
        time::TimeSpec,
    },
    unistd::{LinkatFlags, linkat, symlinkat},
};

use super::{
    MAX_ENTRIES, UnpackError,
    entry_path::{entry_or_root_path, entry_path, is_valid_link_target},
    meter::Meter,
};

/// The permissions of directories that the archive does not describe.
const DIRECTORY_MODE: u32 = 0o755;
/// The size a created directory is counted with.
pub(super) const DIRECTORY_BYTES: usize = 4096;
/// The mode bits taken from an archive: neither set-ID bits nor owners are.
const MODE_BITS: u32 = 0o777;
const BUFFER_BYTES: usize = 256 << 10;

/// The attributes of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    /// Seconds since 1970.
    pub(super) modified: Option<i64>,
}

impl Attributes {
    /// The attributes of a directory that the archive does not describe.
    pub(super) const DIRECTORY: Attributes = Attributes {
        mode: DIRECTORY_MODE,
        modified: None,
    };
}

/// The directory, and what is needed to complete it after the last entry.
pub(super) struct StagingDirectory {
    root: OwnedFd,
    entries: usize,
    meter: Meter,
    /// The most recently opened directory: most entries are in the same one as the entry before.
    last_directory: Option<(PathBuf, OwnedFd)>,
    links: Vec<PathBuf>,
    directories: Vec<(PathBuf, Attributes)>,
    buffer: Vec<u8>,
}

impl StagingDirectory {
    /// Opens an existing directory, which must be empty.
    pub(super) fn open(path: &Path, meter: Meter) -> Result<Self, UnpackError> {
        let root = open(path, directory_flags(), Mode::empty()).map_err(disk_error)?;
        Ok(Self::new(root, meter))
    }

    /// Takes an empty directory that is open for reading.
    pub(super) fn new(root: OwnedFd, meter: Meter) -> Self {
        StagingDirectory {
            root,
            entries: 0,
            meter,
            last_directory: None,
            links: Vec::new(),
            directories: Vec::new(),
            buffer: Vec::new(),
        }
    }

    pub(super) fn add_directory(
        &mut self,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<(), UnpackError> {
        let Some(path) = entry_or_root_path(name)? else {
            // The root itself, as in an archive of `.`.
            return self.count_entry();
        };
        let before = self.entries;
        self.open_directory(&path)?;
        if self.entries == before {
            self.count_entry()?;
        }
        self.directories.push((path, attributes));
        Ok(())
    }

    /// Writes a file. `meter` is called with the length of each part before it is written;
    /// `map_error` converts the errors of `content`.
    pub(super) fn add_file(
        &mut self,
        name: &[u8],
        attributes: Attributes,
        content: &mut impl Read,
        map_error: impl Fn(&io::Error) -> UnpackError,
        mut meter: impl FnMut(usize) -> Result<(), UnpackError>,
    ) -> Result<(), UnpackError> {
        self.count_entry()?;
        let path = entry_path(name)?;
        let (directory, name) = self.open_parent(&path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file =
            openat(directory, name, flags, mode).map_err(|error| create_error(&path, error))?;
        let mut file = File::from(file);
        let mut buffer = mem::take(&mut self.buffer);
        buffer.resize(BUFFER_BYTES, 0);
        loop {
            let count = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(map_error(&error)),
            };
            meter(count)?;
            file.write_all(&buffer[..count]).map_err(UnpackError::Io)?;
        }
        self.buffer = buffer;
        let mode = Mode::from_bits_truncate(attributes.mode & MODE_BITS);
        fchmod(&file, mode).map_err(disk_error)?;
        if let Some(time) = attributes.modified {
            let time = TimeSpec::new(time, 0);
            futimens(&file, &time, &time).map_err(disk_error)?;
        }
        Ok(())
    }

    pub(super) fn add_symlink(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        self.count_entry()?;
        let path = entry_path(name)?;
        if !is_valid_link_target(&path, target) {
            return Err(outside_link(&path));
        }
        let (directory, name) = self.open_parent(&path)?;
        symlinkat(OsStr::from_bytes(target), directory, name)
            .map_err(|error| create_error(&path, error))?;
        self.links.push(path);
        Ok(())
    }

    /// Adds a hard link to a file that was unpacked before.
    pub(super) fn add_hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        self.count_entry()?;
        let (path, target) = (entry_path(name)?, entry_path(target)?);
        let missing_target = || {
            let message = "is a hard link to a file that does not precede it";
            UnpackError::entry(&path.to_string_lossy(), message)
        };
        let (directory, target_name) = self.open_parent(&target)?;
        let target_directory = directory.try_clone().map_err(UnpackError::Io)?;
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        let stat = fstatat(&target_directory, target_name, flags).map_err(|_| missing_target())?;
        if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
            return Err(missing_target());
        }
        let (directory, name) = self.open_parent(&path)?;
        let flags = LinkatFlags::empty();
        linkat(&target_directory, target_name, directory, name, flags)
            .map_err(|error| create_error(&path, error))
    }

    /// Checks the links, which only the complete tree allows, and sets the attributes of the
    /// directories.
    pub(super) fn finish(mut self) -> Result<(), UnpackError> {
        self.last_directory = None;
        self.check_links()?;
        // Inner directories first: the attributes of an outer one may prevent access to them.
        self.directories.sort_by(|(a, _), (b, _)| b.cmp(a));
        for (path, attributes) in mem::take(&mut self.directories) {
            let directory = self.open_directory(&path)?;
            let mode = Mode::from_bits_truncate(attributes.mode & MODE_BITS);
            fchmod(directory, mode).map_err(disk_error)?;
            if let Some(time) = attributes.modified {
                let time = TimeSpec::new(time, 0);
                futimens(directory, &time, &time).map_err(disk_error)?;
            }
            self.last_directory = None;
        }
        Ok(())
    }

    /// Rejects links that lead outside through other links. Dangling links are accepted.
    fn check_links(&self) -> Result<(), UnpackError> {
        // `cap-std` resolves links below the open directory, and fails where they lead out of it.
        let root = self.root.try_clone().map_err(UnpackError::Io)?;
        let root = Dir::from_std_file(root.into());
        for link in &self.links {
            if let Err(error) = root.metadata(link)
                && error.kind() == io::ErrorKind::PermissionDenied
            {
                return Err(outside_link(link));
            }
        }
        Ok(())
    }

    fn count_entry(&mut self) -> Result<(), UnpackError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(too_many_created());
        }
        // Adds nothing, but notices a shutdown.
        self.meter.add(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Opens the parent directory of an entry, and returns it with the entry's name in it.
    fn open_parent<'a>(&mut self, path: &'a Path) -> Result<(&OwnedFd, &'a OsStr), UnpackError> {
        let name = path.file_name().unwrap_or_default();
        let directory = self.open_directory(path.parent().unwrap_or(Path::new("")))?;
        Ok((directory, name))
    }

    /// Opens a directory one component at a time without following links, and creates missing
    /// ones.
    fn open_directory(&mut self, path: &Path) -> Result<&OwnedFd, UnpackError> {
        let is_last = self
            .last_directory
            .as_ref()
            .is_some_and(|(last, _)| last == path);
        if !is_last {
            let mut directory = self.root.try_clone().map_err(UnpackError::Io)?;
            for name in path {
                directory = match openat(&directory, name, directory_flags(), Mode::empty()) {
                    Err(Errno::ENOENT) => self.create_directory(&directory, name, path)?,
                    opened => opened.map_err(|error| create_error(path, error))?,
                };
            }
            self.last_directory = Some((path.to_owned(), directory));
        }
        match &self.last_directory {
            Some((_, directory)) => Ok(directory),
            None => Ok(&self.root),
        }
    }

    /// Creates a directory that the archive may not list. It counts as an entry, and with the disk
    /// space it takes.
    fn create_directory(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
    ) -> Result<OwnedFd, UnpackError> {
        self.count_entry()?;
        self.meter.add(DIRECTORY_BYTES)?;
        let mode = Mode::from_bits_truncate(DIRECTORY_MODE);
        mkdirat(parent, name, mode).map_err(|error| create_error(path, error))?;
        let directory = openat(parent, name, directory_flags(), Mode::empty())
            .map_err(|error| create_error(path, error))?;
        // `mkdirat` applies the umask.
        fchmod(&directory, mode).map_err(disk_error)?;
        Ok(directory)
    }
}

pub(super) fn too_many_created() -> UnpackError {
    let message = format!("has more than {MAX_ENTRIES} entries, directories included");
    UnpackError::Invalid(message)
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn disk_error(error: Errno) -> UnpackError {
    UnpackError::Io(error.into())
}

/// Converts the error of creating an entry: conflicts with earlier entries are the archive's fault.
fn create_error(path: &Path, error: Errno) -> UnpackError {
    let message = match error {
        Errno::EEXIST => "occurs twice",
        Errno::ENOTDIR | Errno::ELOOP => "is below an entry that is not a directory",
        Errno::ENAMETOOLONG => "has too long a name",
        error => return disk_error(error),
    };
    UnpackError::entry(&path.to_string_lossy(), message)
}

pub(super) fn outside_link(path: &Path) -> UnpackError {
    UnpackError::entry(&path.to_string_lossy(), "is a link that leads outside")
}
