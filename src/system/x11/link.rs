//! The stream below a connection to the X server. It does not wait for ever: a server that answers nobody must not hold up a thread.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags};
use x11rb::{
    reexports::x11rb_protocol::parse_display::ConnectAddress,
    rust_connection::{DefaultStream, PollMode, Stream},
    utils::RawFdContainer,
};

use crate::system::poll::poll_until;

/// The longest pause within an answer, which takes the server a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A stream that gives up.
#[derive(Debug)]
pub struct Bounded(DefaultStream);

impl Bounded {
    pub fn connect(socket: String) -> io::Result<Self> {
        let (stream, _) = DefaultStream::connect(&ConnectAddress::Socket(socket))?;
        Ok(Self(stream))
    }
}

impl Stream for Bounded {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
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
        self.0.read(buf, fd_storage)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.0.write(buf, fds)
    }

    fn write_vectored(
        &self,
        bufs: &[IoSlice<'_>],
        fds: &mut Vec<RawFdContainer>,
    ) -> io::Result<usize> {
        self.0.write_vectored(bufs, fds)
    }
}

impl AsFd for Bounded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(&self.0)
    }
}
