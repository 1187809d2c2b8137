//! The standard input of a client process.

use std::{future::Future, io, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use crate::system::process::pty::Terminal;

/// Time for a process to read what one request writes.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// End of transmission, the character of Ctrl-D.
const CTRL_D: &[u8] = b"\x04";

#[derive(Debug, thiserror::Error)]
pub enum StdinError {
    #[error("the standard input is closed")]
    Closed,
    #[error("the process has exited")]
    Exited,
    #[error("cannot write to the standard input: {0}")]
    Failed(#[source] io::Error),
}

/// The standard input of a process. A writer holds the lock until its data is written, so that
/// the data of concurrent writers does not interleave.
#[derive(Debug)]
pub(super) struct Input(Arc<Mutex<Target>>);

#[derive(Debug)]
enum Target {
    Pipe(pipe::Sender),
    Terminal(Arc<Terminal>),
    Closed,
}

impl Input {
    /// Wraps a pipe. `None` means that the input is closed from the start.
    pub(super) fn pipe(pipe: Option<pipe::Sender>) -> Self {
        let target = pipe.map_or(Target::Closed, Target::Pipe);
        Input(Arc::new(Mutex::new(target)))
    }

    pub(super) fn terminal(terminal: Arc<Terminal>) -> Self {
        Input(Arc::new(Mutex::new(Target::Terminal(terminal))))
    }

    /// Writes `data` until it is complete, [`WRITE_TIMEOUT`] passes or the process has `exited`.
    /// Returns the number of bytes written.
    ///
    /// If everything was written and `end` is set, it also ends the input. A terminal that
    /// accepts no data now gets its Ctrl-D later, but before the data of other writers.
    pub(super) async fn write(
        &self,
        data: &[u8],
        end: bool,
        exited: impl Future<Output = ()> + Send + 'static,
    ) -> Result<usize, StdinError> {
        let mut written = 0;
        let writing = timeout(WRITE_TIMEOUT, self.lock_and_write(data, &mut written));
        let mut exited = Box::pin(exited);
        let result = tokio::select! {
            biased;
            result = writing => result,
            () = &mut exited => Ok(Err(StdinError::Exited)),
        };
        match result {
            Ok(Ok(target)) if end => end_input(target, exited),
            // After a partial write, the caller gets the error with its next request.
            Ok(Err(error)) if written == 0 => return Err(error),
            Ok(_) | Err(_) => {}
        }
        Ok(written)
    }

    /// Writes all of `data`, however long the process takes to read it. Dropping the future
    /// releases the lock.
    pub(super) async fn write_all(
        &self,
        data: &[u8],
        exited: impl Future<Output = ()>,
    ) -> Result<(), StdinError> {
        let mut written = 0;
        tokio::select! {
            biased;
            result = self.lock_and_write(data, &mut written) => result.map(drop),
            () = exited => Err(StdinError::Exited),
        }
    }

    /// Writes all of `data` and returns the lock.
    async fn lock_and_write(
        &self,
        data: &[u8],
        written: &mut usize,
    ) -> Result<OwnedMutexGuard<Target>, StdinError> {
        let mut target = self.0.clone().lock_owned().await;
        let result = target.write(data, written).await;
        if result.is_err() {
            *target = Target::Closed;
        }
        result.map(|()| target)
    }

    pub(super) async fn close(&self) {
        *self.0.lock().await = Target::Closed;
    }
}

impl Target {
    async fn write(&mut self, data: &[u8], written: &mut usize) -> Result<(), StdinError> {
        while *written < data.len() {
            let remaining = &data[*written..];
            let result = match self {
                Target::Pipe(pipe) => pipe.write(remaining).await,
                Target::Terminal(terminal) => terminal.write(remaining).await,
                Target::Closed => return Err(StdinError::Closed),
            };
            *written += result.map_err(to_stdin_error)?;
        }
        match self {
            Target::Closed => Err(StdinError::Closed),
            Target::Pipe(_) | Target::Terminal(_) => Ok(()),
        }
    }
}

/// Closes a pipe, or types Ctrl-D into a terminal.
fn end_input(
    mut target: OwnedMutexGuard<Target>,
    exited: impl Future<Output = ()> + Send + 'static,
) {
    let Target::Terminal(terminal) = &*target else {
        *target = Target::Closed;
        return;
    };
    let terminal = terminal.clone();
    // The task holds the lock until the terminal has accepted the character.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            result = terminal.write(CTRL_D) => {
                if result.is_err() {
                    *target = Target::Closed;
                }
            }
            () = exited => {}
        }
    });
}

fn to_stdin_error(error: io::Error) -> StdinError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => StdinError::Closed,
        _ => StdinError::Failed(error),
    }
}
