//! The setup of a new process between `fork` and `exec`.
//!
//! From the change of its user until `exec`, that user may stop the new process. It holds no
//! descriptor of the agent then, and no thread waits for it.

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed; nix does not wrap all of them"
)]

use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::{self, SigSet, SigmaskHow, Signal},
    },
    unistd,
};
use serde::{Deserialize, Serialize};

use super::{
    Credentials, StartError,
    exec_image::{ExecImage, ProgramStrings},
    exec_status::{OUTSIDE_CGROUP, Report},
};
use crate::system::process::mount_namespace::MountNamespace;

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

/// Converts the code of a failed step, or the `errno` of a failed `fork` or `exec`.
pub(super) fn to_start_error(code: i32) -> StartError {
    let cause = io::Error::from_raw_os_error(code % CODES_PER_STEP);
    match code / CODES_PER_STEP {
        1 => StartError::Other(cause),
        2 => StartError::Credentials(cause),
        3 => StartError::Directory(cause),
        4 => StartError::Namespace(cause),
        _ => match Errno::from_raw(code) {
            Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => {
                StartError::Exhausted(cause)
            }
            _ => StartError::Program(cause),
        },
    }
}

/// The program and the setup of one new process.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) strings: ProgramStrings,
    /// The standard input, output and error.
    pub(super) stdio: [OwnedFd; 3],
    /// Receives the reports. It is closed by `exec`.
    pub(super) status: OwnedFd,
    /// The directory of the cgroup to start in.
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) namespace: Option<MountNamespace>,
    pub(super) plan: Plan,
}

/// The parts of a [`Setup`] that are neither strings nor descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The pid of the parent.
    pub(super) parent: i32,
    /// Whether standard input is to become the controlling terminal.
    pub(super) has_terminal: bool,
    /// The first of the standard streams that are pipes of this process alone.
    pub(super) first_pipe: RawFd,
    pub(super) credentials: Option<Credentials>,
    pub(super) can_gain_rights: bool,
    /// Whether to start in `/` if the directory cannot be entered.
    pub(super) falls_back_to_root: bool,
    /// The limit on open files from before the agent raised its own.
    pub(super) open_files: Option<(libc::rlim_t, libc::rlim_t)>,
}

/// A [`Setup`] that is prepared for the time after the fork, when no memory may be allocated.
pub(super) struct PreExec {
    image: ExecImage,
    setup: Setup,
}

impl PreExec {
    /// Returns `None` if there is no program.
    pub(super) fn new(mut setup: Setup) -> Option<Self> {
        Some(PreExec {
            image: ExecImage::new(mem::take(&mut setup.strings))?,
            setup,
        })
    }

    /// The directory of the cgroup that the new process has to be in.
    pub(super) fn cgroup(&self) -> Option<&OwnedFd> {
        self.setup.cgroup.as_ref()
    }

    /// Moves into the cgroup, and continues as [`PreExec::exec`].
    pub(super) fn enter_cgroup_and_exec(&self) -> ! {
        // Before the change of the user, because it needs the rights of the agent's.
        if !self.enter_cgroup() {
            self.report(OUTSIDE_CGROUP);
        }
        self.exec()
    }

    /// Runs all steps and executes the program, in the process's cgroup. Reports a failure and
    /// exits. It makes async-signal-safe calls only and does not allocate.
    pub(super) fn exec(&self) -> ! {
        let code = match self.set_up() {
            Ok(()) => self.image.exec() as i32,
            Err(code) => code,
        };
        self.report(-code);
        // SAFETY: it runs no code of this program.
        unsafe { libc::_exit(1) }
    }

    fn report(&self, report: Report) {
        let report = report.to_ne_bytes();
        let status = self.setup.status.as_raw_fd();
        // SAFETY: the descriptor is open, and the bytes outlive the call. `_exit` runs no code of
        // this program.
        unsafe {
            if libc::write(status, report.as_ptr().cast(), report.len()) < 0 {
                // The agent does not wait for this process any more.
                libc::_exit(1);
            }
        }
    }

    fn set_up(&self) -> Result<(), i32> {
        self.connect_streams().map_err(Step::Session.failed())?;
        self.start_session().map_err(Step::Session.failed())?;
        set_oom_score();
        if let Some((soft, hard)) = self.setup.plan.open_files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(Step::Session.failed())?;
        }
        if let Some(namespace) = &self.setup.namespace {
            namespace.enter().map_err(Step::Namespace.failed())?;
        }
        self.close_descriptors();
        if let Some(credentials) = &self.setup.plan.credentials {
            self.give_pipes_to(credentials)
                .and_then(|()| apply(credentials))
                .map_err(Step::Credentials.failed())?;
        }
        if !self.setup.plan.can_gain_rights {
            prctl::set_no_new_privs().map_err(Step::Credentials.failed())?;
        }
        self.die_with_parent().map_err(Step::Session.failed())?;
        self.enter_directory().map_err(Step::Directory.failed())
    }

    /// Moves into the cgroup, if there is one. Returns whether it has: outside of it the process is
    /// found by scans of `/proc`.
    fn enter_cgroup(&self) -> bool {
        let Some(cgroup) = &self.setup.cgroup else {
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
        for (number, stream) in (0..).zip(&self.setup.stdio) {
            // SAFETY: the call accesses no memory, and the number has no owner in this process.
            Errno::result(unsafe { libc::dup2(stream.as_raw_fd(), number) })?;
        }
        Ok(())
    }

    fn start_session(&self) -> nix::Result<()> {
        signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        unistd::setsid()?;
        if self.setup.plan.has_terminal {
            // SAFETY: descriptor 0 is the terminal, and the call accesses no memory.
            Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
        }
        Ok(())
    }

    /// Closes all descriptors but the standard streams and that of the status, among them those
    /// that the agent itself inherited. Kernels before 5.9 do not support this: descriptors without
    /// close-on-exec pass on to the program there.
    fn close_descriptors(&self) {
        let status = self.setup.status.as_raw_fd().cast_unsigned();
        for (first, last) in [(3, status - 1), (status + 1, libc::c_uint::MAX)] {
            if first <= last {
                // SAFETY: the call accesses no memory, and nothing uses these descriptors any more.
                unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            }
        }
    }

    /// Lets the new user open its standard streams by name, such as `/dev/stdout`.
    fn give_pipes_to(&self, credentials: &Credentials) -> nix::Result<()> {
        for pipe in self.setup.plan.first_pipe..=libc::STDERR_FILENO {
            // SAFETY: the call accesses no memory. The group stays the agent's.
            Errno::result(unsafe { libc::fchown(pipe, credentials.uid.as_raw(), UNCHANGED) })?;
        }
        Ok(())
    }

    /// Requests SIGKILL for the death of the parent. A change of user resets this request, so it
    /// must come last.
    fn die_with_parent(&self) -> nix::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the request took effect.
        match unistd::getppid().as_raw() == self.setup.plan.parent {
            true => Ok(()),
            false => Err(Errno::ESRCH),
        }
    }

    fn enter_directory(&self) -> nix::Result<()> {
        match unistd::chdir(self.image.directory()) {
            Err(_) if self.setup.plan.falls_back_to_root => unistd::chdir(c"/"),
            entered => entered,
        }
    }
}

/// Sets all signals to their default actions, if they allow that. Those that a process ignores
/// would be ignored by the programs that it forks as well.
pub(super) fn reset_dispositions() {
    for number in 1..=libc::SIGRTMAX() {
        reset_disposition(number);
    }
}

/// Makes the system call directly: the C library refuses to change the signals it reserves for
/// itself, and its `posix_spawn` starts programs (the agent may be one) with these ignored.
fn reset_disposition(number: i32) {
    // In the kernel's struct, no handler, no flags and an empty mask are all zeros.
    let default = [0_u64; 4];
    // SAFETY: the kernel reads a struct not longer than the array and writes nothing.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            number,
            default.as_ptr(),
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

fn apply(credentials: &Credentials) -> nix::Result<()> {
    unistd::setgroups(&credentials.groups)?;
    unistd::setgid(credentials.gid)?;
    unistd::setuid(credentials.uid)
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
