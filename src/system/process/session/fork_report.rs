//! The report of a new process to the agent: that it executes its program now, or its error. The
//! memory is shared also with a process that has a copy of all other memory.

#![allow(unsafe_code, reason = "a number in shared memory")]

use std::{
    io,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use memmap2::{MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The numbers of a report, beside the codes of errors.
const EXECUTING: i32 = 0;
const EXECUTING_OUTSIDE_CGROUP: i32 = -1;
const NOT_EXECUTED: i32 = -2;
const SIZE: usize = size_of::<AtomicI32>();

/// The report of one process at a time.
#[derive(Debug)]
pub(super) struct ForkReport(MmapRaw);

/// The outcome of a start, when the new process does not use the agent's memory any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The program was executed in its cgroup, if it has one, or killed shortly before it was.
    Executed,
    ExecutedOutsideCgroup,
    /// The process was killed before.
    Killed,
    /// The code of an error.
    Failed(i32),
}

impl ForkReport {
    pub(super) fn new() -> io::Result<Self> {
        let memory = std::fs::File::from(memfd_create("fork-report", MFdFlags::MFD_CLOEXEC)?);
        memory.set_len(SIZE as u64)?;
        Ok(ForkReport(MmapOptions::new().len(SIZE).map_raw(&memory)?))
    }

    /// Resets the report for another process.
    pub(super) fn reset(&self) {
        self.number().store(NOT_EXECUTED, Relaxed);
    }

    /// Reports that the program is executed now.
    pub(super) fn set_executing(&self, is_in_cgroup: bool) {
        let report = match is_in_cgroup {
            true => EXECUTING,
            false => EXECUTING_OUTSIDE_CGROUP,
        };
        self.number().store(report, Relaxed);
    }

    /// Reports an error, by a code above 0.
    pub(super) fn set_failed(&self, code: i32) {
        self.number().store(code, Relaxed);
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.number().load(Relaxed) {
            EXECUTING => Outcome::Executed,
            EXECUTING_OUTSIDE_CGROUP => Outcome::ExecutedOutsideCgroup,
            NOT_EXECUTED => Outcome::Killed,
            code => Outcome::Failed(code),
        }
    }

    fn number(&self) -> &AtomicI32 {
        // SAFETY: the memory is as long as the number, aligned to a page, and mapped as long as
        // `self` lives. Other processes access it as a number like this one.
        unsafe { &*self.0.as_mut_ptr().cast() }
    }
}
