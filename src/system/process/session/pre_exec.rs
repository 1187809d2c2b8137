//! The setup of a new process between `fork` and `exec`.
//!
//! The setup runs in the memory of the agent while other threads of the agent run. So it makes
//! system calls only, allocates nothing, and does not call those functions of the C library that
//! concern all threads, such as `setuid`.
//!
//! From the change of its user until `exec`, that user may signal the new process. It holds no
//! descriptor of the agent then. Its signals are blocked, from before the fork, until it cannot
//! write a core file any more, and a process that is stopped is killed by its own timer.

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed; nix does not wrap all of them"
)]

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    ptr,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::{self, SigSet, SigmaskHow, Signal},
    },
    unistd::{self, Gid, Pid},
};

use super::{
    Credentials, StartError,
    dispositions::{all_signals, reset_signal},
    exec_image::ExecImage,
    fork_report::ForkReport,
};
use crate::system::process::mount_namespace::MountNamespace;

/// Time for a new process to execute its program. The user that it runs as may stop it before.
pub const EXEC_TIMEOUT: Duration = Duration::from_secs(5);
/// The OOM score of client programs. The kernel kills them before the browser and its tabs, and
/// long before the agent.
const OOM_SCORE_ADJ: &[u8] = b"800";
/// The id that leaves the group of a file unchanged.
const UNCHANGED: libc::gid_t = libc::gid_t::MAX;
/// Distance between the error codes of two steps, larger than any `errno`.
const CODES_PER_STEP: i32 = 100_000;

/// The step that failed. The error reaches the agent as a single number: step and `errno` combined.
#[derive(Clone, Copy)]
enum Step {
    Session = 1,
    Credentials = 2,
    Directory = 3,
    Namespace = 4,
}

impl Step {
    fn failed(self) -> impl Fn(Errno) -> i32 {
        move |errno| self as i32 * CODES_PER_STEP + errno as i32
    }
}

/// Converts the code of a failed step, or the `errno` of a failed `exec`.
pub(super) fn to_start_error(code: i32) -> StartError {
    let cause = io::Error::from_raw_os_error(code % CODES_PER_STEP);
    match code / CODES_PER_STEP {
        1 => StartError::Other(cause),
        2 => StartError::Credentials(cause),
        3 => StartError::Directory(cause),
        4 => StartError::Namespace(cause),
        _ if is_exhausted(Errno::from_raw(code)) => StartError::Exhausted(cause),
        _ => StartError::Program(cause),
    }
}

/// Converts the error of a failed fork.
pub(super) fn to_fork_error(errno: Errno) -> StartError {
    match is_exhausted(errno) {
        true => StartError::Exhausted(errno.into()),
        false => StartError::Other(errno.into()),
    }
}

fn is_exhausted(errno: Errno) -> bool {
    let exhausted = [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE];
    exhausted.contains(&errno)
}

/// The user that a process changes to.
pub(super) struct NewUser {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl From<Credentials> for NewUser {
    fn from(Credentials { uid, gid, groups }: Credentials) -> Self {
        NewUser {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }
}

impl NewUser {
    /// Changes the user of this process, which then cannot write a core file, whatever the system's
    /// setting for processes that change their user.
    fn become_user(&self) -> nix::Result<()> {
        let (uid, gid) = (self.uid, self.gid);
        let (count, groups) = (self.groups.len(), self.groups.as_ptr());
        // Directly: the C library changes the user of all threads, which it knows from memory.
        // SAFETY: the kernel reads as many groups as there are.
        unsafe {
            Errno::result(libc::syscall(libc::SYS_setgroups, count, groups))?;
            Errno::result(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
            Errno::result(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        }
        prctl::set_dumpable(false)
    }
}

/// The system call that has forked a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ForkedBy {
    /// The process is in its cgroup, if it has one, and has no handlers of signals.
    Clone3,
    Clone,
}

/// The program and the setup of one new process.
pub(super) struct PreExec {
    pub(super) image: ExecImage,
    pub(super) directory: CString,
    /// The standard input, output and error.
    pub(super) stdio: [OwnedFd; 3],
    /// The directory of the cgroup to start in.
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) namespace: Option<MountNamespace>,
    /// The pid of the parent.
    pub(super) parent: Pid,
    /// Whether standard input is to become the controlling terminal.
    pub(super) has_terminal: bool,
    /// The first of the standard streams that are pipes of this process alone.
    pub(super) first_pipe: RawFd,
    /// `None` keeps the agent's own.
    pub(super) user: Option<NewUser>,
    pub(super) can_gain_rights: bool,
    /// Whether to start in `/` if the directory cannot be entered.
    pub(super) falls_back_to_root: bool,
    /// The limit on open files from before the agent raised its own.
    pub(super) open_files: Option<(libc::rlim_t, libc::rlim_t)>,
    /// The signals that the program would ignore, as the agent does.
    pub(super) ignored_signals: &'static [i32],
    pub(super) report: ForkReport,
}

impl PreExec {
    /// Runs all steps and executes the program. Reports a failure and exits.
    pub(super) fn exec(&self, forked_by: ForkedBy) -> ! {
        let code = match self.set_up(forked_by) {
            Ok(is_in_cgroup) => {
                self.report.set_executing(is_in_cgroup);
                self.image.exec() as i32
            }
            Err(code) => code,
        };
        self.report.set_failed(code);
        // SAFETY: it runs no code of this program.
        unsafe { libc::_exit(1) }
    }

    /// Returns whether the process is in its cgroup.
    fn set_up(&self, forked_by: ForkedBy) -> Result<bool, i32> {
        kill_at_timeout().map_err(|errno| match errno {
            // Without a step, an exhausted resource.
            Errno::EAGAIN => Errno::EAGAIN as i32,
            _ => Step::Session.failed()(errno),
        })?;
        // Before the change of the user, because it needs the rights of the agent's.
        let is_in_cgroup = forked_by == ForkedBy::Clone3 || self.enter_cgroup();
        self.connect_streams().map_err(Step::Session.failed())?;
        if let Some(namespace) = &self.namespace {
            namespace.enter().map_err(Step::Namespace.failed())?;
        }
        // Soon, because a file that was just written can be executed only when it is closed.
        if let Err(errno) = close_descriptors()
            && self.user.is_some()
        {
            return Err(Step::Session.failed()(errno));
        }
        match forked_by {
            ForkedBy::Clone3 => self.ignored_signals.iter().copied().for_each(reset_signal),
            ForkedBy::Clone => all_signals().for_each(reset_signal),
        }
        self.start_session().map_err(Step::Session.failed())?;
        set_oom_score();
        if let Some((soft, hard)) = self.open_files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(Step::Session.failed())?;
        }
        if let Some(user) = &self.user {
            self.give_pipes_to(user)
                .and_then(|()| user.become_user())
                .map_err(Step::Credentials.failed())?;
        }
        if !self.can_gain_rights {
            prctl::set_no_new_privs().map_err(Step::Credentials.failed())?;
        }
        self.die_with_parent().map_err(Step::Session.failed())?;
        self.enter_directory().map_err(Step::Directory.failed())?;
        unblock_signals().map_err(Step::Session.failed())?;
        Ok(is_in_cgroup)
    }

    /// Moves into the cgroup, if there is one. Returns whether it has: outside of it the process is
    /// found by scans of `/proc`.
    fn enter_cgroup(&self) -> bool {
        let Some(cgroup) = &self.cgroup else {
            return true;
        };
        // SAFETY: the descriptor is open, the path ends with NUL, and the bytes are static. `0`
        // means the caller. The opened file is closed with all others.
        unsafe {
            let flags = libc::O_WRONLY | libc::O_CLOEXEC;
            let procs = libc::openat(cgroup.as_raw_fd(), c"cgroup.procs".as_ptr(), flags);
            procs >= 0 && libc::write(procs, c"0".as_ptr().cast(), 1) == 1
        }
    }

    /// Makes the standard streams what they are to be. The descriptors have other numbers than
    /// these: every process of the agent has all three in use.
    fn connect_streams(&self) -> nix::Result<()> {
        for (number, stream) in (0..).zip(&self.stdio) {
            // SAFETY: the call accesses no memory, and the number has no owner in this process.
            Errno::result(unsafe { libc::dup2(stream.as_raw_fd(), number) })?;
        }
        Ok(())
    }

    fn start_session(&self) -> nix::Result<()> {
        unistd::setsid()?;
        if self.has_terminal {
            // SAFETY: descriptor 0 is the terminal, and the call accesses no memory.
            Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
        }
        Ok(())
    }

    /// Lets the new user open its standard streams by name, such as `/dev/stdout`.
    fn give_pipes_to(&self, user: &NewUser) -> nix::Result<()> {
        for pipe in self.first_pipe..=libc::STDERR_FILENO {
            // SAFETY: the call accesses no memory. The group stays the agent's.
            Errno::result(unsafe { libc::fchown(pipe, user.uid, UNCHANGED) })?;
        }
        Ok(())
    }

    /// Requests SIGKILL for the death of the parent. A change of user resets this request, so it
    /// must come last.
    fn die_with_parent(&self) -> nix::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the request took effect.
        match unistd::getppid() == self.parent {
            true => Ok(()),
            false => Err(Errno::ESRCH),
        }
    }

    fn enter_directory(&self) -> nix::Result<()> {
        match unistd::chdir(self.directory.as_c_str()) {
            Err(_) if self.falls_back_to_root => unistd::chdir(c"/"),
            entered => entered,
        }
    }
}

fn unblock_signals() -> nix::Result<()> {
    signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Closes all descriptors but the standard streams, among them those that the agent itself
/// inherited.
///
/// # Errors
/// Fails with kernels before 5.9. Descriptors without close-on-exec then pass on to the program.
fn close_descriptors() -> nix::Result<()> {
    let (first, last, flags) = (3, libc::c_uint::MAX, 0);
    // SAFETY: the call accesses no memory, and this process uses none of these descriptors.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Has the kernel kill this process if it does not execute its program in time, which ends the
/// timer.
fn kill_at_timeout() -> nix::Result<()> {
    // SAFETY: all zeros is a valid value of these plain structs.
    let (mut event, mut time): (libc::sigevent, libc::itimerspec) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGKILL;
    time.it_value.tv_sec = EXEC_TIMEOUT.as_secs().cast_signed();
    let mut timer: libc::c_int = 0;
    let create = libc::SYS_timer_create;
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: the kernel reads the struct and writes the number of the timer.
    let created = unsafe { libc::syscall(create, clock, &raw const event, &raw mut timer) };
    Errno::result(created)?;
    let set = libc::SYS_timer_settime;
    let (relative, old) = (0, ptr::null_mut::<libc::itimerspec>());
    // SAFETY: the kernel reads the struct.
    Errno::result(unsafe { libc::syscall(set, timer, relative, &raw const time, old) })?;
    Ok(())
}

fn set_oom_score() {
    // SAFETY: the path ends with NUL, the bytes are static, and the descriptor is closed again.
    unsafe {
        let file = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if file >= 0 {
            libc::write(file, OOM_SCORE_ADJ.as_ptr().cast(), OOM_SCORE_ADJ.len());
            libc::close(file);
        }
    }
}
