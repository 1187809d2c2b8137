//! A copy of a directory, which shares its blocks with it where the file system can do that.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use nix::sys::stat::FileStat;

use super::{
    Skipped, Source,
    tree_walk::{self, Entry, Sink},
};

/// Copies a directory into one that is there and empty.
///
/// # Errors
/// Where the copy cannot be written.
pub fn copy(source: &Source, into: &Path) -> io::Result<Skipped> {
    let mut sink = CopySink {
        into: into.to_owned(),
    };
    tree_walk::walk(source, &mut sink)
}

struct CopySink {
    into: PathBuf,
}

impl Sink for CopySink {
    fn add(&mut self, path: &Path, entry: Entry<'_>, skipped: &mut Skipped) -> io::Result<()> {
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
                // By the kernel itself, which shares blocks where it can.
                let size = tree_walk::size(stat);
                if io::copy(&mut Read::take(&file, size), &mut copy)? < size {
                    skipped.note(path, "it became shorter meanwhile");
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
