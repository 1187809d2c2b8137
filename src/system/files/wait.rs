//! Waiting for files that another program writes, with inotify instead of polling.

use std::{io, os::fd::OwnedFd, path::Path};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::{io::AsyncReadExt, net::unix::pipe};

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
