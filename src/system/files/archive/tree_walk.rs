//! A walk through a directory that others may change meanwhile.
//!
//! Every entry is opened relative to the open directory it was found in, and no symbolic link is
//! followed: a directory that is replaced by a link during the walk cannot lead out of the tree.

use std::{
    collections::{BTreeSet, HashSet},
    ffi::{CStr, CString, OsStr, OsString},
    fs::File,
    io, iter,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, readlinkat},
    libc,
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
};

use super::{ArchiveSource, ConsumerProbe, MAX_ENTRIES, SkippedEntries};
use crate::system::files::virtual_fs::is_virtual;

/// The limit on nested directories; each holds a file descriptor while it is walked.
const MAX_DEPTH: usize = 128;

/// The start of the name of the list of skipped entries.
const LIST_NAME: &str = ".berth-skipped";

/// A consumer of the entries of a tree. It gets a directory before the directory's content.
pub(super) trait EntrySink {
    /// # Errors
    /// If the sink cannot take more entries.
    fn add(
        &mut self,
        path: &Path,
        entry: Entry<'_>,
        skipped: &mut SkippedEntries,
    ) -> io::Result<()>;
}

pub(super) enum Entry<'a> {
    Directory(&'a FileStat),
    File(&'a FileStat, File),
    Link(&'a FileStat, OsString),
}

/// A sink that can also store the list of skipped entries.
pub(super) trait ArchiveSink: EntrySink {
    /// # Errors
    /// If the archive cannot take more entries.
    fn add_list(&mut self, name: &Path, list: &[u8]) -> io::Result<()>;
}

/// Passes every entry below the source to the sink, in the order of names.
///
/// # Errors
/// If the sink fails, an entry of a strict source is skipped, the source itself cannot be read, it
/// has more than [`MAX_ENTRIES`] entries, or the consumer is gone.
pub(super) fn walk(
    source: &ArchiveSource,
    sink: &mut impl EntrySink,
) -> io::Result<SkippedEntries> {
    let mut walk = TreeWalk::new(source);
    walk.run(source, sink)?;
    Ok(walk.skipped)
}

/// Walks like [`walk`], then adds a list of the skipped entries, if there are any.
///
/// # Errors
/// As for [`walk`].
pub(super) fn walk_and_list(
    source: &ArchiveSource,
    archive: &mut impl ArchiveSink,
) -> io::Result<SkippedEntries> {
    let mut walk = TreeWalk::new(source);
    walk.run(source, archive)?;
    if !walk.skipped.is_empty() {
        archive.add_list(&walk.list_name(), &walk.skipped.to_json())?;
    }
    Ok(walk.skipped)
}

/// Returns the size of a file.
pub(super) fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

struct TreeWalk {
    is_excluded: fn(&Path) -> bool,
    strict: bool,
    consumer: ConsumerProbe,
    entries: usize,
    skipped: SkippedEntries,
    /// The names in the root directory that the list cannot have.
    used_list_names: HashSet<PathBuf>,
}

/// A directory that is being walked.
struct OpenDirectory {
    fd: OwnedFd,
    device: libc::dev_t,
    depth: usize,
}

impl TreeWalk {
    fn new(source: &ArchiveSource) -> Self {
        TreeWalk {
            is_excluded: source.is_excluded,
            strict: source.strict,
            consumer: source.consumer.clone(),
            entries: 0,
            skipped: SkippedEntries::default(),
            used_list_names: HashSet::new(),
        }
    }

    fn run(&mut self, source: &ArchiveSource, sink: &mut impl EntrySink) -> io::Result<()> {
        let fd = source.directory.try_clone()?;
        let device = fstat(&fd)?.st_dev;
        let root = OpenDirectory {
            fd,
            device,
            depth: 0,
        };
        self.walk_directory(&root, Path::new(""), sink)?;
        self.check_strict()
    }

    /// Fails if an entry of a strict source was skipped.
    fn check_strict(&self) -> io::Result<()> {
        match self.skipped.describe_first() {
            Some(first) if self.strict => Err(io::Error::other(first)),
            _ => Ok(()),
        }
    }

    /// Returns a name for the list of skipped entries that the root directory does not use.
    fn list_name(&self) -> PathBuf {
        let first = PathBuf::from(format!("{LIST_NAME}.json"));
        let numbered = (2u32..).map(|number| PathBuf::from(format!("{LIST_NAME}-{number}.json")));
        iter::once(first)
            .chain(numbered)
            .find(|name| !self.used_list_names.contains(name))
            .unwrap_or_default()
    }

    fn walk_directory(
        &mut self,
        directory: &OpenDirectory,
        path: &Path,
        sink: &mut impl EntrySink,
    ) -> io::Result<()> {
        let names = match names(&directory.fd) {
            Ok(names) => names,
            // Without the root's entries there is nothing to archive.
            Err(error) if directory.depth == 0 => return Err(error.into()),
            Err(Errno::EOVERFLOW) => return Err(too_many_entries()),
            Err(error) => {
                self.skipped.add(path, describe_errno(error));
                return Ok(());
            }
        };
        for name in names {
            let path = path.join(OsStr::from_bytes(name.as_bytes()));
            if (self.is_excluded)(&path) {
                continue;
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(too_many_entries());
            }
            self.consumer.check()?;
            if directory.depth == 0 && name.as_bytes().starts_with(LIST_NAME.as_bytes()) {
                self.used_list_names.insert(path.clone());
            }
            // Checked for each entry, as the rest of the walk may take long.
            self.check_strict()?;
            self.visit(directory, &name, &path, sink)?;
        }
        Ok(())
    }

    fn visit(
        &mut self,
        parent: &OpenDirectory,
        name: &CStr,
        path: &Path,
        sink: &mut impl EntrySink,
    ) -> io::Result<()> {
        let stat = match fstatat(&parent.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                self.skipped.add(path, describe_errno(error));
                return Ok(());
            }
        };
        match kind(&stat) {
            SFlag::S_IFDIR => return self.visit_directory(parent, name, path, sink),
            SFlag::S_IFREG => return self.visit_file(parent, name, path, sink),
            SFlag::S_IFLNK => match readlinkat(&parent.fd, name) {
                Ok(target) => {
                    return sink.add(path, Entry::Link(&stat, target), &mut self.skipped);
                }
                Err(error) => self.skipped.add(path, describe_errno(error)),
            },
            SFlag::S_IFSOCK => self.skipped.add(path, "is a socket"),
            SFlag::S_IFIFO => self.skipped.add(path, "is a FIFO"),
            _ => self.skipped.add(path, "is a device"),
        }
        Ok(())
    }

    fn visit_directory(
        &mut self,
        parent: &OpenDirectory,
        name: &CStr,
        path: &Path,
        sink: &mut impl EntrySink,
    ) -> io::Result<()> {
        if parent.depth == MAX_DEPTH {
            let reason = format!("is nested more than {MAX_DEPTH} directories deep");
            self.skipped.add(path, reason);
            return Ok(());
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Some((fd, stat)) = self.open(parent, name, flags, path) else {
            return Ok(());
        };
        if stat.st_dev != parent.device && is_virtual(&fd).unwrap_or(true) {
            self.skipped.add(path, "is a virtual file system");
            return Ok(());
        }
        sink.add(path, Entry::Directory(&stat), &mut self.skipped)?;
        let directory = OpenDirectory {
            fd,
            device: stat.st_dev,
            depth: parent.depth + 1,
        };
        self.walk_directory(&directory, path, sink)
    }

    fn visit_file(
        &mut self,
        parent: &OpenDirectory,
        name: &CStr,
        path: &Path,
        sink: &mut impl EntrySink,
    ) -> io::Result<()> {
        // The file may have been replaced by a FIFO, which must not block the open.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let Some((fd, stat)) = self.open(parent, name, flags, path) else {
            return Ok(());
        };
        if kind(&stat) != SFlag::S_IFREG {
            self.skipped.add(path, TYPE_CHANGED);
            return Ok(());
        }
        let entry = Entry::File(&stat, File::from(fd));
        sink.add(path, entry, &mut self.skipped)
    }

    /// Opens an entry, or records it as skipped.
    fn open(
        &mut self,
        parent: &OpenDirectory,
        name: &CStr,
        flags: OFlag,
        path: &Path,
    ) -> Option<(OwnedFd, FileStat)> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(&parent.fd, name, flags, Mode::empty())
            .and_then(|fd| fstat(&fd).map(|stat| (fd, stat)));
        match opened {
            Ok(opened) => Some(opened),
            Err(error) => {
                self.skipped.add(path, describe_errno(error));
                None
            }
        }
    }
}

fn too_many_entries() -> io::Error {
    io::Error::other(format!("the directory has more than {MAX_ENTRIES} entries"))
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Lists a directory in the order of names, so that archives of the same tree are identical.
fn names(directory: &OwnedFd) -> nix::Result<BTreeSet<CString>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(directory, c".", flags, Mode::empty())?;
    let mut names = BTreeSet::new();
    for entry in listing.iter() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.insert(name);
        }
        if names.len() > MAX_ENTRIES {
            return Err(Errno::EOVERFLOW);
        }
    }
    Ok(names)
}

const TYPE_CHANGED: &str = "changed its type during the walk";

fn describe_errno(error: Errno) -> String {
    match error {
        Errno::ENOENT => "was deleted during the walk".to_owned(),
        Errno::EACCES | Errno::EPERM => "permission denied".to_owned(),
        Errno::ELOOP | Errno::ENOTDIR => TYPE_CHANGED.to_owned(),
        error => error.desc().to_owned(),
    }
}
