//! A program with its arguments and environment, in the form that `exec` needs.

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed"
)]

use std::{
    cell::Cell,
    ffi::{CStr, CString, NulError, OsString, c_char},
    iter,
    os::unix::ffi::{OsStrExt, OsStringExt},
    ptr,
};

use nix::{errno::Errno, libc};

/// The directories of programs if the environment has no `PATH`, as in `execvp`.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// The program of scripts without an interpreter.
const SHELL: &CStr = c"/bin/sh";
/// The longest path and the longest name that the kernel accepts, without the NUL at their end.
const MAX_PATH: usize = libc::PATH_MAX as usize - 1;
const MAX_NAME: usize = 255;

/// The times that a program is executed which is open for writing, and the pause in between.
const TEXT_BUSY_ATTEMPTS: u32 = 20;
const TEXT_BUSY_PAUSE_NANOSECONDS: libc::c_long = 1_000_000;

/// A program to execute.
pub(super) struct ExecImage {
    program: CString,
    /// The directories to search, if the program has no slash.
    path: Option<Vec<u8>>,
    args: CStringArray,
    env: CStringArray,
}

/// Strings for the kernel.
struct CStringArray {
    /// The first is free: a shell has one argument more than the script that it runs. The last is
    /// null.
    pointers: Vec<Cell<*const c_char>>,
    /// Own the memory that the pointers refer to.
    _strings: Vec<CString>,
}

impl CStringArray {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr());
        let ends = iter::once(ptr::null());
        CStringArray {
            pointers: ends
                .clone()
                .chain(pointers)
                .chain(ends)
                .map(Cell::new)
                .collect(),
            _strings: strings,
        }
    }

    fn pointer(&self) -> *const *const c_char {
        self.pointers[1..].as_ptr().cast()
    }
}

impl ExecImage {
    /// Prepares a program with its arguments. A program without a slash is searched for in the
    /// `PATH` of its environment.
    ///
    /// # Errors
    /// Fails if a string contains NUL.
    pub(super) fn new(
        command: String,
        args: Vec<String>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, NulError> {
        let mut path = None;
        let mut variables = Vec::new();
        for (name, value) in env {
            variables.push(CString::new(
                [name.as_bytes(), b"=", value.as_bytes()].concat(),
            )?);
            if name == "PATH" {
                path = Some(value.into_vec());
            }
        }
        let is_searched_for = !command.contains('/');
        let program = CString::new(command.clone())?;
        let args = iter::once(command).chain(args);
        let args = args.map(CString::new).collect::<Result<_, _>>()?;
        Ok(ExecImage {
            program,
            path: is_searched_for.then(|| path.unwrap_or_else(|| DEFAULT_PATH.into())),
            args: CStringArray::new(args),
            env: CStringArray::new(variables),
        })
    }

    /// Replaces the calling process, as `execvp` does. Returns only if that fails. It makes system
    /// calls only, and does not allocate.
    pub(super) fn exec(&self) -> Errno {
        let Some(path) = &self.path else {
            return self.exec_path(&self.program);
        };
        let name = self.program.as_bytes();
        match name.len() {
            0 => return Errno::ENOENT,
            1..=MAX_NAME => {}
            _ => return Errno::ENAMETOOLONG,
        }
        let mut error = Errno::ENOENT;
        let mut buffer = [0; MAX_PATH + 1];
        for directory in path.split(|byte| *byte == b':') {
            let Some(path) = join(directory, name, &mut buffer) else {
                continue;
            };
            match self.exec_path(path) {
                Errno::EACCES => error = Errno::EACCES,
                skipped @ (Errno::ENOENT
                | Errno::ENOTDIR
                | Errno::ENODEV
                | Errno::ESTALE
                | Errno::ETIMEDOUT) => {
                    if error != Errno::EACCES {
                        error = skipped;
                    }
                }
                failure => return failure,
            }
        }
        error
    }

    fn exec_path(&self, path: &CStr) -> Errno {
        let mut attempts = TEXT_BUSY_ATTEMPTS;
        loop {
            execve(path, self.args.pointer(), &self.env);
            attempts -= 1;
            match Errno::last() {
                // Another new process still has a file open that was just written.
                Errno::ETXTBSY if attempts > 0 => pause(TEXT_BUSY_PAUSE_NANOSECONDS),
                Errno::ENOEXEC => return self.exec_script(path),
                error => return error,
            }
        }
    }

    /// Has the shell run a script, whose path takes the place of its name in the arguments.
    fn exec_script(&self, path: &CStr) -> Errno {
        let [first, name, ..] = &self.args.pointers[..] else {
            return Errno::EINVAL;
        };
        first.set(SHELL.as_ptr());
        name.set(path.as_ptr());
        execve(SHELL, first.as_ptr().cast_const(), &self.env);
        // A further path would have this one as its name.
        Errno::ENOEXEC
    }
}

/// Returns only if it fails.
fn execve(path: &CStr, args: *const *const c_char, env: &CStringArray) {
    // SAFETY: the strings end with NUL, both arrays with null, and all outlive the call.
    unsafe { libc::execve(path.as_ptr(), args, env.pointer()) };
}

fn pause(nanoseconds: libc::c_long) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    // SAFETY: the kernel reads the struct and writes nothing.
    unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
}

/// Writes a path to the buffer. Returns `None` if it is too long. An empty directory stands for the
/// current one.
fn join<'a>(directory: &[u8], name: &[u8], buffer: &'a mut [u8]) -> Option<&'a CStr> {
    let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    let mut length = 0;
    for part in [directory, separator, name, b"\0"] {
        let end = length + part.len();
        buffer.get_mut(length..end)?.copy_from_slice(part);
        length = end;
    }
    CStr::from_bytes_with_nul(buffer.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_up_to_their_longest() {
        for (directory, expected) in [
            ("/bin", "/bin/ls"),
            ("", "ls"),
            ("a", "a/ls"),
            ("/", "//ls"),
        ] {
            let mut buffer = [b'x'; 10];
            let joined = join(directory.as_bytes(), b"ls", &mut buffer).unwrap();
            assert_eq!(joined.to_str().unwrap(), expected);
        }
        let mut buffer = [0; 8];
        assert!(join(b"/bin", b"ls", &mut buffer).is_some());
        assert!(join(b"/bins", b"ls", &mut buffer).is_none());
        assert!(join(&[b'd'; 100], b"ls", &mut buffer).is_none());
    }

    #[test]
    fn nul_is_refused() {
        let new = |command: &str, arg: &str, value: &str| {
            let env = [("NAME".into(), OsString::from(value))];
            ExecImage::new(command.into(), vec![arg.into()], env).is_ok()
        };
        assert!(new("ls", "a", "b"));
        assert!(!new("l\0s", "a", "b"));
        assert!(!new("ls", "a\0", "b"));
        assert!(!new("ls", "a", "\0b"));
    }
}
