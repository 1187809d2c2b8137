//! Path resolution to descriptors.
//!
//! A path is resolved once, name by name, each opened relative to the directory before it. The
//! operation then uses the descriptors, so that a name that is replaced meanwhile leads nowhere
//! else.
//!
//! Symbolic links are followed under the kernel's rule `fs.protected_symlinks` (proc(5)), whether
//! or not the machine has it enabled: in a sticky directory that everyone may write to, such as
//! `/tmp`, only links of this process's user and of the directory's owner are followed.

use std::{
    ffi::OsString,
    fs::{File, Metadata},
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

use super::{directory::DirectoryHandle, root::RootDirectory};

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
/// are more than 40 links, or `..` follows a missing name.
pub fn resolve(
    root: &RootDirectory,
    path: &Path,
    last_link: LastLink,
) -> Result<ResolvedPath, ResolveError> {
    let mut walk = PathWalk {
        root,
        directory: root.open()?,
        pending: Vec::new(),
        must_be_directory: ends_as_directory(path),
        links: 0,
        names_after_link: usize::MAX,
    };
    walk.push(path);
    walk.run(last_link)
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
    /// The names to be resolved, the next one last.
    pending: Vec<OsString>,
    must_be_directory: bool,
    links: usize,
    /// The number of pending names once those of the outermost link's target are resolved.
    names_after_link: usize,
}

impl PathWalk<'_> {
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
            let is_kept = is_last && last_link == LastLink::Keep && !self.must_be_directory;
            if metadata.is_symlink() && !is_kept {
                match self.follow(&name, &entry, &metadata)? {
                    Some(target) if is_last => return self.existing(target, None),
                    Some(target) => self.directory = DirectoryHandle::from_entry(target),
                    None => {}
                }
            } else if is_last && name != ".." {
                return self.existing(entry, Some(name));
            } else if metadata.is_dir() {
                self.directory = DirectoryHandle::from_entry(entry);
            } else {
                return Err(Errno::ENOTDIR.into());
            }
        }
        Ok(ResolvedPath::Existing(ExistingEntry {
            entry: self.directory.into_entry(),
            place: None,
        }))
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
            return Ok(Some(self.open(name, OFlag::empty())?));
        }
        if is_foreign(metadata.uid(), &self.directory.metadata()?) {
            return Err(ResolveError::ForeignLink);
        }
        let target = readlinkat(link, "")?;
        let target = Path::new(&target);
        if target.is_absolute() {
            self.directory = self.root.open()?;
        }
        self.must_be_directory |= self.pending.is_empty() && ends_as_directory(target);
        self.names_after_link = self.names_after_link.min(self.pending.len());
        self.push(target);
        Ok(None)
    }

    fn existing(self, entry: File, name: Option<OsString>) -> Result<ResolvedPath, ResolveError> {
        if self.must_be_directory && !entry.metadata()?.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(ResolvedPath::Existing(ExistingEntry {
            entry,
            place: name.map(|name| (self.directory, name)),
        }))
    }

    fn missing(mut self, first: OsString) -> Result<ResolvedPath, ResolveError> {
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
