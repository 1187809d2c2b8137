//! A child that the program before has started, see `handover`.

use std::{io, os::fd::OwnedFd, process::ExitStatus};

use nix::{libc, unistd::Pid};
use tokio::io::{Interest, unix::AsyncFd};

use crate::system::process::session::pidfd;

/// A child of this process that tokio does not know.
pub(super) struct AdoptedProcess {
    pidfd: AsyncFd<OwnedFd>,
    /// The status after it was reaped.
    status: Option<ExitStatus>,
}

impl AdoptedProcess {
    /// Watches a child that is not reaped.
    ///
    /// # Errors
    /// Fails if there is none with this id.
    #[expect(
        unsafe_code,
        reason = "registering a bare descriptor is unsafe in tokio"
    )]
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let pidfd = pidfd::open(Pid::from_raw(pid))?;
        // SAFETY: the pidfd owns its descriptor and is not replaced while it is registered.
        let registered = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        Ok(AdoptedProcess {
            pidfd: registered?,
            status: None,
        })
    }

    /// Waits until it has ended. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            // A pidfd becomes readable when its process has ended, and stays so.
            self.pidfd.readable().await?.clear_ready();
        }
    }

    /// Returns the status if it has ended.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let options = libc::WEXITED | libc::WNOHANG;
            self.status = pidfd::wait(self.pidfd.get_ref(), options)?;
        }
        Ok(self.status)
    }
}
