//! Waiting for files that another program writes, with inotify instead of polling.

use std::{io, os::fd::OwnedFd, path::Path};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::{io::AsyncReadExt, net::unix::pipe};

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A notification of every change to the entries of a directory from the watch's creation on.
pub struct DirectoryWatch(pipe::Receiver);

impl DirectoryWatch {
    pub fn new(directory: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        inotify.add_watch(
            directory,
            AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_MOVED_TO,
        )?;
        // Not a pipe, but it is read and polled like one.
        pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify)).map(Self)
    }

    /// Resolves after one or more changes.
    pub async fn changed(&mut self) -> io::Result<()> {
        let mut ignored = [0; 4096];
        self.0.read(&mut ignored).await.map(drop)
    }
}

/// Waits until the file at `path` exists and `parse` accepts its content. Its directory must exist.
pub async fn wait_for_file<T>(
    path: &Path,
    mut parse: impl FnMut(&str) -> Option<T>,
) -> io::Result<T> {
    let directory = path
        .parent()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut watch = DirectoryWatch::new(directory)?;
    loop {
        // Read after the watch is set and after every change, so that no write is missed.
        if let Some(parsed) = read_small(path).as_deref().and_then(&mut parse) {
            return Ok(parsed);
        }
        watch.changed().await?;
    }
}

fn read_small(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    (metadata.is_file() && metadata.len() <= MAX_FILE_BYTES)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}
