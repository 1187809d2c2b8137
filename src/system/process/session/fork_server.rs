//! The fork server: a small process that forks the client programs.
//!
//! ```text
//! agent ── Setup, descriptors ──▶ fork server ── clone ──▶ new process ── exec ──▶ program
//!       ◀───────── pid ──────────                              │
//!       ◀──────────────── parent, reports, reaps ──────────────┘
//! ```
//!
//! A fork copies the page tables of the process, and afterwards each page that either of the two
//! writes to. For an agent of some 40 MiB that takes three times as long as the program itself. The
//! programs are children of the agent, not of the server, and outlive it.

use std::{
    io, mem,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{net, process::CommandExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc::{self, pid_t},
    unistd::{self, ForkResult, Pid},
};
use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    sync::{Mutex, MutexGuard},
    time,
};

use super::{
    StartError,
    fork_message::{connection, receive_reply, receive_request, send_reply, send_request},
    forked_pid::{self, ForkedPid},
    leader::{Leader, Origin, kill_and_reap, reap_later},
    pre_exec::{PreExec, Setup, reset_dispositions, to_start_error},
};
use crate::system::{
    process::{
        child::{self, on_spawner},
        core_dumps,
        stat::fork_count,
    },
    sync::detach_on_drop::DetachOnDrop,
};

/// The command of the server's process.
pub const COMMAND: &str = "fork-server";
/// The flag of the kernel. The constant of the C library's bindings is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// The new process is a child of the server's parent, and the kernel writes its pid.
const FORK_FLAGS: i32 = libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID;
/// Time for the server to receive a request and to fork.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a fork to end before the forks are counted. A scan of all processes takes as long.
const COUNT_TIMEOUT: Duration = Duration::from_millis(5);
/// Time for a killed server to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest time between two replacements of the server.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// The server, and what it counts.
static SERVER: Mutex<Slot> = Mutex::const_new(Slot {
    server: None,
    start_at: None,
    forks: 0,
});

/// The place of the server.
struct Slot {
    server: Option<ForkServer>,
    /// The earliest time to start another one. `None` if the agent starts none.
    start_at: Option<Instant>,
    /// The forks for programs of clients, by the server and by the agent.
    forks: u64,
}

/// A running server. It ends when this is dropped, or with the agent.
#[derive(Debug)]
struct ForkServer {
    socket: UnixStream,
    forked: ForkedPid,
    process: Child,
}

/// Starts the server. Another one is started in its place if it ends.
///
/// # Errors
/// Fails if its process cannot be started. The agent forks programs itself meanwhile.
pub(super) async fn start() -> io::Result<()> {
    let mut slot = SERVER.lock().await;
    slot.start_at = Some(Instant::now());
    slot.server = Some(ForkServer::start().await?);
    Ok(())
}

/// Forks a process that executes the program, without waiting for that.
///
/// # Errors
/// Fails if it cannot be forked; nothing runs then.
pub(super) async fn fork(setup: Setup, origin: Origin) -> Result<Leader, StartError> {
    let slot = SERVER.lock().await;
    // A caller that stopped waiting would leave its reply for the next one.
    let (leader, _slot) = DetachOnDrop::new(fork_in(slot, setup, origin)).await?;
    Ok(leader)
}

/// Returns the leader and the lock. If the caller has stopped waiting, the leader is dropped, which
/// kills it, before the lock is released.
async fn fork_in(
    mut slot: MutexGuard<'static, Slot>,
    setup: Setup,
    mut origin: Origin,
) -> Result<(Leader, MutexGuard<'static, Slot>), StartError> {
    slot.restart().await;
    if !origin.is_confined {
        origin.forks_before = ForkCount::of(&slot);
    }
    let pid = match slot.fork(&setup).await? {
        Some(pid) => pid,
        None => on_spawner(|| fork_agent(setup), kill_forked)
            .await?
            .map_err(to_fork_error)?,
    };
    slot.forks += 1;
    let leader = Leader::new(pid, origin).map_err(StartError::Exhausted)?;
    Ok((leader, slot))
}

/// Waits until no process is being forked.
pub async fn wait_for_fork() {
    drop(SERVER.lock().await);
}

fn to_fork_error(error: Errno) -> StartError {
    to_start_error(error as i32)
}

/// The number of forks at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForkCount {
    of_machine: u64,
    /// The part of them for programs of clients.
    of_clients: u64,
}

impl ForkCount {
    /// Returns `None` if the system does not provide it.
    fn of(slot: &Slot) -> Option<Self> {
        Some(ForkCount {
            of_machine: fork_count()?,
            of_clients: slot.forks,
        })
    }

    /// Whether it is certain that nothing was forked since but the first processes of programs of
    /// clients.
    pub(super) async fn only_clients_forked_since(self) -> bool {
        let Ok(slot) = time::timeout(COUNT_TIMEOUT, SERVER.lock()).await else {
            return false;
        };
        Self::of(&slot).is_some_and(|now| {
            let forks = now.of_machine.checked_sub(self.of_machine);
            forks == Some(now.of_clients - self.of_clients)
        })
    }
}

impl Slot {
    /// Forks a process with the server. Returns `None` if there is none, or if it has failed before
    /// it forked.
    async fn fork(&mut self, setup: &Setup) -> Result<Option<Pid>, StartError> {
        let Some(mut server) = self.server.take() else {
            return Ok(None);
        };
        match time::timeout(REPLY_TIMEOUT, server.fork(setup)).await {
            Ok(Ok(forked)) => {
                self.server = Some(server);
                forked.map(Some).map_err(to_fork_error)
            }
            Ok(Err(error)) => server.end_after(error).await,
            Err(elapsed) => server.end_after(elapsed.into()).await,
        }
    }

    /// Starts another server in place of one that has ended or failed.
    async fn restart(&mut self) {
        if let Some(status) = self.server.as_mut().and_then(ForkServer::end_status) {
            tracing::warn!(%status, "the fork server has ended");
            self.server = None;
        }
        let is_due = self.start_at.is_some_and(|time| time <= Instant::now());
        if self.server.is_none() && is_due {
            self.start_at = Some(Instant::now() + RESTART_INTERVAL);
            let started = ForkServer::start().await;
            self.server = started
                .inspect_err(|error| tracing::error!(%error, "cannot start the fork server"))
                .ok();
        }
    }
}

impl ForkServer {
    async fn start() -> io::Result<Self> {
        let (socket, other) = connection()?;
        let forked = ForkedPid::new()?;
        let memory = forked.descriptor()?;
        let process = on_spawner(|| Self::spawn(other.into(), memory), drop).await??;
        Ok(ForkServer {
            socket,
            forked,
            process,
        })
    }

    fn spawn(socket: OwnedFd, memory: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(child::OWN_PROGRAM);
        command
            .arg0("berth")
            .arg(COMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(socket)
            .stdout(memory)
            .stderr(Stdio::null())
            .process_group(0);
        child::die_with_parent(&mut command);
        command.spawn()
    }

    /// Returns how the process has ended, or `None` if it runs.
    fn end_status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// The outer error is one of the server.
    async fn fork(&mut self, setup: &Setup) -> io::Result<nix::Result<Pid>> {
        self.forked.clear()?;
        send_request(&mut self.socket, setup).await?;
        receive_reply(&mut self.socket).await
    }

    /// Ends a server that has failed. Returns the process that it has forked nevertheless.
    async fn end_after(mut self, error: io::Error) -> Result<Option<Pid>, StartError> {
        tracing::error!(%error, "the fork server has failed");
        // Fails if it has ended.
        let _ = self.process.kill();
        // It forks nothing any more once its end is closed, with or without an error.
        let mut late_reply = Vec::new();
        let closed = self.socket.read_to_end(&mut late_reply);
        let is_closed = time::timeout(END_TIMEOUT, closed).await.is_ok();
        let forked = self.forked.get();
        reap_later(Pid::from_raw(self.process.id().cast_signed()));
        match forked? {
            None if !is_closed => Err(StartError::Timeout),
            forked => Ok(forked),
        }
    }
}

/// Forks this process, to execute a program in its copy. Runs on the thread that starts children.
#[expect(
    unsafe_code,
    reason = "code that runs after fork must be async-signal-safe"
)]
fn fork_agent(setup: Setup) -> nix::Result<Pid> {
    let setup = PreExec::new(setup).ok_or(Errno::EINVAL)?;
    // SAFETY: the copy makes async-signal-safe calls only and does not allocate.
    match unsafe { unistd::fork() }? {
        ForkResult::Child => {
            reset_dispositions();
            setup.enter_cgroup_and_exec()
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Kills a forked process whose caller has stopped waiting.
fn kill_forked(forked: nix::Result<Pid>) {
    if let Ok(pid) = forked {
        kill_and_reap(pid, &Origin::default());
    }
}

/// Runs the server: forks programs for the agent until it closes its end of standard input.
/// Standard output is the memory for [`forked_pid`].
///
/// # Errors
/// Fails if a request cannot be received or answered.
pub fn run_fork_server() -> io::Result<()> {
    // Its memory has the environments of programs.
    core_dumps::disable()?;
    close_inherited();
    // Programs inherit what it ignores.
    reset_dispositions();
    let socket = net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let memory = forked_pid::map(&io::stdout())?;
    while let Some(setup) = receive_request(&socket)? {
        let forked = PreExec::new(setup).ok_or(Errno::EINVAL);
        let forked = forked.and_then(|setup| fork_for_parent(&setup, memory.as_mut_ptr().cast()));
        send_reply(&socket, forked)?;
    }
    Ok(())
}

/// Closes what the agent itself inherited without close-on-exec.
#[expect(unsafe_code, reason = "no wrapper for the system call")]
fn close_inherited() {
    // SAFETY: this process has opened nothing but its standard streams so far.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Forks a process that is a child of this process's parent. The kernel writes its pid.
fn fork_for_parent(setup: &PreExec, pid: *mut pid_t) -> nix::Result<Pid> {
    if let Some(cgroup) = setup.cgroup()
        && let Ok(pid) = fork_into_cgroup(setup, cgroup, pid)
    {
        return Ok(pid);
    }
    fork_outside_cgroup(setup, pid)
}

/// Forks a process in its cgroup. One that moves itself may wait 15 ms for the kernel.
#[expect(
    unsafe_code,
    reason = "no wrapper sets the parent and the cgroup of a fork"
)]
fn fork_into_cgroup(setup: &PreExec, cgroup: &OwnedFd, pid: *mut pid_t) -> nix::Result<Pid> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = u64::from(FORK_FLAGS.cast_unsigned()) | CLONE_INTO_CGROUP;
    arguments.parent_tid = pid as u64;
    arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    let size = size_of::<libc::clone_args>();
    // SAFETY: as in `fork_outside_cgroup`, and the arguments outlive the call.
    let forked = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    match Errno::result(forked)? {
        0 => setup.exec(),
        forked => to_pid(forked),
    }
}

#[expect(unsafe_code, reason = "no wrapper sets the parent of a fork")]
fn fork_outside_cgroup(setup: &PreExec, pid: *mut pid_t) -> nix::Result<Pid> {
    let flags = FORK_FLAGS | libc::SIGCHLD;
    // SAFETY: without a new stack this is a fork with another parent. This process has one thread,
    // so that the C library's functions work in the copy. The pid is mapped memory.
    let forked = unsafe { libc::syscall(libc::SYS_clone, flags, 0, pid, 0, 0) };
    match Errno::result(forked)? {
        0 => setup.enter_cgroup_and_exec(),
        forked => to_pid(forked),
    }
}

fn to_pid(number: libc::c_long) -> nix::Result<Pid> {
    let number = i32::try_from(number).map_err(|_| Errno::ERANGE)?;
    Ok(Pid::from_raw(number))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Starts a program in place of a server.
    async fn server(line: &str) -> ForkServer {
        let (socket, other) = connection().unwrap();
        let forked = ForkedPid::new().unwrap();
        let process = Command::new("sh")
            .args(["-c", line])
            .stdin(OwnedFd::from(other))
            .stdout(forked.descriptor().unwrap())
            .spawn()
            .unwrap();
        ForkServer {
            socket,
            forked,
            process,
        }
    }

    #[tokio::test]
    async fn process_of_a_server_that_ended_without_a_reply_is_known() {
        for (line, forked) in [
            ("head -c 7 >&2", None),
            (
                "head -c 7 >&2; printf abcd",
                Some(i32::from_ne_bytes(*b"abcd")),
            ),
        ] {
            let mut server = server(line).await;
            server.socket.write_all(b"request").await.unwrap();
            let mut rest = Vec::new();
            server.socket.read_to_end(&mut rest).await.unwrap();
            let ended = server.end_after(io::ErrorKind::UnexpectedEof.into()).await;
            assert_eq!(ended.unwrap(), forked.map(Pid::from_raw), "{line}");
        }
    }

    #[tokio::test]
    async fn server_that_does_not_answer_is_ended() {
        let server = server("exec sleep 1000").await;
        let ended = server.end_after(io::ErrorKind::TimedOut.into()).await;
        assert_eq!(ended.unwrap(), None);
    }
}
