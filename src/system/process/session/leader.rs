//! The first process of a session: watched, signalled, and reaped explicitly.

use std::{io, os::fd::OwnedFd, sync::Arc, thread};

use nix::{
    errno::Errno,
    libc,
    sys::signal::{self, Signal},
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::io::{Interest, unix::AsyncFd};

use super::pidfd;

/// A leader that is not yet registered with the async runtime. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct UnregisteredLeader(Option<(Pid, OwnedFd)>);

impl UnregisteredLeader {
    /// Takes ownership of a child that leads a session and is not reaped.
    ///
    /// # Errors
    /// Fails if no pidfd can be opened; the session's process group is killed and reaped then.
    pub(super) fn new(pid: Pid) -> io::Result<Self> {
        match pidfd::open(pid) {
            Ok(pidfd) => Ok(UnregisteredLeader(Some((pid, pidfd)))),
            Err(error) => {
                let _ = signal::killpg(pid, Signal::SIGKILL);
                let _ = nix::sys::wait::waitpid(pid, None);
                Err(error)
            }
        }
    }

    #[expect(
        unsafe_code,
        reason = "registering a bare descriptor is unsafe in tokio"
    )]
    pub(super) fn register(mut self) -> io::Result<Leader> {
        let Some((pid, pidfd)) = self.0.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // SAFETY: the pidfd owns its descriptor and is not replaced while it is registered.
        let registered = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let pidfd = registered.map_err(|error| {
            let (pidfd, cause) = error.into_parts();
            drop(UnregisteredLeader(Some((pid, pidfd))));
            cause
        })?;
        Ok(Leader {
            pid,
            state: Mutex::new(LeaderState {
                pins: 0,
                pidfd: Some(Arc::new(pidfd)),
            }),
        })
    }
}

impl Drop for UnregisteredLeader {
    fn drop(&mut self) {
        if let Some((pid, pidfd)) = self.0.take() {
            let _ = signal::killpg(pid, Signal::SIGKILL);
            let _ = pidfd::wait(&pidfd, libc::WEXITED);
        }
    }
}

/// The first process of a session.
///
/// Until [`Leader::reap`] succeeds, the kernel gives its pid to no other process, session or
/// process group, so a signal to the group cannot reach a stranger. Dropping an unreaped leader
/// kills its group.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
    state: Mutex<LeaderState>,
}

#[derive(Debug)]
struct LeaderState {
    /// The number of [`PidPin`]s.
    pins: usize,
    /// `None` once the leader is reaped.
    pidfd: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Leader {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Waits until the leader has exited, without reaping it. Returns the exit code, or 128 plus
    /// the signal number.
    pub async fn exited(&self) -> io::Result<i32> {
        let pidfd = self.state.lock().pidfd.clone();
        let pidfd = pidfd.ok_or(Errno::ECHILD)?;
        let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        loop {
            let mut ready = pidfd.readable().await?;
            match pidfd::wait(pidfd.get_ref(), options)? {
                Some(code) => return Ok(code),
                None => ready.clear_ready(),
            }
        }
    }

    /// Sends `signal` to the leader's process group, if any of it is left.
    pub fn signal(&self, signal: Signal) {
        let state = self.state.lock();
        if state.pidfd.is_some() {
            let _ = signal::killpg(self.pid, signal);
        }
    }

    /// Prevents the leader from being reaped. Returns `None` if it is reaped already.
    #[must_use]
    pub fn pin(leader: &Arc<Self>) -> Option<PidPin> {
        let mut state = leader.state.lock();
        state.pidfd.as_ref()?;
        state.pins += 1;
        drop(state);
        Some(PidPin(leader.clone()))
    }

    /// Reaps the leader. Returns `false` if it is pinned or has not exited.
    pub fn reap(&self) -> bool {
        let mut state = self.state.lock();
        let Some(pidfd) = &state.pidfd else {
            return true;
        };
        if state.pins > 0 {
            return false;
        }
        let waited = pidfd::wait(pidfd.get_ref(), libc::WEXITED | libc::WNOHANG);
        let is_reaped = matches!(waited, Ok(Some(_)));
        if is_reaped {
            state.pidfd = None;
        }
        is_reaped
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        if self.reap() {
            return;
        }
        let Some(pidfd) = self.state.lock().pidfd.take() else {
            return;
        };
        // The killed process takes a moment to die and stays a zombie until it is waited for.
        let reaper = thread::Builder::new().name("reaper".to_owned());
        let spawned = reaper.spawn(move || pidfd::wait(pidfd.get_ref(), libc::WEXITED));
        if let Err(error) = spawned {
            tracing::warn!(%error, pid = self.pid(), "cannot reap a killed process");
        }
    }
}

/// Keeps the leader's pid from being reused.
#[derive(Debug)]
pub struct PidPin(Arc<Leader>);

impl Drop for PidPin {
    fn drop(&mut self) {
        self.0.state.lock().pins -= 1;
    }
}
