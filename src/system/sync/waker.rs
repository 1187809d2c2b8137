//! Interrupting a thread that waits for descriptors.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::eventfd::{EfdFlags, EventFd},
};

/// A wake-up signal for a thread that polls this descriptor. Clones wake the same thread. A wake-up
/// while the thread is busy takes effect at its next wait.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// # Errors
    /// Fails if no descriptor is available.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        // This fails only if the counter is at its maximum, and then a wake-up is pending.
        let _ = self.0.write(1);
    }

    /// Clears all pending wake-ups. Returns whether there was one.
    pub(in crate::system) fn take(&self) -> bool {
        !matches!(self.0.read(), Err(Errno::EAGAIN))
    }
}

/// Wakes the thread when it is dropped.
pub struct WakeOnDrop(pub Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
