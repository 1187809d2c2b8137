//! Waiting for descriptors, on a thread that has nothing else to do.

use std::{io, os::fd::BorrowedFd, time::Instant};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};

/// Waits until something happens that is asked for, at most until `deadline`; says whether it did.
pub fn poll_until(fds: &mut [PollFd], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match ppoll(fds, left.map(TimeSpec::from_duration), None) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until one of them can be read, at most until `deadline`; tells which.
pub fn readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    poll_until(&mut polled, deadline)?;
    Ok(polled.map(|fd| fd.any().unwrap_or(true)))
}
