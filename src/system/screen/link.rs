//! A connection to the X server that does not wait for ever: one that answers nobody must not hold up a thread.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use x11rb::{
    reexports::x11rb_protocol::parse_display::ConnectAddress,
    rust_connection::{DefaultStream, PollMode, RustConnection, Stream},
    utils::RawFdContainer,
};

use crate::system::x11::{Access, COOKIE_NAME, X11Error, socket_path};

/// The longest pause within an answer, which takes the server a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

pub type Link = RustConnection<Bounded>;

/// A stream that gives up.
#[derive(Debug)]
pub struct Bounded(DefaultStream);

pub fn connect(access: &Access) -> Result<Link, X11Error> {
    let address = ConnectAddress::Socket(socket_path(access));
    let (stream, _) = DefaultStream::connect(&address)?;
    let link = RustConnection::connect_to_stream_with_auth_info(
        Bounded(stream),
        0,
        COOKIE_NAME.into(),
        access.cookie.to_vec(),
    )?;
    Ok(link)
}

/// Waits until one of them can be read, at most until `deadline`; tells which.
pub fn readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Instant,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    poll_until(&mut polled, deadline)?;
    Ok(polled.map(|fd| fd.any().unwrap_or(true)))
}

/// Says whether anything happened before the deadline.
pub fn poll_until(fds: &mut [PollFd], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last moment is not spent asking again and again.
        let left = left.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(left.min(i32::MAX as u128) as i32);
        match poll(fds, timeout.unwrap_or(PollTimeout::ZERO)) {
            Ok(0) if Instant::now() < deadline => {}
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Stream for Bounded {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, mode.readable());
        flags.set(PollFlags::POLLOUT, mode.writable());
        let mut fds = [PollFd::new(self.as_fd(), flags)];
        if poll_until(&mut fds, Instant::now() + PATIENCE)? {
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
