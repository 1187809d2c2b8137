//! The dispositions of signals: which the agent ignores, and their reset in a new process.
//!
//! The system calls are made directly: the C library refuses to access the signals it reserves for
//! itself, and its `posix_spawn` starts programs (the agent may be one) with these ignored.

#![allow(unsafe_code, reason = "nix knows neither all signals nor both calls")]

use std::{ops::RangeInclusive, ptr, sync::LazyLock};

use nix::libc;

/// The struct of the kernel: a handler, flags, a restorer and a mask.
type KernelSigaction = [u64; 4];
/// No flags and an empty mask.
static DEFAULT: KernelSigaction = [0; 4];
const MASK_BYTES: usize = size_of::<u64>();

/// Returns the numbers of all signals.
pub(super) fn all_signals() -> RangeInclusive<i32> {
    1..=libc::SIGRTMAX()
}

/// Returns the signals that the agent ignores: by inheritance, or since the start of its runtime.
/// No part of it ignores a signal later.
pub(super) fn ignored_signals() -> &'static [i32] {
    static IGNORED: LazyLock<Vec<i32>> =
        LazyLock::new(|| all_signals().filter(|number| is_ignored(*number)).collect());
    &IGNORED
}

fn is_ignored(number: i32) -> bool {
    let mut current = DEFAULT;
    let unchanged = ptr::null::<KernelSigaction>();
    // SAFETY: the kernel writes the struct.
    let result = unsafe {
        let current = &raw mut current;
        libc::syscall(
            libc::SYS_rt_sigaction,
            number,
            unchanged,
            current,
            MASK_BYTES,
        )
    };
    result == 0 && current[0] == libc::SIG_IGN as u64
}

/// Sets a signal to its default action, if it allows that.
pub(super) fn reset_signal(number: i32) {
    let old = ptr::null_mut::<KernelSigaction>();
    // SAFETY: the kernel reads the struct.
    unsafe {
        let default = &raw const DEFAULT;
        libc::syscall(libc::SYS_rt_sigaction, number, default, old, MASK_BYTES);
    }
}
