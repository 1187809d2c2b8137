//! Process file descriptors, which refer to one process even after its number is reused.

use std::{
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
};

use nix::{errno::Errno, libc, unistd::Pid};

/// Opens a pidfd for `pid`, which must be a child of this process that is not reaped.
#[expect(unsafe_code, reason = "nix has no wrapper for pidfd_open")]
pub(in crate::system::process) fn open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call accesses no memory of this process.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = i32::try_from(Errno::result(opened)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `waitid` with `options`. Returns `None` if the process has not ended.
#[expect(unsafe_code, reason = "nix's waitid fails for real-time signals")]
pub(in crate::system::process) fn wait(
    pidfd: &OwnedFd,
    options: i32,
) -> io::Result<Option<ExitStatus>> {
    loop {
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let fd = pidfd.as_raw_fd().cast_unsigned();
        // SAFETY: the struct is a local variable that outlives the call.
        let waited = unsafe { libc::waitid(libc::P_PIDFD, fd, &raw mut info, options) };
        match Errno::result(waited) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                // SAFETY: waitid has set these fields, or left them zero.
                let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
                if pid == 0 {
                    return Ok(None);
                }
                // As `wait` encodes it.
                let status = match info.si_code {
                    libc::CLD_EXITED => status << 8,
                    _ => status,
                };
                return Ok(Some(ExitStatus::from_raw(status)));
            }
        }
    }
}
