//! The first process of a session: watched, signalled, and reaped explicitly.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    sync::Arc,
    thread,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        signal::{self, Signal},
        wait::waitpid,
    },
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::io::{Interest, unix::AsyncFd};

use super::{fork_count::ForkCount, pidfd};
use crate::system::process::{
    cgroup::{Cgroup, CgroupDirectory},
    stat::ProcStat,
};

/// Added to the signal number in the exit code of a process that a signal ended, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

/// The circumstances in which a leader was started.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// Holds the leader and everything that it starts.
    pub(super) cgroup: Option<Cgroup>,
    /// Whether no program that it starts has the rights to leave the cgroup.
    pub(super) is_confined: bool,
    pub(super) forks_before: Option<ForkCount>,
}

/// Kills a process group whose leader is not reaped, and the cgroup.
fn kill(leader: Pid, origin: &Origin) {
    let _ = signal::killpg(leader, Signal::SIGKILL);
    // It may not lead its group yet.
    let _ = signal::kill(leader, Signal::SIGKILL);
    if let Some(cgroup) = &origin.cgroup {
        let _ = cgroup.directory().kill();
    }
}

/// The first process of a session, or of a process group.
///
/// Until [`Leader::reap`] succeeds, the kernel gives its pid to no other process, session or
/// process group, so a signal to the group cannot reach a stranger. Dropping an unreaped leader
/// kills its group and its cgroup.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
    origin: Origin,
    state: Mutex<LeaderState>,
}

#[derive(Debug)]
struct LeaderState {
    /// The number of [`PidPin`]s.
    pins: usize,
    /// `None` once the leader is reaped.
    pidfd: Option<Arc<LeaderFd>>,
}

/// The descriptor of a leader.
#[derive(Debug)]
enum LeaderFd {
    Watched(AsyncFd<OwnedFd>),
    /// The leader had exited when it was opened, as short programs often have. The runtime would
    /// report that later.
    Exited(OwnedFd),
}

impl LeaderFd {
    #[expect(
        unsafe_code,
        reason = "registering a bare descriptor is unsafe in tokio"
    )]
    fn open(pid: Pid) -> io::Result<Self> {
        let pidfd = pidfd::open(pid)?;
        if exit_status(&pidfd)?.is_some() {
            return Ok(LeaderFd::Exited(pidfd));
        }
        // SAFETY: the pidfd owns its descriptor and is not replaced while it is registered.
        let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        Ok(LeaderFd::Watched(watched?))
    }

    fn get(&self) -> &OwnedFd {
        match self {
            LeaderFd::Watched(pidfd) => pidfd.get_ref(),
            LeaderFd::Exited(pidfd) => pidfd,
        }
    }

    /// Waits until the leader has exited, without reaping it.
    async fn exit_status(&self) -> io::Result<ExitStatus> {
        let pidfd = match self {
            LeaderFd::Watched(pidfd) => pidfd,
            LeaderFd::Exited(pidfd) => return exit_status(pidfd)?.ok_or(Errno::ECHILD.into()),
        };
        loop {
            let mut ready = pidfd.readable().await?;
            match exit_status(pidfd.get_ref())? {
                // The readiness stays for others that wait.
                Some(status) => return Ok(status),
                None => ready.clear_ready(),
            }
        }
    }
}

impl Leader {
    /// Takes ownership of a child that leads a process group and is not reaped.
    ///
    /// # Errors
    /// Fails if the process has no descriptor left; the child is killed then.
    pub fn of_child(pid: Pid) -> io::Result<Self> {
        Self::new(pid, Origin::default())
    }

    /// Does the same for a child that was started in these circumstances. If it fails, everything
    /// that was started is killed.
    pub(super) fn new(pid: Pid, origin: Origin) -> io::Result<Self> {
        match LeaderFd::open(pid) {
            Ok(pidfd) => Ok(Leader {
                pid,
                origin,
                state: Mutex::new(LeaderState {
                    pins: 0,
                    pidfd: Some(Arc::new(pidfd)),
                }),
            }),
            Err(error) => {
                kill_and_reap(pid, &origin);
                Err(error)
            }
        }
    }

    /// Records that the process is not in its cgroup.
    pub(super) fn set_unconfined(&mut self) {
        self.origin.is_confined = false;
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Returns the directory of its cgroup. It may be removed already.
    pub(in crate::system::process) fn cgroup(&self) -> Option<CgroupDirectory> {
        let cgroup = self.origin.cgroup.as_ref();
        cgroup.map(|cgroup| cgroup.directory().clone())
    }

    /// Waits until the leader has exited, without reaping it. Returns the exit code, or 128 plus
    /// the signal number.
    pub async fn exited(&self) -> io::Result<i32> {
        let status = self.exit_status().await?;
        let signal = status.signal().map(|signal| SIGNAL_EXIT_BASE + signal);
        status.code().or(signal).ok_or(Errno::EINVAL.into())
    }

    /// Waits until the leader has exited, without reaping it.
    pub async fn exit_status(&self) -> io::Result<ExitStatus> {
        let pidfd = self.state.lock().pidfd.clone();
        pidfd.ok_or(Errno::ECHILD)?.exit_status().await
    }

    /// Waits until the leader has exited or is reaped. The future does not keep the leader alive.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let pidfd = self.state.lock().pidfd.clone();
        async move {
            if let Some(pidfd) = pidfd {
                // Fails if it is reaped.
                let _ = pidfd.exit_status().await;
            }
        }
    }

    /// Whether the leader has exited.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        let pidfd = self.state.lock().pidfd.clone();
        pidfd.is_none_or(|pidfd| !matches!(exit_status(pidfd.get()), Ok(None)))
    }

    /// Whether the leader was killed when it was about to execute its program: while it searched
    /// for that, or while a slow file system provided it.
    #[must_use]
    pub fn was_killed_before_exec(&self) -> bool {
        ProcStat::of(self.pid.as_raw()).is_some_and(|stat| stat.ends_unexecuted)
    }

    /// Whether the leader has exited and it is certain that it has left no process behind.
    pub(in crate::system::process) fn has_left_nothing(&self) -> bool {
        if !self.has_exited() {
            return false;
        }
        let Origin {
            cgroup,
            is_confined,
            forks_before,
        } = &self.origin;
        let is_empty = |cgroup: &Cgroup| cgroup.directory().is_empty();
        if *is_confined && cgroup.as_ref().is_some_and(is_empty) {
            return true;
        }
        forks_before.is_some_and(ForkCount::only_clients_forked_since)
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

    /// Reaps the leader, and has its cgroup removed once no other process is in it. Returns
    /// `false` if the leader is pinned or has not exited.
    pub fn reap(&self) -> bool {
        let mut state = self.state.lock();
        let Some(pidfd) = &state.pidfd else {
            return true;
        };
        if state.pins > 0 {
            return false;
        }
        let waited = pidfd::wait(pidfd.get(), libc::WEXITED | libc::WNOHANG);
        let is_reaped = matches!(waited, Ok(Some(_)));
        if is_reaped {
            state.pidfd = None;
            if let Some(cgroup) = &self.origin.cgroup {
                cgroup.remove();
            }
        }
        is_reaped
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.state.lock().pidfd.is_none() {
            return;
        }
        kill(self.pid, &self.origin);
        if self.reap() {
            return;
        }
        reap_later(self.pid);
    }
}

/// Reaps a child that is about to exit and has started nothing.
pub(super) fn reap_failed(pid: Pid, origin: &Origin) {
    wait_for(pid);
    if let Some(cgroup) = &origin.cgroup {
        cgroup.remove();
    }
}

/// Kills a child that has no [`Leader`].
fn kill_and_reap(pid: Pid, origin: &Origin) {
    kill(pid, origin);
    reap_later(pid);
}

/// Reaps a killed child on a thread of its own: it takes a moment to die, and stays a zombie until
/// then.
fn reap_later(pid: Pid) {
    let reaper = thread::Builder::new().name("reaper".to_owned());
    let spawned = reaper.spawn(move || wait_for(pid));
    if let Err(error) = spawned {
        tracing::warn!(%error, %pid, "cannot reap a killed process");
    }
}

/// Waits until a child has exited, and reaps it.
fn wait_for(pid: Pid) {
    while waitpid(pid, None) == Err(Errno::EINTR) {}
}

/// Returns the status of an exited child, without reaping it.
fn exit_status(pidfd: &OwnedFd) -> io::Result<Option<ExitStatus>> {
    pidfd::wait(pidfd, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG)
}

/// Keeps the leader's pid from being reused.
#[derive(Debug)]
pub struct PidPin(Arc<Leader>);

impl Drop for PidPin {
    fn drop(&mut self) {
        self.0.state.lock().pins -= 1;
    }
}
