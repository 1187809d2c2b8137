//! Calling a thread that waits for descriptors.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::eventfd::{EfdFlags, EventFd},
};

/// Clones call the same thread. A call while it does not wait is kept for its next wait.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    pub fn wake(&self) {
        // Fails only where calls without number are kept already.
        let _ = self.0.write(1);
    }

    /// Takes all calls that are kept; says whether there was one.
    pub(in crate::system) fn take(&self) -> bool {
        !matches!(self.0.read(), Err(Errno::EAGAIN))
    }
}

/// Calls the thread when it is dropped.
pub struct Bell(pub Waker);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
