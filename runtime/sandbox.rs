//! Confines the process before it runs a script: user, file system, resources and system calls.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd, RawFd},
};

use cap_std::fs::Dir;
use nix::{
    fcntl::AtFlags,
    libc,
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        stat::{Mode, umask},
    },
    unistd::{self, Gid, Uid, chroot, fchdir, fchownat, setgroups, setresgid, setresuid},
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("a worker that starts as root needs --uid and --gid")]
    NoUser,
    #[error("cannot restrict system calls: {0}")]
    Filter(String),
    #[error("cannot {step}: {source}")]
    Step {
        step: &'static str,
        source: nix::Error,
    },
}

/// The limit of open files: the socket, directories and the file in use.
const MAX_OPEN_FILES: u64 = 128;
/// The highest of the standard descriptors.
const STDERR: RawFd = 2;

/// Closes inherited descriptors, so that no script can use them. Must run before any other is
/// opened.
pub(crate) fn close_inherited() -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > STDERR) {
        // The descriptor that the list was read from is already closed.
        let _ = unistd::close(descriptor);
    }
    Ok(())
}

/// Changes to `user`, a uid and a gid, if the process is root. The scratch directory becomes the
/// root directory, and belongs to that user. Its group remains, which is the one of Chromium's
/// user.
pub(crate) fn become_user(user: Option<(u32, u32)>, scratch: &Dir) -> Result<(), SandboxError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let (uid, gid) = user.ok_or(SandboxError::NoUser)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let chowned = fchownat(scratch.as_fd(), ".", Some(uid), None, AtFlags::empty());
    check("change the owner of the scratch directory", chowned)?;
    let chrooted = fchdir(scratch.as_fd()).and_then(|()| chroot("."));
    // The root user of some containers may not do this. File permissions and the open directory
    // confine the script there.
    if chrooted != Err(nix::Error::EPERM) {
        check("change the root directory", chrooted)?;
    }
    check("drop the groups of root", setgroups(&[]))?;
    check("change the group", setresgid(gid, gid, gid))?;
    check("change the user", setresuid(uid, uid, uid))
}

/// Returns the limit of writable memory in bytes: the current use, the engine's heap, as much again
/// for its buffers, and a reserve for error reports.
pub(crate) fn memory_limit(heap_mb: u32) -> u64 {
    (in_use_kb() << 10) + ((u64::from(heap_mb) * 2 + 64) << 20)
}

/// Limits memory, files and privileges. `memory` exceeds the engine's own limit, which should be
/// reached first.
pub(crate) fn set_limits(memory: u64, scratch_mb: u32) -> Result<(), SandboxError> {
    check("disable new privileges", prctl::set_no_new_privs())?;
    // Chromium reads the files that a script uploads by the group of the scratch directory.
    umask(Mode::from_bits_truncate(0o027));
    let limits = [
        (Resource::RLIMIT_DATA, memory),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, MAX_OPEN_FILES),
        (Resource::RLIMIT_FSIZE, u64::from(scratch_mb) << 20),
    ];
    for (resource, limit) in limits {
        check("set a resource limit", setrlimit(resource, limit, limit))?;
    }
    Ok(())
}

/// Makes the kernel reject all system calls except those that the engine, the open socket, the
/// forks and their setup need. This is an allow-list, since a list of harmful calls could not be
/// complete. Forks inherit it, so that none of them has to build and check the long list.
pub(crate) fn restrict_template() -> Result<(), SandboxError> {
    let filter = template_rules().and_then(|rules| filter(rules, SeccompAction::Allow, UNKNOWN));
    apply(filter)
}

/// Makes the kernel reject what the setup of a fork has needed, too: from now on no new process,
/// program, thread or connection, no other user, and no access to other processes.
pub(crate) fn restrict_worker() -> Result<(), SandboxError> {
    let filter = worker_rules().and_then(|rules| filter(rules, DENY, SeccompAction::Allow));
    apply(filter)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

const DENY: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);
/// The answer of a kernel that lacks the call, so that the C library uses another one.
const UNKNOWN: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);

/// Returns a filter with an action for the calls that the rules match, and one for all others.
fn filter(
    rules: Rules,
    matching: SeccompAction,
    other: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, other, matching, arch)?.try_into()
}

/// Adds a filter to all threads. Of several filters the strictest action applies.
fn apply(filter: Result<BpfProgram, BackendError>) -> Result<(), SandboxError> {
    let filter = filter.map_err(|err| SandboxError::Filter(err.to_string()))?;
    seccompiler::apply_filter_all_threads(&filter)
        .map_err(|err| SandboxError::Filter(err.to_string()))
}

/// None of these sets the times, the mode or the attributes of a file: by them, a directory that is
/// kept for another worker could carry a message (`src/agent/automation/scratch.rs`).
const ALLOWED: &[i64] = &[
    // The socket, files beneath the open directory, waiting.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_umask,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_timerfd_settime,
    // Memory, time, random numbers, and the thread itself.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getrusage,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older variants of some of them, which only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_ON_ARCH: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_access];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_ON_ARCH: &[i64] = &[];

/// The system calls that only the setup of a worker needs.
const SETUP: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_socketpair,
    libc::SYS_ioctl,
    libc::SYS_fchownat,
    libc::SYS_fchdir,
    libc::SYS_chroot,
    libc::SYS_setgroups,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_prctl,
    libc::SYS_seccomp,
];

#[cfg(target_arch = "x86_64")]
const SETUP_ON_ARCH: &[i64] = &[libc::SYS_dup2, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const SETUP_ON_ARCH: &[i64] = &[];

/// Whether the engine writes machine code at run time.
#[cfg(feature = "v8")]
const NEEDS_EXECUTABLE_MEMORY: bool = true;
#[cfg(not(feature = "v8"))]
const NEEDS_EXECUTABLE_MEMORY: bool = false;

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn unconditional(calls: &[&[i64]]) -> Rules {
    let calls = calls.iter().copied().flatten();
    calls.map(|call| (*call, Vec::new())).collect()
}

/// Returns the calls that the template and its forks may make.
fn template_rules() -> Result<Rules, BackendError> {
    let mut rules = unconditional(&[ALLOWED, ALLOWED_ON_ARCH, SETUP, SETUP_ON_ARCH]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rule = if NEEDS_EXECUTABLE_MEMORY {
            Vec::new()
        } else {
            let executable = libc::PROT_EXEC as u64;
            let never = condition(2, SeccompCmpOp::MaskedEq(executable), 0)?;
            vec![SeccompRule::new(vec![never])?]
        };
        rules.insert(call, rule);
    }
    if NEEDS_EXECUTABLE_MEMORY {
        rules.insert(libc::SYS_pkey_mprotect, Vec::new());
    }
    // A worker restricts these further.
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, Vec::new());
    }
    // A process may change only its own limits, which the C library names by 0.
    let own_limits = SeccompRule::new(vec![condition(0, SeccompCmpOp::Eq, 0)?])?;
    rules.insert(libc::SYS_prlimit64, vec![own_limits]);
    Ok(rules)
}

/// Returns the calls that a worker may no longer make.
fn worker_rules() -> Result<Rules, BackendError> {
    let mut rules = unconditional(&[SETUP, SETUP_ON_ARCH]);
    // It may send signals only to itself.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        let to_another = condition(0, SeccompCmpOp::Ne, own)?;
        rules.insert(call, vec![SeccompRule::new(vec![to_another])?]);
    }
    Ok(rules)
}

/// Returns the memory in KiB that already counts towards `RLIMIT_DATA`.
fn in_use_kb() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmData:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

fn check(step: &'static str, result: nix::Result<()>) -> Result<(), SandboxError> {
    result.map_err(|source| SandboxError::Step { step, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_gives_up_every_call_of_its_setup() {
        let worker = worker_rules().unwrap();
        for call in SETUP.iter().chain(SETUP_ON_ARCH) {
            assert!(
                !ALLOWED.contains(call) && !ALLOWED_ON_ARCH.contains(call),
                "{call}"
            );
            assert_eq!(worker.get(call).map(Vec::len), Some(0), "{call}");
        }
        for call in [libc::SYS_kill, libc::SYS_tgkill] {
            assert_eq!(worker[&call].len(), 1, "{call}");
        }
    }

    #[test]
    fn worker_cannot_set_times_mode_or_attributes_of_file() {
        for call in [
            libc::SYS_utimensat,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            libc::SYS_fchown,
            libc::SYS_setxattr,
            libc::SYS_fsetxattr,
            libc::SYS_lsetxattr,
        ] {
            assert!(!template_rules().unwrap().contains_key(&call), "{call}");
        }
    }
}
