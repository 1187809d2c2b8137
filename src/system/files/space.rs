//! The size of a file system.

use std::{io, path::Path};

use nix::sys::statvfs::statvfs;

/// The size of a file system in bytes. One without a limit has 0 in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemSpace {
    pub total: u64,
    /// The part that programs without privileges can still use.
    pub available: u64,
}

impl FileSystemSpace {
    /// Reads the size of the file system that a path is on.
    ///
    /// # Errors
    /// Fails if the path does not exist or cannot be reached.
    pub fn read(path: &Path) -> io::Result<FileSystemSpace> {
        let stat = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
        Ok(FileSystemSpace {
            total: bytes(stat.blocks()),
            available: bytes(stat.blocks_available()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_of_a_file_system_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let space = FileSystemSpace::read(directory.path()).unwrap();
        assert!(
            space.total > 0 && space.available <= space.total,
            "{space:?}"
        );
        assert!(FileSystemSpace::read(Path::new("/nonexistent")).is_err());
    }
}
