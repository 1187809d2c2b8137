//! The report of a new process about its `exec`.

use std::{io, os::fd::OwnedFd, time::Duration};

use tokio::{io::AsyncReadExt, net::unix::pipe, time};

use super::{StartError, pre_exec::to_start_error};

/// Time for a new process to execute its program. The user that it runs as may stop it before.
pub(super) const EXEC_TIMEOUT: Duration = Duration::from_secs(5);

/// The agent's end of the pipe, not yet registered with the async runtime.
pub(super) struct UnregisteredExecStatus(OwnedFd);

impl UnregisteredExecStatus {
    /// Returns both ends of the pipe. The new process writes the code of an error to the second.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self(reader.into()), writer.into()))
    }

    pub(super) fn register(self) -> io::Result<ExecStatus> {
        pipe::Receiver::from_owned_fd(self.0).map(ExecStatus)
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
        let mut code = [0; size_of::<i32>()];
        match time::timeout(EXEC_TIMEOUT, self.0.read_exact(&mut code)).await {
            Ok(Ok(_)) => Err(to_start_error(i32::from_ne_bytes(code))),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Ok(Err(error)) => Err(StartError::Other(error)),
            Err(_) => Err(StartError::Timeout),
        }
    }
}
