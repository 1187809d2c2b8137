//! What the process gives up before it runs a caller's code.

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
    unistd::{self, Gid, Uid, User, chroot, fchdir, fchownat, setgroups, setresgid, setresuid},
};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("there is no user {0:?} to run scripts as")]
    NoSuchUser(String),
    #[error("cannot restrict system calls: {0}")]
    Filter(String),
    #[error("cannot {what}: {source}")]
    Step {
        what: &'static str,
        source: nix::Error,
    },
}

/// Open files beside the socket: directories and the one file at work.
const MAX_OPEN_FILES: u64 = 128;
/// The last of the standard descriptors.
const STDERR: RawFd = 2;

/// Closes what whoever started this process left open: no script is to find a way to it. Before anything else is opened.
pub fn close_inherited() -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > STDERR) {
        // The one that this list was read from is closed already.
        let _ = unistd::close(descriptor);
    }
    Ok(())
}

/// Becomes `user`, where the process is root, with the scratch directory as the only one there is; and hands it to that user.
pub fn become_user(user: &str, scratch: &Dir) -> Result<(), SandboxError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let found = User::from_name(user)
        .ok()
        .flatten()
        .ok_or_else(|| SandboxError::NoSuchUser(user.to_owned()))?;
    let (uid, gid): (Uid, Gid) = (found.uid, found.gid);
    let given = fchownat(scratch.as_fd(), ".", Some(uid), Some(gid), AtFlags::empty());
    step("give the scratch directory away", given)?;
    let enclosed = fchdir(scratch.as_fd()).and_then(|()| chroot("."));
    // Some containers' root may not; the user's own rights and the open directory have to do there.
    if enclosed != Err(nix::Error::EPERM) {
        step("make the scratch directory the root", enclosed)?;
    }
    step("leave root's groups", setgroups(&[]))?;
    step("change the group", setresgid(gid, gid, gid))?;
    step("change the user", setresuid(uid, uid, uid))
}

/// What the process may write to in memory beyond what it has: the engine's heap, as much again for its buffers, and room to report.
pub fn memory_bound(heap_mb: u32) -> u64 {
    (in_use_kb() << 10) + ((u64::from(heap_mb) * 2 + 64) << 20)
}

/// Bounds memory, files and what the process may become. `memory` is beyond the engine's own bound, which is meant to be met first.
pub fn limit(memory: u64, scratch_mb: u32) -> Result<(), SandboxError> {
    step("give up new privileges", prctl::set_no_new_privs())?;
    umask(Mode::from_bits_truncate(0o077));
    let limits = [
        (Resource::RLIMIT_DATA, memory),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, MAX_OPEN_FILES),
        (Resource::RLIMIT_FSIZE, u64::from(scratch_mb) << 20),
    ];
    for (resource, limit) in limits {
        step("set a resource limit", setrlimit(resource, limit, limit))?;
    }
    Ok(())
}

/// From here on the kernel refuses all but what the engine and the open socket need: no new process, program, thread or
/// connection, no look at other processes. A list of what is allowed, since nobody can list what is harmful.
pub fn refuse_other_system_calls() -> Result<(), SandboxError> {
    let filter = filter().map_err(|err| SandboxError::Filter(err.to_string()))?;
    seccompiler::apply_filter_all_threads(&filter)
        .map_err(|err| SandboxError::Filter(err.to_string()))
}

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
    // Memory, time, chance, and the thread's own affairs.
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

/// Older names of some of them, which only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_access];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

/// V8 writes machine code at run time.
#[cfg(feature = "v8")]
const MAKES_CODE: bool = true;
#[cfg(not(feature = "v8"))]
const MAKES_CODE: bool = false;

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let condition = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rule = if MAKES_CODE {
            Vec::new()
        } else {
            let executable = libc::PROT_EXEC as u64;
            let never = condition(2, SeccompCmpOp::MaskedEq(executable), 0)?;
            vec![SeccompRule::new(vec![never])?]
        };
        rules.insert(call, rule);
    }
    if MAKES_CODE {
        rules.insert(libc::SYS_pkey_mprotect, Vec::new());
    }
    // Ending itself is all that it may send signals for.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        let itself = condition(0, SeccompCmpOp::Eq, own)?;
        rules.insert(call, vec![SeccompRule::new(vec![itself])?]);
    }
    // Its own limits alone, which it names as nobody's or by its own id.
    let own_limits = [0, own]
        .map(|process| SeccompRule::new(vec![condition(0, SeccompCmpOp::Eq, process)?]))
        .into_iter()
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_prlimit64, own_limits);
    SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

/// What counts towards `RLIMIT_DATA` already.
fn in_use_kb() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmData:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

fn step(what: &'static str, result: nix::Result<()>) -> Result<(), SandboxError> {
    result.map_err(|source| SandboxError::Step { what, source })
}
