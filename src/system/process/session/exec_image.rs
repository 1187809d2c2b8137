//! A program with its directory, arguments and environment, in the form that `exec` needs.

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed"
)]

use std::{
    ffi::{CStr, OsString, c_char},
    os::unix::ffi::OsStringExt,
    ptr,
};

use nix::{errno::Errno, libc};

unsafe extern "C" {
    /// The environment of this process, in which `execvp` looks for `PATH`.
    static mut environ: *const *const c_char;
}

/// The strings of a program: each ends with NUL and has no other one. Its directory comes first,
/// then the arguments, the first of which is the program itself, then the environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramStrings {
    pub(super) bytes: Vec<u8>,
    pub(super) args: usize,
}

/// A string of a program contains NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NulError {
    Directory,
    Program,
}

impl ProgramStrings {
    pub(super) fn new(
        directory: OsString,
        args: impl IntoIterator<Item = String>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, NulError> {
        let mut strings = ProgramStrings {
            bytes: Vec::new(),
            args: 0,
        };
        strings.push(&directory.into_vec(), NulError::Directory)?;
        for arg in args {
            strings.push(arg.as_bytes(), NulError::Program)?;
            strings.args += 1;
        }
        for (name, value) in env {
            let variable = [&name.into_vec()[..], b"=", &value.into_vec()].concat();
            strings.push(&variable, NulError::Program)?;
        }
        Ok(strings)
    }

    fn push(&mut self, string: &[u8], error: NulError) -> Result<(), NulError> {
        if string.contains(&0) {
            return Err(error);
        }
        self.bytes.extend(string);
        self.bytes.push(0);
        Ok(())
    }
}

/// A program to execute.
pub(super) struct ExecImage {
    /// Owns the memory that the pointers refer to.
    _strings: Vec<u8>,
    directory: *const c_char,
    /// Both end with null.
    args: Vec<*const c_char>,
    env: Vec<*const c_char>,
}

impl ExecImage {
    /// Returns `None` if there is no directory or no program.
    pub(super) fn new(strings: ProgramStrings) -> Option<Self> {
        let bytes = strings.bytes;
        let mut pointers = bytes
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|string| Some(CStr::from_bytes_with_nul(string).ok()?.as_ptr()));
        let directory = pointers.next()?;
        let mut args: Vec<_> = pointers.by_ref().take(strings.args).collect();
        let mut env: Vec<_> = pointers.collect();
        if args.is_empty() {
            return None;
        }
        args.push(ptr::null());
        env.push(ptr::null());
        Some(ExecImage {
            _strings: bytes,
            directory,
            args,
            env,
        })
    }

    /// Returns the directory to start in.
    pub(super) fn directory(&self) -> &CStr {
        // SAFETY: the pointer refers to a string that ends with NUL and lives as long as `self`.
        unsafe { CStr::from_ptr(self.directory) }
    }

    /// Replaces the calling process, which must have one thread. Returns only if that fails. A
    /// program without a slash is searched for in the `PATH` of the new environment.
    pub(super) fn exec(&self) -> Errno {
        // SAFETY: the arrays end with null and outlive the call, and no other thread reads the
        // environment.
        unsafe {
            environ = self.env.as_ptr();
            libc::execvp(self.args[0], self.args.as_ptr());
        }
        Errno::last()
    }
}
