//! Running a child as another user, who may reach only what all users can and a few named paths.
//!
//! ```text
//! Confinement::new     the user, and the mounts that paths below closed directories need
//! Confinement::apply   between fork and exec: mounts, groups, user
//! probe                forks and reports which step, or which right of the user, is missing
//! ```
//!
//! A path below a directory that the user cannot enter, such as `/root`, is made reachable in a
//! mount namespace of the child: an empty file system hides the closed directory, and the path is
//! mounted at the same place in it.

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed; nix does not wrap all of them"
)]

mod mounts;
mod probe;

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{self, ForkResult, Pid},
};
use tokio::process::Command;

use self::mounts::Mounts;
pub use self::probe::{Missing, probe};
use super::{session::Credentials, stat};

/// The longest wait for killed processes, which usually end within milliseconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// The time after which processes that are still alive are signalled again.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for the process that sends the signals.
const SIGNAL_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The user of a child, and the part of the file system that this user needs.
#[derive(Clone, Debug)]
pub struct Confinement {
    credentials: Credentials,
    mounts: Mounts,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Mounts = 1,
    Credentials = 2,
}

impl Confinement {
    /// Confines a child to the user. The user can reach `paths` even if they are below directories
    /// that the user cannot enter. Paths that do not exist are left out.
    #[must_use]
    pub fn new(credentials: Credentials, paths: &[&Path]) -> Self {
        Confinement {
            mounts: Mounts::plan(paths, &credentials),
            credentials,
        }
    }

    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Makes `command` start confined. The caller must be root.
    pub fn confine(&self, command: &mut Command) {
        let confinement = self.clone();
        // SAFETY: `apply` makes async-signal-safe calls only and does not allocate.
        unsafe {
            command.pre_exec(move || {
                let applied = confinement.apply();
                applied.map_err(|(_, errno)| io::Error::from(errno))
            });
        }
    }

    /// Mounts what the user needs, in a new mount namespace of the calling thread if anything is
    /// needed. The caller must be root.
    ///
    /// # Errors
    /// If something cannot be mounted.
    pub fn mount(&self) -> nix::Result<()> {
        self.mounts.apply()
    }

    /// Kills all processes of the user, and waits until they have ended, for some milliseconds and
    /// at most for [`KILL_TIMEOUT`]. Zombies have ended: their parent may reap them much later.
    /// Blocks.
    ///
    /// # Errors
    /// Fails if processes are left, and the signal could not be sent: no process can be started, or
    /// a process of the user has stopped it.
    pub fn kill_all(&self) -> io::Result<()> {
        self.kill_with(|| self.signal_all())
    }

    /// Kills all processes of the user with this sender, which is called again if it fails.
    fn kill_with(&self, mut signal_all: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        let mut failure = None;
        loop {
            if let Err(error) = signal_all() {
                failure = Some(error);
            }
            // Every process has the signal and can start no other one, unless it has ended the
            // sender before.
            let next_signal = deadline.min(Instant::now() + SIGNAL_INTERVAL);
            while Instant::now() < next_signal {
                if stat::living_of(&[self.credentials.uid]).is_empty() {
                    return Ok(());
                }
                rest();
            }
            if Instant::now() >= deadline {
                return failure.map_or(Ok(()), Err);
            }
        }
    }

    /// Sends SIGKILL to all processes of the user at once.
    fn signal_all(&self) -> io::Result<()> {
        // SAFETY: the child makes async-signal-safe calls only, does not allocate, and exits at
        // once.
        match unsafe { unistd::fork() }? {
            ForkResult::Child => {
                // The kernel signals all processes that the user may signal, but not the sender.
                if self.become_user().is_ok() {
                    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
                }
                // SAFETY: the call does not return.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => wait_or_kill(child, SIGNAL_TIMEOUT),
        }
    }

    /// Runs all steps in the calling process. It makes async-signal-safe calls only and does not
    /// allocate.
    fn apply(&self) -> Result<(), (Step, Errno)> {
        let failed = |step: Step| move |errno| (step, errno);
        // Mounts need the rights of root.
        self.mounts.apply().map_err(failed(Step::Mounts))?;
        self.become_user().map_err(failed(Step::Credentials))
    }

    fn become_user(&self) -> nix::Result<()> {
        unistd::setgroups(&self.credentials.groups)?;
        unistd::setgid(self.credentials.gid)?;
        unistd::setuid(self.credentials.uid)
    }
}

/// Waits until a child ends. After `timeout` it is killed: it may have been stopped by a process of
/// the user that it runs as.
fn wait_or_kill(child: Pid, timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    while waitpid(child, Some(WaitPidFlag::WNOHANG))? == WaitStatus::StillAlive {
        if Instant::now() > deadline {
            kill(child, Signal::SIGKILL)?;
            waitpid(child, None)?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        rest();
    }
    Ok(())
}

/// Waits for [`POLL_INTERVAL`]. It makes an async-signal-safe call only.
fn rest() {
    let interval = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()),
    };
    // SAFETY: the call reads one struct, and writes nothing.
    unsafe { libc::nanosleep(&raw const interval, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests;
