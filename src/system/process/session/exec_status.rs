//! The reports of a new process: its pid, that it is set up, and about its `exec`.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::unistd::Pid;
use tokio::{io::AsyncReadExt, net::unix::pipe, time};

use super::{StartError, pre_exec::to_start_error};
use crate::system::sync::poll::readable;

/// Time for a new process to execute its program. The user that it runs as may stop it before.
pub(super) const EXEC_TIMEOUT: Duration = Duration::from_secs(5);

/// A report of the new process. The first is its pid, the second [`SET_UP`] or [`OUTSIDE_CGROUP`].
/// In place of the second, or after it, comes the negative code of an error.
pub(super) type Report = i32;

/// The report of a process that leads its session and is in its cgroup, if it has one.
pub(super) const SET_UP: Report = 0;
/// The report of a process that leads its session, but cannot enter its cgroup.
pub(super) const OUTSIDE_CGROUP: Report = 1;

/// The agent's end of the pipe, not yet registered with the async runtime.
pub(super) struct UnregisteredExecStatus(File);

impl UnregisteredExecStatus {
    /// Returns both ends of the pipe. The new process writes its reports to the second, and
    /// executing the program closes it.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self(OwnedFd::from(reader).into()), writer.into()))
    }

    /// Waits on this thread for the pid of the new process. The copies of the second end that other
    /// processes have must be closed. Returns `None` if there is no process.
    ///
    /// # Errors
    /// Fails if the process does not report within [`EXEC_TIMEOUT`].
    pub(super) fn pid(&mut self) -> Result<Option<Pid>, StartError> {
        Ok(self.next_report()?.map(Pid::from_raw))
    }

    /// Waits on this thread until the new process is set up, after its pid. Returns whether it is
    /// in its cgroup.
    ///
    /// # Errors
    /// Fails if it cannot be set up, or is not within [`EXEC_TIMEOUT`].
    pub(super) fn wait_until_set_up(&mut self) -> Result<bool, StartError> {
        match self.next_report()? {
            Some(SET_UP) => Ok(true),
            Some(OUTSIDE_CGROUP) => Ok(false),
            Some(code) => Err(to_start_error(-code)),
            None => Err(io::Error::other("the new process was killed").into()),
        }
    }

    /// Returns `None` at the end of the pipe.
    fn next_report(&mut self) -> Result<Option<Report>, StartError> {
        let deadline = Instant::now() + EXEC_TIMEOUT;
        if readable([self.0.as_fd()], Some(deadline))? == [false] {
            return Err(StartError::Timeout);
        }
        let mut report = [0; size_of::<Report>()];
        match self.0.read_exact(&mut report) {
            Ok(()) => Ok(Some(Report::from_ne_bytes(report))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn register(self) -> io::Result<ExecStatus> {
        pipe::Receiver::from_owned_fd(self.0.into()).map(ExecStatus)
    }
}

/// The agent's end of the pipe.
pub(super) struct ExecStatus(pipe::Receiver);

impl ExecStatus {
    /// Waits until the program is executed.
    ///
    /// # Errors
    /// Fails if it cannot be executed, or is not within [`EXEC_TIMEOUT`].
    pub(super) async fn wait(mut self) -> Result<(), StartError> {
        let mut report = [0; size_of::<Report>()];
        match time::timeout(EXEC_TIMEOUT, self.0.read_exact(&mut report)).await {
            Ok(Ok(_)) => Err(to_start_error(-Report::from_ne_bytes(report))),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Ok(Err(error)) => Err(StartError::Other(error)),
            Err(_) => Err(StartError::Timeout),
        }
    }
}
