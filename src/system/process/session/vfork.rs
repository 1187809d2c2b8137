//! The forks of the fork server. A new process uses the memory of the server until `exec`, while
//! the server waits, as with `vfork`. Nothing is copied: neither page tables nor pages.
//!
//! The user that the process changes to cannot access that memory, because the server is not
//! dumpable. Where the system makes each process dumpable that changes its user
//! (`fs.suid_dumpable` is 1), and with kernels before 5.7, the memory is copied.

#![allow(
    unsafe_code,
    reason = "no wrapper sets the parent, the cgroup and the memory of a fork"
)]

use std::{
    ffi::{c_long, c_void},
    fs, io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

use memmap2::{MmapOptions, MmapRaw};
use nix::{
    errno::Errno,
    libc::{self, clone_args},
    sys::prctl,
    unistd::Pid,
};

use super::{exec_image::forget_environment, pre_exec::PreExec};

/// The flag of the kernel. The constant of the C library's bindings is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// The new process is a child of the server's parent, and the kernel writes its pid.
const FORK_FLAGS: i32 = libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID;
/// The new process uses the memory of this one, which waits for its `exec` or its end.
const SHARED_MEMORY_FLAGS: i32 = libc::CLONE_VM | libc::CLONE_VFORK;
/// The size in bytes of the stack of a new process. It needs less than a tenth, unoptimised.
const STACK_SIZE: usize = 256 << 10;

/// Forks processes that are children of this process's parent. This process must have one thread.
pub(super) struct Forker {
    /// The kernel writes the pid of a new process to its start.
    pid: MmapRaw,
    /// The stack of a new process that uses the memory of this one. Without it the memory is
    /// copied.
    stack: Option<MmapRaw>,
}

impl Forker {
    pub(super) fn new(pid: MmapRaw) -> io::Result<Self> {
        let new_stack = || MmapOptions::new().len(STACK_SIZE).stack().map_anon();
        let stack = may_share_memory().then(new_stack).transpose()?;
        Ok(Forker {
            pid,
            stack: stack.map(MmapRaw::from),
        })
    }

    /// Forks a process that sets itself up and executes its program.
    ///
    /// # Errors
    /// Fails if the system refuses. A failure of the new process is reported by itself.
    pub(super) fn fork(&self, setup: &PreExec) -> nix::Result<Pid> {
        let stack = self.stack.as_ref().map(MmapRaw::as_mut_ptr);
        // Fails with kernels that do not support all of it.
        let shared = stack.and_then(|stack| self.fork_with_shared_memory(setup, stack).ok());
        let pid = match shared {
            Some(pid) => pid,
            None => self.fork_with_copied_memory(setup)?,
        };
        let pid = i32::try_from(pid).map_err(|_| Errno::ERANGE)?;
        Ok(Pid::from_raw(pid))
    }

    /// Starts the process in its cgroup.
    fn fork_with_shared_memory(&self, setup: &PreExec, stack: *mut u8) -> nix::Result<c_long> {
        let mut arguments = self.arguments(setup.cgroup());
        arguments.flags |= u64::from(SHARED_MEMORY_FLAGS.cast_unsigned());
        arguments.stack = stack as u64;
        arguments.stack_size = STACK_SIZE as u64;
        // SAFETY: the setup and the stack are not used by this process until the new one does not
        // use its memory any more, and neither is changed but the stack.
        let forked = unsafe { clone_on_other_stack(&arguments, exec, (&raw const *setup).cast()) };
        // What the new process has changed in the memory of this one.
        forget_environment();
        // Never fails with this value.
        let _ = prctl::set_dumpable(false);
        to_result(forked)
    }

    /// Copies the memory. The process enters its cgroup itself, which may take 15 ms.
    fn fork_with_copied_memory(&self, setup: &PreExec) -> nix::Result<c_long> {
        let flags = FORK_FLAGS | libc::SIGCHLD;
        let pid = self.pid.as_mut_ptr();
        // SAFETY: without a new stack this is a fork. This process has one thread, so that the C
        // library's functions work in the copy. The pid is mapped memory.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0, pid, 0, 0) } {
            0 => setup.enter_cgroup_and_exec(),
            forked => Errno::result(forked),
        }
    }

    /// The signal of the new process's end is that of this process: `CLONE_PARENT` forbids another.
    fn arguments(&self, cgroup: Option<&OwnedFd>) -> clone_args {
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut arguments: clone_args = unsafe { mem::zeroed() };
        arguments.flags = u64::from(FORK_FLAGS.cast_unsigned());
        arguments.parent_tid = self.pid.as_mut_ptr() as u64;
        if let Some(cgroup) = cgroup {
            arguments.flags |= CLONE_INTO_CGROUP;
            arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
        }
        arguments
    }
}

/// Whether no other user can access the memory of a process that changes its user.
fn may_share_memory() -> bool {
    let is_private = |mode: String| matches!(mode.trim(), "0" | "2");
    cfg!(target_arch = "x86_64")
        && fs::read_to_string("/proc/sys/fs/suid_dumpable").is_ok_and(is_private)
}

/// The first function of a new process.
extern "C" fn exec(setup: *const c_void) -> ! {
    // SAFETY: the setup of `fork_with_shared_memory`.
    unsafe { &*setup.cast::<PreExec>() }.exec()
}

/// Makes the system call. The new process starts with `run`, on the stack of the arguments, so that
/// it does not change the stack of this process. Returns the result of the system call.
///
/// # Safety
/// While the new process runs, it may change the memory of this process.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_on_other_stack(
    arguments: &clone_args,
    run: extern "C" fn(*const c_void) -> !,
    context: *const c_void,
) -> c_long {
    let result: c_long;
    // SAFETY: the parent returns with its registers and its stack as after any system call. The new
    // process never leaves `run`. The kernel starts it at the end of its stack, which is aligned.
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
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &raw const *arguments,
            in("rsi") size_of::<clone_args>(),
            in("r12") run,
            in("r13") context,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Not available: see [`may_share_memory`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone_on_other_stack(
    _: &clone_args,
    _: extern "C" fn(*const c_void) -> !,
    _: *const c_void,
) -> c_long {
    -c_long::from(libc::ENOSYS)
}

/// Converts the result of a system call that was made directly.
fn to_result(result: c_long) -> nix::Result<c_long> {
    match i32::try_from(-result) {
        Ok(errno @ 1..) => Err(Errno::from_raw(errno)),
        _ => Ok(result),
    }
}
