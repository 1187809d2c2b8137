//! Copies of directories, which share blocks with the original where the file system supports it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use nix::sys::stat::FileStat;

use super::{
    ArchiveSource, SkippedEntries,
    tree_walk::{self, Entry, EntrySink},
};

/// Copies a directory into an existing, empty one.
///
/// # Errors
/// If the copy cannot be written.
pub fn copy(source: &ArchiveSource, into: &Path) -> io::Result<SkippedEntries> {
    let mut sink = CopySink {
        into: into.to_owned(),
    };
    tree_walk::walk(source, &mut sink)
}

struct CopySink {
    into: PathBuf,
}

impl EntrySink for CopySink {
    fn add(
        &mut self,
        path: &Path,
        entry: Entry<'_>,
        skipped: &mut SkippedEntries,
    ) -> io::Result<()> {
        let to = self.into.join(path);
        match entry {
            Entry::Directory(stat) => {
                DirBuilder::new().mode(0o700).create(&to)?;
                fs::set_permissions(&to, permissions(stat))
            }
            Entry::File(stat, file) => {
                let mut copy = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&to)?;
                // `io::copy` lets the kernel copy, which shares blocks where possible.
                let size = tree_walk::size(stat);
                if io::copy(&mut Read::take(&file, size), &mut copy)? < size {
                    skipped.add(path, "shrank while it was copied");
                }
                copy.set_permissions(permissions(stat))?;
                set_modified(&copy, stat)
            }
            Entry::Link(_, target) => symlink(target, to),
        }
    }
}

fn permissions(stat: &FileStat) -> Permissions {
    Permissions::from_mode(stat.st_mode & 0o7777)
}

fn set_modified(file: &File, stat: &FileStat) -> io::Result<()> {
    let (Ok(seconds), Ok(nanos)) = (
        u64::try_from(stat.st_mtime),
        u32::try_from(stat.st_mtime_nsec),
    ) else {
        return Ok(());
    };
    file.set_modified(UNIX_EPOCH + Duration::new(seconds, nanos))
}
