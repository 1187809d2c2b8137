//! The reports of a new process about its `exec`.

use std::{io, os::fd::OwnedFd, time::Duration};

use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    time::{self, Instant},
};

use super::{StartError, pre_exec::to_start_error};

/// Time for a new process to execute its program. The user that it runs as may stop it before.
pub(super) const EXEC_TIMEOUT: Duration = Duration::from_secs(5);

/// A report of the new process: [`OUTSIDE_CGROUP`] or the negative code of an error. One that has
/// executed its program without a report is in its cgroup, if it has one.
///
/// Nothing is reported in between: the kernel lets a thread that was woken by a write to a pipe
/// wait for the writer's processor, also if another one is idle.
pub(super) type Report = i32;

/// The report of a process that cannot enter its cgroup, and continues.
pub(super) const OUTSIDE_CGROUP: Report = 1;

/// The agent's end of the pipe.
pub(super) struct ExecStatus(pipe::Receiver);

impl ExecStatus {
    /// Returns both ends of the pipe. The new process writes its reports to the second, and
    /// executing the program closes it.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        Ok((ExecStatus(reader), writer.into()))
    }

    /// Waits until the program is executed, or the process was killed before. The copies of the
    /// second end that other processes have must be closed. Returns whether the process is in its
    /// cgroup, if it has one.
    ///
    /// # Errors
    /// Fails if it cannot be executed, or is not within [`EXEC_TIMEOUT`].
    pub(super) async fn wait_for_exec(mut self) -> Result<bool, StartError> {
        let deadline = Instant::now() + EXEC_TIMEOUT;
        let mut is_in_cgroup = true;
        loop {
            let mut report = [0; size_of::<Report>()];
            match time::timeout_at(deadline, self.0.read_exact(&mut report)).await {
                Ok(Ok(_)) => match Report::from_ne_bytes(report) {
                    OUTSIDE_CGROUP => is_in_cgroup = false,
                    code => return Err(to_start_error(-code)),
                },
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(is_in_cgroup);
                }
                Ok(Err(error)) => return Err(StartError::Other(error)),
                Err(_) => return Err(StartError::Timeout),
            }
        }
    }
}
