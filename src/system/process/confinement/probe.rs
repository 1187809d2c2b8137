//! Finds out in a forked process what a confined child may do.

use std::{
    ffi::CString,
    io::{self, Read},
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    libc,
    unistd::{AccessFlags, ForkResult, access, fork, pipe2},
};

use super::{Confinement, Step, wait_or_kill};

/// The longest wait for the forked process, which takes some milliseconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The rights and features that a child of the user lacks, each with its error.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Missing {
    /// Paths of the child cannot be mounted.
    pub mounts: Option<Errno>,
    /// The process cannot become the user.
    pub user: Option<Errno>,
    /// The user cannot execute the program.
    pub program: Option<Errno>,
    /// The user cannot enter the directory.
    pub directory: Option<Errno>,
    /// The user cannot create namespaces of processes and networks, as a sandbox needs.
    pub namespaces: Option<Errno>,
}

/// The results of the steps in their order, as numbers: zero, or an error. Crosses the fork through
/// a pipe.
type Report = [i32; 5];

impl From<Report> for Missing {
    fn from(report: Report) -> Self {
        let [mounts, user, program, directory, namespaces] =
            report.map(|code| (code != 0).then(|| Errno::from_raw(code)));
        Missing {
            mounts,
            user,
            program,
            directory,
            namespaces,
        }
    }
}

/// Returns what a child that is confined (or runs as this process's user) lacks: to run `program`,
/// to enter `directory`, and to create namespaces. Blocks for some milliseconds.
///
/// # Errors
/// Fails if no process can be started, or a process of the user has stopped it.
pub fn probe(
    confinement: Option<&Confinement>,
    program: &Path,
    directory: &Path,
) -> io::Result<Missing> {
    let to_c_string = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (program, directory) = (to_c_string(program)?, to_c_string(directory)?);
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the child makes async-signal-safe calls only, does not allocate, and exits at once.
    let child = match unsafe { fork() }? {
        ForkResult::Child => {
            let report = examine(confinement, &program, &directory);
            // SAFETY: the descriptor is open, and the bytes are those of the report.
            unsafe {
                let bytes = report.as_ptr().cast();
                libc::write(write.as_raw_fd(), bytes, size_of::<Report>());
                libc::_exit(0);
            }
        }
        ForkResult::Parent { child } => child,
    };
    drop(write);
    let mut bytes = [0; size_of::<Report>()];
    // The report fits into the pipe's buffer.
    wait_or_kill(child, PROBE_TIMEOUT)?;
    std::fs::File::from(read).read_exact(&mut bytes)?;
    let mut report = Report::default();
    for (code, bytes) in report.iter_mut().zip(bytes.as_chunks().0) {
        *code = i32::from_ne_bytes(*bytes);
    }
    Ok(report.into())
}

/// Runs all steps in the forked process.
fn examine(confinement: Option<&Confinement>, program: &CString, directory: &CString) -> Report {
    let code = |result: nix::Result<()>| result.err().map_or(0, |errno| errno as i32);
    let mut report = Report::default();
    match confinement.map_or(Ok(()), Confinement::apply) {
        Ok(()) => {}
        Err((Step::Mounts, errno)) => {
            report[0] = errno as i32;
            return report;
        }
        Err((Step::Credentials, errno)) => {
            report[1] = errno as i32;
            return report;
        }
    }
    report[2] = code(access(program.as_c_str(), AccessFlags::X_OK));
    report[3] = code(access(directory.as_c_str(), AccessFlags::X_OK));
    report[4] = code(create_namespaces());
    report
}

/// Creates the namespaces that Chromium's sandbox uses, and uses a right in them: some systems
/// permit the namespaces, but no rights in them.
fn create_namespaces() -> nix::Result<()> {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNET;
    // SAFETY: the calls access no memory but the static string.
    unsafe {
        Errno::result(libc::unshare(flags))?;
        Errno::result(libc::chroot(c"/".as_ptr())).map(drop)
    }
}
