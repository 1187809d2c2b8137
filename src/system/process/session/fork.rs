//! The fork of a new process, which uses the memory of the agent until it executes its program,
//! while the thread that forks it waits, as with `vfork`: neither page tables nor pages are copied.
//!
//! The user that the process changes to cannot access that memory: with the change, the kernel
//! makes it inaccessible, as the agent has made it anyway. Where the setting of the system for that
//! (`fs.suid_dumpable`) is another one, the memory is copied, or the start is refused.

#![allow(
    unsafe_code,
    reason = "no wrapper sets the cgroup and the memory of a fork"
)]

use std::{
    ffi::{c_long, c_void},
    fs::File,
    mem,
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::LazyLock,
};

use nix::{
    errno::Errno,
    libc::{self, clone_args},
    sys::signal::{SigSet, SigmaskHow},
    unistd::Pid,
};

use super::pre_exec::{ForkedBy, PreExec};

/// Flags of the kernel. The constants of the C library's bindings are too narrow for them.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The use that a new process makes of the memory of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// On the stack of the thread that waits for it.
    Shared,
    Copied,
}

/// The setting `fs.suid_dumpable`, for the memory of processes that change their user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuidDumpable {
    /// No other process can access it, and it is never in a core file.
    Never,
    /// Root may get a core file of it.
    ForRoot,
    /// The new user can access it. So it may be if the setting cannot be read.
    Always,
}

impl SuidDumpable {
    /// Returns the setting of the system.
    pub(super) fn of_system() -> Self {
        static SETTING: LazyLock<Option<File>> =
            LazyLock::new(|| File::open("/proc/sys/fs/suid_dumpable").ok());
        let mut setting = [0];
        let file = SETTING.as_ref();
        let read = file.and_then(|file| file.read_exact_at(&mut setting, 0).ok());
        Self::of(read.map(|()| setting[0]))
    }

    fn of(setting: Option<u8>) -> Self {
        match setting {
            Some(b'0') => SuidDumpable::Never,
            Some(b'2') => SuidDumpable::ForRoot,
            _ => SuidDumpable::Always,
        }
    }

    /// Returns how to fork a process that changes its user, or `None` if that would expose the
    /// agent's memory.
    pub(super) fn memory(self) -> Option<Memory> {
        match self {
            SuidDumpable::Never => Some(Memory::Shared),
            // The setting would concern the agent as well.
            SuidDumpable::ForRoot => Some(Memory::Copied),
            SuidDumpable::Always => None,
        }
    }
}

/// Forks a process that sets itself up and executes its program. Blocks until it has done so, has
/// failed or is killed.
///
/// # Errors
/// Fails if the system refuses the fork. A failure of the new process is reported by itself.
pub(super) fn fork_and_wait(setup: &PreExec, memory: Memory) -> nix::Result<Pid> {
    // The new process inherits the mask: the handlers of the agent would run in the agent's memory.
    // Those of the two signals that the C library keeps for itself do nothing there.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let mut flags = libc::CLONE_VFORK;
    if memory == Memory::Shared && cfg!(target_arch = "x86_64") {
        flags |= libc::CLONE_VM;
    }
    // Kernels before 5.7, and container engines that do not permit `clone3`.
    let forked = clone3(flags, setup).or_else(|_| clone(flags, setup));
    // Never fails with a mask of the system.
    let _ = mask.thread_set_mask();
    forked
}

/// Forks a process in its cgroup, without handlers of signals. One that moves into its cgroup by
/// itself may wait 15 ms for the kernel.
fn clone3(flags: i32, setup: &PreExec) -> nix::Result<Pid> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut arguments: clone_args = unsafe { mem::zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned()) | CLONE_CLEAR_SIGHAND;
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    if let Some(cgroup) = &setup.cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    let arguments = [&raw const arguments as usize, size_of::<clone_args>()];
    // SAFETY: this thread waits while the function runs, which changes nothing in this memory but
    // the report and what it alone uses. The struct outlives the call.
    to_pid(unsafe { fork_and_run(libc::SYS_clone3, arguments, exec_after_clone3, setup) })
}

fn clone(flags: i32, setup: &PreExec) -> nix::Result<Pid> {
    let flags = (flags | libc::SIGCHLD).cast_unsigned() as usize;
    let same_stack = 0;
    let arguments = [flags, same_stack];
    // SAFETY: as in `clone3`, without a struct.
    to_pid(unsafe { fork_and_run(libc::SYS_clone, arguments, exec_after_clone, setup) })
}

/// Converts the result of a system call: a pid, or a negative `errno`.
fn to_pid(result: c_long) -> nix::Result<Pid> {
    match i32::try_from(result) {
        Ok(pid @ 1..) => Ok(Pid::from_raw(pid)),
        Ok(errno) => Err(Errno::from_raw(-errno)),
        Err(_) => Err(Errno::ERANGE),
    }
}

/// The first function of a process that [`clone3`] has forked.
extern "C" fn exec_after_clone3(setup: *const c_void) -> ! {
    // SAFETY: `fork_and_run` passes its setup, which lives longer than this function runs.
    unsafe { &*setup.cast::<PreExec>() }.exec(ForkedBy::Clone3)
}

/// The first function of a process that [`clone`] has forked.
extern "C" fn exec_after_clone(setup: *const c_void) -> ! {
    // SAFETY: as in `exec_after_clone3`.
    unsafe { &*setup.cast::<PreExec>() }.exec(ForkedBy::Clone)
}

/// Makes a system call that forks, after which the new process runs a function. It uses the stack
/// of this thread below what is in use, which this thread has no need of meanwhile. Returns the
/// result of the system call.
///
/// # Safety
/// The arguments must be those of a fork for which this thread waits. The function may change the
/// memory of this process.
#[cfg(target_arch = "x86_64")]
unsafe fn fork_and_run(
    call: c_long,
    [first, second]: [usize; 2],
    run: extern "C" fn(*const c_void) -> !,
    setup: &PreExec,
) -> c_long {
    let result: c_long;
    // SAFETY: the parent continues with its registers and its stack as after any system call. The
    // new process never leaves `run`. The stack is aligned for a call, because the block may use
    // it. The kernel ignores the further arguments of `clone` with these flags.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            // The end of the chain of frames.
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") call => result,
            in("rdi") first,
            in("rsi") second,
            in("r12") run,
            in("r13") &raw const *setup,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Does the same, with a copy of the memory.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn fork_and_run(
    call: c_long,
    [first, second]: [usize; 2],
    run: extern "C" fn(*const c_void) -> !,
    setup: &PreExec,
) -> c_long {
    // SAFETY: the memory is copied, so that the new process may return from this call as well.
    match unsafe { libc::syscall(call, first, second, 0, 0, 0) } {
        0 => run((&raw const *setup).cast()),
        -1 => -c_long::from(Errno::last_raw()),
        forked => forked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_only_where_no_user_and_no_core_file_gets_it() {
        for (setting, memory) in [
            (Some(b'0'), Some(Memory::Shared)),
            (Some(b'1'), None),
            (Some(b'2'), Some(Memory::Copied)),
            (Some(b'7'), None),
            (None, None),
        ] {
            assert_eq!(SuidDumpable::of(setting).memory(), memory, "{setting:?}");
        }
    }
}
