//! Directories of this process that paths of clients do not lead to.
//!
//! ```text
//! /var/lib/berth        passage
//!   run, replays        closed
//!   sessions            passage
//!     7                 the last passage
//!       downloads       open
//!       run             closed, like everything else in a passage
//! ```
//!
//! A path may lead through a passage, but only to another passage or to an open directory. As
//! nothing that is closed is ever entered, it is enough to know the directories at its edge. They
//! are recognized by device and inode, whatever name or mount leads to them.

use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

use super::{
    directory::DirectoryHandle,
    resolve::{LastLink, ResolveError, resolve},
    root::RootDirectory,
};

/// The device and inode of a file or directory.
type FileId = (u64, u64);

/// The layout of a protected tree.
#[derive(Debug)]
pub struct ProtectedLayout {
    /// The directories that lead to the open ones, each in the one before it.
    pub passages: Vec<PathBuf>,
    /// The files and directories that are closed wherever they are met.
    pub closed: Vec<PathBuf>,
    /// The names of the open directories in the last passage.
    pub open: &'static [&'static str],
}

/// A protected tree, as it is found on the disk.
#[derive(Debug)]
pub struct ProtectedTree {
    passages: Vec<FileId>,
    closed: Vec<FileId>,
    open: &'static [&'static str],
    /// The directories above the passages.
    ancestors: Vec<FileId>,
    /// Keep the inodes of all of these from being used for other files.
    _handles: Vec<File>,
}

/// The entries of a directory that a path may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    /// All.
    Open,
    /// Other passages.
    Passage,
    /// The open directories.
    LastPassage,
}

impl ProtectedTree {
    /// Finds the directories of the layout, and those above them, also as they are seen from
    /// `root`. Blocks.
    ///
    /// # Errors
    /// If one of them cannot be opened.
    pub fn find(layout: &ProtectedLayout, root: &RootDirectory) -> io::Result<Self> {
        let mut handles = Vec::new();
        let mut open = |path: &Path| {
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
            let opened = File::options()
                .read(true)
                .custom_flags(flags.bits())
                .open(path)?;
            let id = id_of(&opened.metadata()?);
            handles.push(opened);
            Ok::<_, io::Error>(id)
        };
        let mut passages = Vec::new();
        let mut ancestors = Vec::new();
        for path in &layout.passages {
            passages.push(open(path)?);
            let path = path.canonicalize()?;
            ancestors.extend(ancestors_of(&RootDirectory::default(), &path)?);
            ancestors.extend(ancestors_of(root, &path)?);
        }
        let closed = layout.closed.iter().map(|path| open(path));
        let closed = closed.collect::<io::Result<_>>()?;
        ancestors.sort_unstable();
        ancestors.dedup();
        Ok(ProtectedTree {
            passages,
            closed,
            open: layout.open,
            ancestors,
            _handles: handles,
        })
    }

    /// Returns the zone of the entry `name` of a directory, or `None` if paths do not lead to it.
    pub(super) fn enter(&self, directory: Zone, name: &OsStr, entry: &Metadata) -> Option<Zone> {
        if let Some(zone) = self.edge(entry) {
            return zone;
        }
        let is_open = match directory {
            Zone::Open => true,
            _ if name == ".." => true,
            Zone::Passage => false,
            Zone::LastPassage => entry.is_dir() && self.open.iter().any(|open| name == *open),
        };
        is_open.then_some(Zone::Open)
    }

    /// Returns whether this is a passage or closed.
    pub fn is_edge(&self, entry: &Metadata) -> bool {
        self.edge(entry).is_some()
    }

    /// Returns whether the tree lies below this directory.
    pub(super) fn lies_below(&self, directory: &Metadata) -> bool {
        self.ancestors.contains(&id_of(directory))
    }

    /// Returns the zone of a passage, and `Some(None)` for what is closed.
    fn edge(&self, entry: &Metadata) -> Option<Option<Zone>> {
        let id = id_of(entry);
        if self.closed.contains(&id) {
            return Some(None);
        }
        let position = self.passages.iter().position(|passage| *passage == id)?;
        Some(Some(match position + 1 == self.passages.len() {
            true => Zone::LastPassage,
            false => Zone::Passage,
        }))
    }
}

/// Returns the directories above one, as `..` leads to them. There are none where the path does not
/// exist.
fn ancestors_of(root: &RootDirectory, path: &Path) -> io::Result<Vec<FileId>> {
    let existing = match resolve(root, path, LastLink::Keep) {
        Ok(resolved) => resolved.existing(),
        Err(ResolveError::Io(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    };
    let mut directory = match existing {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        existing => existing?.into_directory()?,
    };
    let mut ancestors = Vec::new();
    let mut id = id_of(&directory.metadata()?);
    loop {
        let parent: DirectoryHandle = directory.open("..")?;
        let parent_id = id_of(&parent.metadata()?);
        if parent_id == id {
            return Ok(ancestors);
        }
        ancestors.push(parent_id);
        (directory, id) = (parent, parent_id);
    }
}

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{fd::AsRawFd, unix::fs::symlink},
        thread,
    };

    use nix::{
        mount::{MsFlags, mount},
        sched::{CloneFlags, unshare},
        unistd::Uid,
    };
    use tempfile::TempDir;

    use super::{super::resolve::ResolvedPath, *};

    const FILES: [&str; 6] = [
        "above/file",
        "above/top/file",
        "above/top/closed/file",
        "above/top/inner/other/file",
        "above/top/inner/last/open/file",
        "above/top/inner/last/hidden/file",
    ];

    /// A tree with the directories `closed`, `inner/last/hidden` and `inner/last/open`.
    struct Fixture {
        directory: TempDir,
        root: RootDirectory,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            for file in FILES.map(path) {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            let layout = ProtectedLayout {
                passages: ["above/top", "above/top/inner", "above/top/inner/last"]
                    .map(path)
                    .into(),
                closed: vec![path("above/top/closed")],
                open: &["open", "later"],
            };
            let root = RootDirectory::default();
            let tree = ProtectedTree::find(&layout, &root).unwrap();
            Fixture {
                root: root.protecting(tree),
                directory,
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn resolve(&self, path: impl AsRef<Path>) -> Result<ResolvedPath, ResolveError> {
            let path = self.path(path.as_ref().to_str().unwrap());
            resolve(&self.root, &path, LastLink::Follow)
        }

        /// Returns whether the entry at a path is above the tree, and whether it must stay there.
        fn place(&self, path: &str) -> (bool, bool) {
            let found = self.resolve(path).unwrap().existing().unwrap();
            (found.is_above_protected, found.is_fixed)
        }

        fn assert_protected(&self, path: impl AsRef<Path>) {
            let resolved = self.resolve(&path);
            assert!(
                matches!(resolved, Err(ResolveError::Protected)),
                "{}: {resolved:?}",
                path.as_ref().display()
            );
        }

        fn assert_open(&self, path: impl AsRef<Path>) {
            let resolved = self.resolve(&path);
            let path = path.as_ref().display();
            assert!(resolved.is_ok(), "{path}: {resolved:?}");
        }
    }

    #[test]
    fn paths_end_outside_or_in_an_open_directory_only() {
        let fixture = Fixture::new();
        for path in [
            "above",
            "above/top/..",
            "above/top/inner/last/../../../file",
            "above/top/inner/last/open",
            "above/top/inner/last/open/",
            "above/top/inner/last/open/file",
            "above/top/inner/last/open/new/file",
            "above/top/inner/last/open/../open/file",
            "above/top/inner/../inner/last/open/file",
        ] {
            fixture.assert_open(path);
        }
        for path in [
            "above/top",
            "above/top/",
            "above/top/.",
            "above/top/new",
            "above/top/new/file",
            "above/top/file",
            "above/top/closed",
            "above/top/closed/file",
            "above/top/closed/../../file",
            "above/top/inner",
            "above/top/inner/other/file",
            "above/top/inner/last",
            "above/top/inner/last/new",
            // Its name is free, but nothing of that name is in the directory.
            "above/top/inner/last/later",
            "above/top/inner/last/hidden/file",
            "above/top/inner/last/open/..",
            "above/top/inner/last/open/../hidden",
            "above/top/inner/last/open/../../../closed",
        ] {
            fixture.assert_protected(path);
        }
    }

    #[test]
    fn links_lead_no_further_than_their_targets() {
        let fixture = Fixture::new();
        let closed = fixture.path("above/top/closed");
        let open = fixture.path("above/top/inner/last/open");
        symlink(&closed, fixture.path("absolute")).unwrap();
        symlink("above/top/closed", fixture.path("relative")).unwrap();
        symlink("../../../closed", open.join("up")).unwrap();
        symlink(&open, fixture.path("to open")).unwrap();
        // An open directory is one, not what a link with its name leads to.
        symlink(
            fixture.path("above"),
            fixture.path("above/top/inner/last/later"),
        )
        .unwrap();
        for path in [
            "absolute/file",
            "relative/file",
            "above/top/inner/last/open/up/file",
            "above/top/inner/last/later/file",
        ] {
            fixture.assert_protected(path);
        }
        fixture.assert_open("to open/file");
    }

    #[test]
    fn links_of_processes_lead_where_their_paths_do() {
        let fixture = Fixture::new();
        let link = |path: &str| {
            let file = File::open(fixture.path(path)).unwrap();
            let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            (file, link)
        };
        for path in ["above/top", "above/top/closed", "above/top/closed/file"] {
            let (_file, link) = link(path);
            fixture.assert_protected(&link);
        }
        let (_directory, directory) = link("above/top/inner/last/hidden");
        fixture.assert_protected(directory.join("file"));
        for path in ["above", "above/file", "above/top/inner/last/open/file"] {
            let (_file, link) = link(path);
            fixture.assert_open(&link);
        }
        let whole = Path::new("/proc/self/root");
        let below = fixture.path("above/top/closed/file");
        fixture.assert_protected(whole.join(below.strip_prefix("/").unwrap()));
        // Has no name any more.
        let (_file, link) = link("above/file");
        fs::remove_file(fixture.path("above/file")).unwrap();
        let resolved = fixture.resolve(&link);
        assert!(
            matches!(resolved, Err(ResolveError::NoPath)),
            "{resolved:?}"
        );
    }

    #[test]
    fn directories_above_and_entries_of_passages_stay_in_place() {
        let fixture = Fixture::new();
        for (path, is_above, is_fixed) in [
            ("above", true, true),
            ("/proc/self/root", true, true),
            ("above/file", false, false),
            ("above/top/inner/last/open", false, true),
            ("above/top/inner/last/open/file", false, false),
        ] {
            assert_eq!(fixture.place(path), (is_above, is_fixed), "{path}");
        }
    }

    #[test]
    fn mounts_of_protected_directories_are_recognized() {
        if !Uid::effective().is_root() {
            return;
        }
        let fixture = Fixture::new();
        fs::create_dir(fixture.path("mounted")).unwrap();
        // A thread of its own can have mounts that no other one sees.
        let mounted = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let bind = |source: &Path, flags| {
                let target = fixture.path("mounted");
                mount(Some(source), &target, None::<&str>, flags, None::<&str>).unwrap();
            };
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            for source in ["above", "above/top", "above/top/inner", "above/top/closed"] {
                bind(&fixture.path(source), MsFlags::MS_BIND);
                match source {
                    "above" => assert_eq!(fixture.place("mounted"), (true, true)),
                    _ => fixture.assert_protected("mounted"),
                }
                fixture.assert_protected(match source {
                    "above" => "mounted/top/closed/file",
                    "above/top" => "mounted/closed/file",
                    "above/top/inner" => "mounted/last/hidden/file",
                    _ => "mounted/file",
                });
            }
            // Removed where nothing is mounted in it.
            fixture
        });
        drop(mounted.join().unwrap());
    }
}
