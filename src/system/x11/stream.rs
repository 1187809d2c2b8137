//! The socket below a connection to the X server, with a timeout: a server that does not respond
//! must not block a thread forever.

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

/// The time the server may make no progress. A reply normally takes a few milliseconds.
const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream whose operations time out.
#[derive(Debug)]
pub(in crate::system) struct TimeoutStream {
    stream: DefaultStream,
    /// Whether the last write found the socket's buffer full.
    write_blocked: AtomicBool,
}

impl TimeoutStream {
    pub(super) fn connect(socket: String) -> io::Result<Self> {
        let (stream, _) = DefaultStream::connect(&ConnectAddress::Socket(socket))?;
        Ok(Self {
            stream,
            write_blocked: AtomicBool::new(false),
        })
    }

    fn record_write<T>(&self, written: io::Result<T>) -> io::Result<T> {
        let write_blocked =
            matches!(&written, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.write_blocked.store(write_blocked, Ordering::Relaxed);
        written
    }
}

impl Stream for TimeoutStream {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        // Called before each request, most of which only reach a buffer. Assume that the socket is
        // writable unless the last write found it full.
        if mode.writable() && !self.write_blocked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, mode.readable());
        flags.set(PollFlags::POLLOUT, mode.writable());
        let mut fds = [PollFd::new(self.as_fd(), flags)];
        if poll_until(&mut fds, Some(Instant::now() + IO_TIMEOUT))? {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    fn read(&self, buf: &mut [u8], fd_storage: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.stream.read(buf, fd_storage)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.record_write(self.stream.write(buf, fds))
    }

    fn write_vectored(
        &self,
        bufs: &[IoSlice<'_>],
        fds: &mut Vec<RawFdContainer>,
    ) -> io::Result<usize> {
        self.record_write(self.stream.write_vectored(bufs, fds))
    }
}

impl AsFd for TimeoutStream {
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
    fn poll_waits_for_a_full_socket_to_drain() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket").display().to_string();
        let listener = UnixListener::bind(&socket).unwrap();
        let client = TimeoutStream::connect(socket).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut written = 0;
        let write = || client.write(&CHUNK, &mut Vec::new());
        let full = loop {
            client.poll(PollMode::ReadAndWritable).unwrap();
            match write() {
                Ok(bytes) => written += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        thread::scope(|scope| {
            scope.spawn(|| server.read_exact(&mut vec![0; written]).unwrap());
            client.poll(PollMode::ReadAndWritable).unwrap();
            assert!(write().unwrap() > 0);
        });
    }
}
