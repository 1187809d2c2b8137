//! Chromium's temporary files, which are removed with their Chromium.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// The suffix that Chromium appends for the socket that finds a running instance.
const SOCKET_SUFFIX: &str = "/org.chromium.Chromium.XXXXXX/SingletonSocket";
/// The longest path of a Unix socket. Chromium does not start if it exceeds this.
const MAX_SOCKET_PATH: usize = 107;

/// A directory that is emptied at the start, also of the leftovers of a killed agent, and removed
/// on drop.
#[derive(Debug)]
pub(super) struct TemporaryDir {
    path: PathBuf,
    /// Keeps the short name below `/proc` valid.
    handle: File,
}

impl TemporaryDir {
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        clear(&path)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        let handle = File::open(&path)?;
        Ok(TemporaryDir { path, handle })
    }

    /// Returns a path of the directory that is short enough for Chromium's socket.
    pub(super) fn short_path(&self) -> PathBuf {
        if self.path.as_os_str().len() + SOCKET_SUFFIX.len() <= MAX_SOCKET_PATH {
            return self.path.clone();
        }
        let (process, descriptor) = (std::process::id(), self.handle.as_raw_fd());
        format!("/proc/{process}/fd/{descriptor}").into()
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove temporary files");
        }
    }
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn socket_fits_in_a_directory_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        for depth in [0, 40, 200] {
            let path = folder.path().join("x".repeat(depth)).join("tmp");
            fs::create_dir_all(path.join("left by another")).unwrap();
            let temporary = TemporaryDir::create(path.clone()).unwrap();
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
            let own = temporary.short_path().join("org.chromium.Chromium.XXXXXX");
            fs::create_dir(&own).unwrap();
            UnixListener::bind(own.join("SingletonSocket")).unwrap();
            assert!(path.join("org.chromium.Chromium.XXXXXX").exists());
            drop(temporary);
            assert!(!path.exists());
        }
    }
}
