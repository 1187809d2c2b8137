//! Waiting for descriptors on a thread that does nothing else meanwhile.

use std::{io, os::fd::BorrowedFd, time::Instant};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};

/// Waits until one of the requested events occurs, at most until `deadline`. Returns whether one
/// occurred.
pub(in crate::system) fn poll_until(
    fds: &mut [PollFd],
    deadline: Option<Instant>,
) -> io::Result<bool> {
    loop {
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match ppoll(fds, timeout.map(TimeSpec::from_duration), None) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until one of `fds` is readable, at most until `deadline`. Returns which ones are.
pub(in crate::system) fn readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    poll_until(&mut polled, deadline)?;
    Ok(polled.map(|fd| fd.any().unwrap_or(true)))
}
