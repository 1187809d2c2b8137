//! Moving files and directories, also to another file system.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
    sync::Arc,
};

use nix::libc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    files::{FileError, place_of},
    temp_files::TempFileJournal,
    tree_copy::{CopyError, DESCRIPTORS_PER_COPY, copy_entry},
};
use crate::{
    shutdown::Shutdown,
    system::files::{
        directory::DirectoryHandle,
        resolve::{LastLink, ResolvedPath, resolve},
        root::RootDirectory,
    },
};

/// The limit on concurrent moves to another file system.
pub const MAX_COPIES: usize = 4;
/// The descriptors that all of them need.
pub const MAX_COPY_DESCRIPTORS: usize = MAX_COPIES * DESCRIPTORS_PER_COPY;
/// The name of the copy in its temporary directory.
const COPY: &str = "copy";

/// The error of a move.
#[derive(Debug)]
pub enum MoveError {
    Source(FileError),
    Destination(FileError),
    LimitReached,
    /// The agent is shutting down, or the move was cancelled.
    Cancelled,
}

/// Moves files and directories; clones share the limit on copies to another file system.
#[derive(Debug, Clone)]
pub struct Moves {
    temp_files: TempFileJournal,
    copies: Arc<Semaphore>,
    shutdown: CancellationToken,
}

/// An end of a move.
struct MoveEnd {
    directory: DirectoryHandle,
    name: OsString,
}

impl Moves {
    #[must_use]
    pub fn new(temp_files: TempFileJournal, shutdown: &Shutdown) -> Self {
        Moves {
            temp_files,
            copies: Arc::new(Semaphore::new(MAX_COPIES)),
            shutdown: shutdown.token(),
        }
    }

    /// Returns a token that cancels a move, and that is cancelled by the shutdown.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.shutdown.child_token()
    }

    /// Moves a file or directory. A file at the destination is replaced in the same step. Blocks;
    /// `cancel` ends a copy to another file system before the copy appears.
    ///
    /// # Errors
    /// If the source does not exist, or the destination is unsuitable.
    pub fn move_path(
        &self,
        from: &Path,
        to: &Path,
        cancel: &CancellationToken,
    ) -> Result<(), MoveError> {
        let access = self.temp_files.access();
        let source = resolve_source(access.root(), from);
        let (source, is_directory) = source.map_err(MoveError::Source)?;
        let destination = resolve_destination(access.root(), to, is_directory);
        let destination = destination.map_err(MoveError::Destination)?;
        access.note_change(&source.directory);
        access.note_change(&destination.directory);
        let renamed =
            source
                .directory
                .rename(&source.name, &destination.directory, &destination.name);
        match renamed {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
                self.move_across_file_systems(&source, destination, cancel)
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Err(MoveError::Destination(FileError::InsideItself))
            }
            // The source exists, so the destination is unsuitable.
            Err(error) => Err(MoveError::Destination(error.into())),
        }
    }

    /// Copies the source beside the destination, renames the copy and removes the source.
    fn move_across_file_systems(
        &self,
        source: &MoveEnd,
        destination: MoveEnd,
        cancel: &CancellationToken,
    ) -> Result<(), MoveError> {
        let permit = self.copies.try_acquire();
        let _permit = permit.map_err(|_| MoveError::LimitReached)?;
        let destination_error = |error: io::Error| MoveError::Destination(error.into());
        let directory = Arc::new(destination.directory);
        let staging = self.temp_files.create_directory_in(directory);
        let staging = staging.map_err(destination_error)?;
        let (copy, name) = (OsStr::new(COPY), &source.name);
        copy_entry(&source.directory, name, staging.handle(), copy, cancel)?;
        let (staged, directory) = (staging.handle(), staging.parent());
        let renamed = staged.rename(copy, directory, &destination.name);
        renamed.map_err(destination_error)?;
        let removed = source.directory.remove_all(name);
        removed.map_err(|error| MoveError::Source(error.into()))
    }
}

impl From<CopyError> for MoveError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Source(error) => MoveError::Source(error),
            CopyError::Io(error) => MoveError::Destination(error.into()),
            CopyError::Cancelled => MoveError::Cancelled,
        }
    }
}

/// Returns the source, and whether it is a directory.
fn resolve_source(root: &RootDirectory, path: &Path) -> Result<(MoveEnd, bool), FileError> {
    let existing = resolve(root, path, LastLink::Keep)?.existing()?;
    let is_directory = existing.entry.metadata()?.is_dir();
    let (directory, name) = place_of(path, existing)?;
    Ok((MoveEnd { directory, name }, is_directory))
}

fn resolve_destination(
    root: &RootDirectory,
    path: &Path,
    is_directory: bool,
) -> Result<MoveEnd, FileError> {
    let missing = match resolve(root, path, LastLink::Keep)? {
        ResolvedPath::Existing(existing) => {
            let (directory, name) = place_of(path, existing)?;
            return Ok(MoveEnd { directory, name });
        }
        ResolvedPath::Missing(missing) => missing,
    };
    if let Some(first) = missing.parents.first() {
        let parent = missing.directory.path()?.join(first);
        return Err(FileError::MissingDirectory(parent));
    }
    if missing.must_be_directory && !is_directory {
        return Err(FileError::NotADirectory);
    }
    Ok(MoveEnd {
        directory: missing.directory,
        name: missing.name,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
        os::unix::fs::{FileExt, MetadataExt},
        path::PathBuf,
    };

    use tempfile::TempDir;

    use super::{
        super::{
            access::FileAccess, tests::directory_on_another_file_system, tree_copy::MAX_DEPTH,
        },
        *,
    };

    /// Two directories on different file systems.
    struct Fixture {
        source: TempDir,
        destination: TempDir,
        moves: Moves,
    }

    impl Fixture {
        fn new() -> Self {
            let source = tempfile::tempdir().unwrap();
            let journal =
                TempFileJournal::new(&source.path().join("journal"), FileAccess::default())
                    .unwrap();
            Fixture {
                destination: directory_on_another_file_system(source.path()),
                moves: Moves::new(journal, &Shutdown::new()),
                source,
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.source.path().join(name)
        }

        fn move_across(&self, name: &str, cancel: &CancellationToken) -> Result<(), MoveError> {
            let to = self.destination.path().join("moved");
            self.moves.move_path(&self.path(name), &to, cancel)
        }

        fn assert_nothing_moved(&self) {
            assert_eq!(fs::read_dir(self.destination.path()).unwrap().count(), 0);
            assert_eq!(fs::read_dir(self.path("journal")).unwrap().count(), 0);
        }
    }

    /// Creates a directory with `depth` directories in it, one within the other, and a file.
    fn create_deep_tree(root: &Path, depth: usize) -> PathBuf {
        let innermost = root.join(vec!["d"; depth].join("/"));
        fs::create_dir_all(&innermost).unwrap();
        fs::write(innermost.join("file"), "content").unwrap();
        innermost.join("file")
    }

    #[test]
    fn tree_beyond_depth_limit_is_not_moved_across_file_systems() {
        let fixture = Fixture::new();
        let file = create_deep_tree(&fixture.path("deep"), MAX_DEPTH + 1);
        let moved = fixture.move_across("deep", &CancellationToken::new());
        let Err(MoveError::Source(error)) = moved else {
            panic!("{moved:?}");
        };
        assert_eq!(error.to_string(), "has more than 128 nested directories");
        assert_eq!(fs::read_to_string(file).unwrap(), "content");
        fixture.assert_nothing_moved();
        let file = create_deep_tree(&fixture.path("allowed"), MAX_DEPTH);
        let allowed = fixture.move_across("allowed", &CancellationToken::new());
        assert!(allowed.is_ok(), "{allowed:?}");
        assert!(!file.exists());
    }

    #[test]
    fn cancelled_move_leaves_source_and_no_copy() {
        let fixture = Fixture::new();
        fs::write(fixture.path("file"), "content").unwrap();
        let cancel = fixture.moves.cancellation_token();
        fixture.moves.shutdown.cancel();
        let moved = fixture.move_across("file", &cancel);
        assert!(matches!(moved, Err(MoveError::Cancelled)), "{moved:?}");
        assert_eq!(fs::read(fixture.path("file")).unwrap(), b"content");
        fixture.assert_nothing_moved();
    }

    #[test]
    fn moved_file_keeps_its_holes() {
        const LENGTH: u64 = 1 << 40;
        const MIDDLE: u64 = 1 << 39;
        let fixture = Fixture::new();
        let mut file = File::create(fixture.path("sparse")).unwrap();
        file.write_all(b"start").unwrap();
        file.write_all_at(b"middle", MIDDLE).unwrap();
        file.set_len(LENGTH).unwrap();
        fixture
            .move_across("sparse", &CancellationToken::new())
            .unwrap();
        let moved = File::open(fixture.destination.path().join("moved")).unwrap();
        let metadata = moved.metadata().unwrap();
        assert_eq!(metadata.len(), LENGTH);
        assert!(metadata.blocks() * 512 < 1 << 20, "{}", metadata.blocks());
        for (position, content) in [(0, &b"start\0"[..]), (MIDDLE, b"middle\0")] {
            let mut read = vec![1; content.len()];
            moved.read_exact_at(&mut read, position).unwrap();
            assert_eq!(read, content);
        }
    }

    #[test]
    fn copies_to_another_file_system_are_limited() {
        let fixture = Fixture::new();
        fs::write(fixture.path("file"), "content").unwrap();
        let permits = fixture.moves.copies.try_acquire_many(MAX_COPIES as u32);
        let refused = fixture.move_across("file", &CancellationToken::new());
        assert!(matches!(refused, Err(MoveError::LimitReached)));
        drop(permits);
        fixture
            .move_across("file", &CancellationToken::new())
            .unwrap();
    }
}
