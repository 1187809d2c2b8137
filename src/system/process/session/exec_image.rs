//! A program with its arguments and environment, in the form that `exec` needs.

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed"
)]

use std::{
    ffi::{CString, NulError, OsString},
    os::unix::ffi::OsStringExt,
    ptr,
};

use nix::{
    errno::Errno,
    libc::{self, c_char},
};

unsafe extern "C" {
    /// The environment of this process, in which `execvp` looks for `PATH`.
    static mut environ: *const *const c_char;
}

/// A program to execute.
pub(super) struct ExecImage {
    program: CString,
    args: StringArray,
    env: StringArray,
}

impl ExecImage {
    /// # Errors
    /// Fails if a string contains NUL.
    pub(super) fn new(
        program: &str,
        args: &[String],
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, NulError> {
        let args = [program].into_iter().chain(args.iter().map(String::as_str));
        let env = env.into_iter().map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            variable
        });
        Ok(ExecImage {
            program: CString::new(program)?,
            args: StringArray::new(args.map(Vec::from))?,
            env: StringArray::new(env)?,
        })
    }

    /// Replaces the calling process, which must have one thread. Returns only if that fails. A
    /// program without a slash is searched for in the `PATH` of the new environment.
    pub(super) fn exec(&self) -> Errno {
        // SAFETY: the arrays end with null and outlive the call, and no other thread reads the
        // environment.
        unsafe {
            environ = self.env.pointers.as_ptr();
            libc::execvp(self.program.as_ptr(), self.args.pointers.as_ptr());
        }
        Errno::last()
    }
}

/// An array of pointers to strings that ends with null.
struct StringArray {
    /// Owns the memory that `pointers` refers to.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers refer to memory that the array owns and that does not change.
unsafe impl Send for StringArray {}
// SAFETY: as above.
unsafe impl Sync for StringArray {}

impl StringArray {
    fn new(strings: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, NulError> {
        let strings: Vec<CString> = strings
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()?;
        let pointers = strings.iter().map(|string| string.as_ptr());
        Ok(StringArray {
            pointers: pointers.chain([ptr::null()]).collect(),
            _strings: strings,
        })
    }
}
