//! Waiting for files that another program makes, woken by the kernel instead of asking again and again.

use std::{io, os::fd::OwnedFd, path::Path};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::{io::AsyncReadExt, net::unix::pipe};

/// Files larger than this are not what we wait for.
const MAX_BYTES: u64 = 64 * 1024;

/// Tells of every change to the entries of a folder, from the moment it is made.
pub struct DirectoryWatch(pipe::Receiver);

impl DirectoryWatch {
    pub fn new(folder: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        inotify.add_watch(
            folder,
            AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_MOVED_TO,
        )?;
        // It is no pipe, but is read and polled like one.
        pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify)).map(Self)
    }

    /// Resolves after a change, or several.
    pub async fn changed(&mut self) -> io::Result<()> {
        let mut ignored = [0; 4096];
        self.0.read(&mut ignored).await.map(drop)
    }
}

/// Resolves once the file at `path` is there and `parse` accepts its content. Its folder must exist.
pub async fn wait_for_file<T>(
    path: &Path,
    mut parse: impl FnMut(&str) -> Option<T>,
) -> io::Result<T> {
    let folder = path
        .parent()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut watch = DirectoryWatch::new(folder)?;
    loop {
        // Looked at after the watch is set and after every change, so that no write is missed.
        if let Some(found) = read_small(path).as_deref().and_then(&mut parse) {
            return Ok(found);
        }
        watch.changed().await?;
    }
}

fn read_small(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= MAX_BYTES)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}
