//! The stream below a connection to the X server. It does not wait for ever: a server that answers nobody must not hold up a thread.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags};
use x11rb::{
    reexports::x11rb_protocol::parse_display::ConnectAddress,
    rust_connection::{DefaultStream, PollMode, Stream},
    utils::RawFdContainer,
};

use crate::system::sync::poll::poll_until;

/// The longest pause within an answer, which takes the server a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A stream that gives up.
#[derive(Debug)]
pub struct Bounded {
    stream: DefaultStream,
    /// Whether there was no room for what was written last.
    is_full: AtomicBool,
}

impl Bounded {
    pub fn connect(socket: String) -> io::Result<Self> {
        let (stream, _) = DefaultStream::connect(&ConnectAddress::Socket(socket))?;
        Ok(Self {
            stream,
            is_full: AtomicBool::new(false),
        })
    }

    fn note_room<T>(&self, written: io::Result<T>) -> io::Result<T> {
        let is_full = matches!(&written, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.is_full.store(is_full, Ordering::Relaxed);
        written
    }
}

impl Stream for Bounded {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        // Asked before each request, most of which go no further than a buffer: to write is to find out.
        if mode.writable() && !self.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, mode.readable());
        flags.set(PollFlags::POLLOUT, mode.writable());
        let mut fds = [PollFd::new(self.as_fd(), flags)];
        if poll_until(&mut fds, Some(Instant::now() + PATIENCE))? {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    fn read(&self, buf: &mut [u8], fd_storage: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.stream.read(buf, fd_storage)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.note_room(self.stream.write(buf, fds))
    }

    fn write_vectored(
        &self,
        bufs: &[IoSlice<'_>],
        fds: &mut Vec<RawFdContainer>,
    ) -> io::Result<usize> {
        self.note_room(self.stream.write_vectored(bufs, fds))
    }
}

impl AsFd for Bounded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(&self.stream)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixListener, thread};

    use super::*;

    const CHUNK: [u8; 4096] = [7; 4096];

    #[test]
    fn a_write_that_finds_no_room_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket").display().to_string();
        let listener = UnixListener::bind(&socket).unwrap();
        let ours = Bounded::connect(socket).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let mut written = 0;
        let write = || ours.write(&CHUNK, &mut Vec::new());
        let full = loop {
            ours.poll(PollMode::ReadAndWritable).unwrap();
            match write() {
                Ok(bytes) => written += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        thread::scope(|scope| {
            scope.spawn(|| theirs.read_exact(&mut vec![0; written]).unwrap());
            ours.poll(PollMode::ReadAndWritable).unwrap();
            assert!(write().unwrap() > 0);
        });
    }
}
