//! Path resolution to descriptors.
//!
//! A path is resolved once, name by name, each opened relative to the directory before it. The
//! operation then uses the descriptors, so that a name that is replaced meanwhile leads nowhere
//! else.
//!
//! Symbolic links are followed under the kernel's rule `fs.protected_symlinks` (proc(5)), whether
//! or not the machine has it enabled: in a sticky directory that everyone may write to, such as
//! `/tmp`, only links of this process's user and of the directory's owner are followed.
//!
//! A link of `/proc` leads wherever a process is or has a file, past every directory. It is
//! followed by the path of its target, which has to lead to the same file or directory. So every
//! result was reached name by name, and no path leads into a [protected tree](super::protected).

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat, readlinkat},
    sys::{
        stat::Mode,
        statfs::{PROC_SUPER_MAGIC, fstatfs},
    },
    unistd::Uid,
};

use super::{
    directory::{DirectoryHandle, descriptor_path},
    protected::Zone,
    root::RootDirectory,
};

/// The limit on symbolic links in the resolution of a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The mode bits of a directory that everyone may write to, and where only owners remove entries.
const STICKY_WORLD_WRITABLE: u32 = 0o1002;

/// Whether a symbolic link that is the last name of a path is followed. One that a slash follows
/// always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    Follow,
    Keep,
}

/// The result of a resolution.
#[derive(Debug)]
pub enum ResolvedPath {
    Existing(ExistingEntry),
    Missing(MissingEntry),
}

/// An entry that exists.
#[derive(Debug)]
pub struct ExistingEntry {
    /// A handle that only allows to examine the entry (`O_PATH`).
    pub entry: File,
    /// The entry's directory and its name there. `None` for the root directory, a path that ends in
    /// `..`, and where a link of `/proc` leads.
    pub place: Option<(DirectoryHandle, OsString)>,
    /// Whether the entry is a directory above a protected tree.
    pub is_above_protected: bool,
    /// Whether the entry must stay at its place: it is above a protected tree, or the place is in
    /// one.
    pub is_fixed: bool,
}

/// An entry that does not exist.
#[derive(Debug)]
pub struct MissingEntry {
    /// The deepest directory of the path that exists.
    pub directory: DirectoryHandle,
    /// The directories below it that are missing, the outermost first.
    pub parents: Vec<OsString>,
    pub name: OsString,
    /// Whether the path ends in a slash.
    pub must_be_directory: bool,
    /// Whether the first missing name is part of a symbolic link's target.
    pub is_link_target: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("leads through another user's symbolic link in a sticky directory")]
    ForeignLink,
    #[error("leads to a protected directory")]
    Protected,
    #[error("leads through a link of `/proc` to what no path leads to")]
    NoPath,
}

impl From<Errno> for ResolveError {
    fn from(error: Errno) -> Self {
        ResolveError::Io(error.into())
    }
}

/// Resolves an absolute path, which starts at `root`.
///
/// # Errors
/// If a directory on the way is not one or may not be searched, a link may not be followed, there
/// are more than 40 links, `..` follows a missing name, or the path leads to a protected directory.
pub fn resolve(
    root: &RootDirectory,
    path: &Path,
    last_link: LastLink,
) -> Result<ResolvedPath, ResolveError> {
    PathWalk::start(root, path)?.run(last_link)
}

impl ResolvedPath {
    /// # Errors
    /// If the entry is missing.
    pub fn existing(self) -> io::Result<ExistingEntry> {
        match self {
            ResolvedPath::Existing(existing) => Ok(existing),
            ResolvedPath::Missing(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl ExistingEntry {
    /// # Errors
    /// If the entry is not a directory.
    pub fn into_directory(self) -> io::Result<DirectoryHandle> {
        match self.entry.metadata()?.is_dir() {
            true => Ok(DirectoryHandle::from_entry(self.entry)),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

/// Returns whether a file of that owner, in a directory with these attributes, is untrusted under
/// the kernel's rules for sticky directories.
#[must_use]
pub fn is_foreign(owner: u32, directory: &Metadata) -> bool {
    directory.mode() & STICKY_WORLD_WRITABLE == STICKY_WORLD_WRITABLE
        && owner != Uid::effective().as_raw()
        && owner != directory.uid()
}

/// Returns whether a path has an ending that only a directory's path may have.
fn ends_as_directory(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let last = path.rsplit(|byte| *byte == b'/').next();
    matches!(last, Some(b"" | b"." | b".."))
}

/// The state of a resolution.
struct PathWalk<'a> {
    root: &'a RootDirectory,
    directory: DirectoryHandle,
    zone: Zone,
    /// The names to be resolved, the next one last.
    pending: Vec<OsString>,
    must_be_directory: bool,
    links: usize,
    /// The number of pending names once those of the outermost link's target are resolved.
    names_after_link: usize,
}

impl<'a> PathWalk<'a> {
    fn start(root: &'a RootDirectory, path: &Path) -> io::Result<Self> {
        let mut walk = PathWalk {
            root,
            directory: root.open()?,
            zone: Zone::Open,
            pending: Vec::new(),
            must_be_directory: ends_as_directory(path),
            links: 0,
            names_after_link: usize::MAX,
        };
        walk.push(path);
        Ok(walk)
    }

    fn push(&mut self, path: &Path) {
        let names = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        });
        let names: Vec<OsString> = names.collect();
        self.pending.extend(names.into_iter().rev());
    }

    fn run(mut self, last_link: LastLink) -> Result<ResolvedPath, ResolveError> {
        while let Some(name) = self.pending.pop() {
            let is_last = self.pending.is_empty();
            let entry = match self.open(&name, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW) {
                // It may be a link.
                Err(Errno::ENOTDIR | Errno::ELOOP) => self.open(&name, OFlag::O_NOFOLLOW),
                opened => opened,
            };
            let entry = match entry {
                Err(Errno::ENOENT) => return self.missing(name),
                opened => opened?,
            };
            let metadata = entry.metadata()?;
            let zone = self.zone_of(&name, &metadata)?;
            let is_kept = is_last && last_link == LastLink::Keep && !self.must_be_directory;
            if metadata.is_symlink() && !is_kept {
                match self.follow(&name, &entry, &metadata)? {
                    Some(target) if is_last => return self.existing(target, None, Zone::Open),
                    Some(target) => self.enter(target, Zone::Open),
                    None => {}
                }
            } else if is_last && name != ".." {
                return self.existing(entry, Some(name), zone);
            } else if metadata.is_dir() {
                self.enter(entry, zone);
            } else {
                return Err(Errno::ENOTDIR.into());
            }
        }
        let (directory, zone) = (self.directory.try_clone()?, self.zone);
        self.existing(directory.into_entry(), None, zone)
    }

    /// Returns the zone of an entry of the current directory.
    fn zone_of(&self, name: &OsStr, entry: &Metadata) -> Result<Zone, ResolveError> {
        let entered = match self.root.protected() {
            Some(protected) => protected.enter(self.zone, name, entry),
            None => Some(Zone::Open),
        };
        entered.ok_or(ResolveError::Protected)
    }

    fn enter(&mut self, directory: File, zone: Zone) {
        self.directory = DirectoryHandle::from_entry(directory);
        self.zone = zone;
    }

    fn open(&self, name: &OsString, flags: OFlag) -> Result<File, Errno> {
        let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
        openat(&self.directory, name.as_os_str(), flags, Mode::empty()).map(File::from)
    }

    /// Follows a link: adds its target to the pending names, or returns it if the kernel knows more
    /// than its path, as for the links of `/proc`.
    fn follow(
        &mut self,
        name: &OsString,
        link: &File,
        metadata: &Metadata,
    ) -> Result<Option<File>, ResolveError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::ELOOP.into());
        }
        if fstatfs(&self.directory)?.filesystem_type() == PROC_SUPER_MAGIC {
            return self.follow_process_link(name).map(Some);
        }
        if is_foreign(metadata.uid(), &self.directory.metadata()?) {
            return Err(ResolveError::ForeignLink);
        }
        let target = readlinkat(link, "")?;
        let target = Path::new(&target);
        if target.is_absolute() {
            self.directory = self.root.open()?;
            self.zone = Zone::Open;
        }
        self.must_be_directory |= self.pending.is_empty() && ends_as_directory(target);
        self.names_after_link = self.names_after_link.min(self.pending.len());
        self.push(target);
        Ok(None)
    }

    /// Returns the target of a link of `/proc`, as its path leads to it.
    fn follow_process_link(&self, name: &OsString) -> Result<File, ResolveError> {
        let target = self.open(name, OFlag::empty())?;
        let path = fs::read_link(descriptor_path(&target))?;
        if !path.is_absolute() {
            return Err(ResolveError::NoPath);
        }
        let mut walk = PathWalk::start(self.root, &path)?;
        // The path of an open file has no links.
        walk.links = MAX_LINKS;
        let entry = match walk.run(LastLink::Keep) {
            Ok(ResolvedPath::Existing(existing)) => existing.entry,
            Err(ResolveError::Protected) => return Err(ResolveError::Protected),
            Ok(ResolvedPath::Missing(_)) | Err(_) => return Err(ResolveError::NoPath),
        };
        let (found, expected) = (entry.metadata()?, target.metadata()?);
        match (found.dev(), found.ino()) == (expected.dev(), expected.ino()) {
            true => Ok(entry),
            false => Err(ResolveError::NoPath),
        }
    }

    /// Returns an entry in this zone.
    fn existing(
        self,
        entry: File,
        name: Option<OsString>,
        zone: Zone,
    ) -> Result<ResolvedPath, ResolveError> {
        if zone != Zone::Open {
            return Err(ResolveError::Protected);
        }
        let metadata = entry.metadata()?;
        if self.must_be_directory && !metadata.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let protected = self.root.protected();
        let is_above_protected = protected.is_some_and(|tree| tree.lies_below(&metadata));
        Ok(ResolvedPath::Existing(ExistingEntry {
            entry,
            is_above_protected,
            is_fixed: is_above_protected || self.zone != Zone::Open,
            place: name.map(|name| (self.directory, name)),
        }))
    }

    fn missing(mut self, first: OsString) -> Result<ResolvedPath, ResolveError> {
        if self.zone != Zone::Open {
            return Err(ResolveError::Protected);
        }
        let is_link_target = self.pending.len() >= self.names_after_link;
        self.pending.reverse();
        if first == ".." || self.pending.iter().any(|name| name == "..") {
            return Err(Errno::ENOENT.into());
        }
        let mut parents = vec![first];
        parents.append(&mut self.pending);
        let name = parents.pop().unwrap_or_default();
        Ok(ResolvedPath::Missing(MissingEntry {
            directory: self.directory,
            parents,
            name,
            must_be_directory: self.must_be_directory,
            is_link_target,
        }))
    }
}
