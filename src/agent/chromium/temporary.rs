//! Chromium's temporary files, which go with the Chromium that made them.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// What Chromium appends for the socket by which it finds itself.
const SOCKET: &str = "/org.chromium.Chromium.XXXXXX/SingletonSocket";
/// The longest path of a socket; Chromium does not start on a longer one.
const MAX_SOCKET_PATH: usize = 107;

/// A directory that is empty at first and removed when this is dropped; what a killed agent leaves, the next one clears.
#[derive(Debug)]
pub struct TemporaryDir {
    path: PathBuf,
    /// Through which it has a short name.
    opened: File,
}

impl TemporaryDir {
    pub fn fresh(path: PathBuf) -> io::Result<Self> {
        clear(&path)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        let opened = File::open(&path)?;
        Ok(TemporaryDir { path, opened })
    }

    /// What Chromium is to call it.
    pub fn name(&self) -> PathBuf {
        if self.path.as_os_str().len() + SOCKET.len() <= MAX_SOCKET_PATH {
            return self.path.clone();
        }
        let (process, descriptor) = (std::process::id(), self.opened.as_raw_fd());
        format!("/proc/{process}/fd/{descriptor}").into()
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "temporary files stay behind");
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
    fn a_socket_fits_in_however_deep_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        for depth in [0, 40, 200] {
            let path = folder.path().join("x".repeat(depth)).join("tmp");
            fs::create_dir_all(path.join("left by another")).unwrap();
            let temporary = TemporaryDir::fresh(path.clone()).unwrap();
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
            let own = temporary.name().join("org.chromium.Chromium.XXXXXX");
            fs::create_dir(&own).unwrap();
            UnixListener::bind(own.join("SingletonSocket")).unwrap();
            assert!(path.join("org.chromium.Chromium.XXXXXX").exists());
            drop(temporary);
            assert!(!path.exists());
        }
    }
}
