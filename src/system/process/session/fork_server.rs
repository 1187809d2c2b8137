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
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    unistd::{self, ForkResult, Pid},
};
use parking_lot::Mutex;

use super::{
    StartError,
    exec_status::UnregisteredExecStatus,
    fork_message::{receive_reply, receive_request, send_reply, send_request},
    leader::{Origin, UnregisteredLeader},
    pre_exec::{PreExec, Setup, to_start_error},
};
use crate::system::process::{child, core_dumps, stat::fork_count};

/// The command of the server's process.
pub const COMMAND: &str = "fork-server";
/// The flag of the kernel. The constant of the C library's bindings is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Time for the server to receive a request and to fork.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest time between two replacements of the server.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// The server. Only the thread that starts children uses it.
static SERVER: Mutex<Slot> = Mutex::new(Slot {
    server: None,
    start_at: None,
});

/// The place of the server.
struct Slot {
    server: Option<ForkServer>,
    /// The earliest time to start another one. `None` if the agent starts none.
    start_at: Option<Instant>,
}

/// A running server. It ends when this is dropped, or with the agent.
#[derive(Debug)]
struct ForkServer {
    socket: UnixStream,
    process: Child,
}

/// Starts the server on this thread, which must be the one that starts children. Another one is
/// started in its place if it ends.
///
/// # Errors
/// Fails if its process cannot be started. The agent forks programs itself meanwhile.
pub(super) fn start() -> io::Result<()> {
    let mut slot = SERVER.lock();
    slot.start_at = Some(Instant::now());
    slot.server = Some(ForkServer::start()?);
    Ok(())
}

/// Forks a process that executes the program, and waits until it leads its session.
///
/// # Errors
/// Fails if it cannot be forked or set up; nothing runs then.
pub(super) fn fork(
    mut setup: Setup,
    mut origin: Origin,
    status: &mut UnregisteredExecStatus,
) -> Result<UnregisteredLeader, StartError> {
    let mut slot = SERVER.lock();
    slot.restart();
    if !(origin.is_confined && origin.cgroup.is_some()) {
        origin.forks_before = fork_count();
    }
    let forked = match slot.server.as_ref().map(|server| server.fork(&setup)) {
        None => fork_here(setup),
        Some(Ok(forked)) => {
            drop(setup);
            forked
        }
        Some(Err(error)) => {
            tracing::error!(%error, "the fork server has failed");
            slot.end_server();
            drop(setup.status);
            // It may have forked before.
            if let Some(pid) = status.pid()? {
                return wait_until_set_up(lead(pid, origin)?, status);
            }
            let next = UnregisteredExecStatus::pipe().map_err(StartError::Exhausted)?;
            (*status, setup.status) = next;
            fork_here(setup)
        }
    };
    drop(slot);
    let pid = forked.map_err(|error| to_start_error(error as i32))?;
    let leader = lead(pid, origin)?;
    status.pid()?;
    wait_until_set_up(leader, status)
}

fn lead(pid: Pid, origin: Origin) -> Result<UnregisteredLeader, StartError> {
    UnregisteredLeader::new(pid, origin).map_err(StartError::Exhausted)
}

/// Waits until a new process is set up. It is killed if this fails.
fn wait_until_set_up(
    mut leader: UnregisteredLeader,
    status: &mut UnregisteredExecStatus,
) -> Result<UnregisteredLeader, StartError> {
    if !status.wait_until_set_up()? {
        tracing::warn!("cannot move a process into its cgroup");
        leader.set_unconfined();
    }
    Ok(leader)
}

impl Slot {
    /// Ends a server that does not answer.
    fn end_server(&mut self) {
        if let Some(server) = self.server.take() {
            server.end();
        }
    }

    /// Starts another server in place of one that has ended or failed.
    fn restart(&mut self) {
        if let Some(status) = self.server.as_mut().and_then(ForkServer::end_status) {
            tracing::warn!(%status, "the fork server has ended");
            self.server = None;
        }
        let is_due = self.start_at.is_some_and(|time| time <= Instant::now());
        if self.server.is_none() && is_due {
            self.start_at = Some(Instant::now() + RESTART_INTERVAL);
            let started = ForkServer::start();
            self.server = started
                .inspect_err(|error| tracing::error!(%error, "cannot start the fork server"))
                .ok();
        }
    }
}

impl ForkServer {
    fn start() -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
        socket.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let mut command = Command::new(child::OWN_PROGRAM);
        command
            .arg0("berth")
            .arg(COMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(other))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        child::die_with_parent(&mut command);
        let process = command.spawn()?;
        Ok(ForkServer { socket, process })
    }

    /// Returns how the process has ended, or `None` if it runs.
    fn end_status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// The outer error is one of the server.
    fn fork(&self, setup: &Setup) -> io::Result<nix::Result<Pid>> {
        send_request(&self.socket, setup)?;
        receive_reply(&self.socket)
    }

    /// Kills the process. It may take a while to die, and is reaped elsewhere.
    fn end(mut self) {
        // Fails if it has ended.
        let _ = self.process.kill();
        let reaper = thread::Builder::new().name("reaper".to_owned());
        if let Err(error) = reaper.spawn(move || self.reap()) {
            tracing::warn!(%error, "cannot reap the fork server");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "runs on a thread of its own")]
    fn reap(mut self) {
        let _ = self.process.wait();
    }
}

#[expect(
    unsafe_code,
    reason = "code that runs after fork must be async-signal-safe"
)]
fn fork_here(setup: Setup) -> nix::Result<Pid> {
    let setup = PreExec::new(setup).ok_or(Errno::EINVAL)?;
    // SAFETY: `PreExec::exec` makes async-signal-safe calls only and does not allocate.
    match unsafe { unistd::fork() }? {
        ForkResult::Child => setup.enter_cgroup_and_exec(),
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Runs the server: forks programs for the agent until it closes its end of standard input.
///
/// # Errors
/// Fails if a request cannot be received or answered.
pub fn run_fork_server() -> io::Result<()> {
    // Its memory has the environments of programs.
    core_dumps::disable()?;
    close_inherited();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    while let Some(setup) = receive_request(&socket)? {
        let forked = PreExec::new(setup).ok_or(Errno::EINVAL);
        let forked = forked.and_then(|setup| fork_for_parent(&setup));
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

/// Forks a process that is a child of this process's parent.
fn fork_for_parent(setup: &PreExec) -> nix::Result<Pid> {
    if let Some(cgroup) = setup.cgroup()
        && let Ok(pid) = fork_into_cgroup(setup, cgroup)
    {
        return Ok(pid);
    }
    fork_outside_cgroup(setup)
}

/// Forks a process in its cgroup. One that moves itself may wait 15 ms for the kernel.
#[expect(
    unsafe_code,
    reason = "no wrapper sets the parent and the cgroup of a fork"
)]
fn fork_into_cgroup(setup: &PreExec, cgroup: &OwnedFd) -> nix::Result<Pid> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = u64::from(libc::CLONE_PARENT.cast_unsigned()) | CLONE_INTO_CGROUP;
    arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    let size = size_of::<libc::clone_args>();
    // SAFETY: as in `fork_outside_cgroup`, and the arguments outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    match Errno::result(pid)? {
        0 => setup.exec(),
        pid => to_pid(pid),
    }
}

#[expect(unsafe_code, reason = "no wrapper sets the parent of a fork")]
fn fork_outside_cgroup(setup: &PreExec) -> nix::Result<Pid> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without a new stack this is a fork with another parent. This process has one thread,
    // so that the C library's functions work in the copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match Errno::result(pid)? {
        0 => setup.enter_cgroup_and_exec(),
        pid => to_pid(pid),
    }
}

fn to_pid(number: libc::c_long) -> nix::Result<Pid> {
    let number = i32::try_from(number).map_err(|_| Errno::ERANGE)?;
    Ok(Pid::from_raw(number))
}
