//! Writing to a process.

use std::{future::Future, io, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use crate::system::process::pty::Terminal;

/// How long a process may take to read what is written to it.
pub const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// End of transmission: what Ctrl-D types.
const CTRL_D: &[u8] = b"\x04";

#[derive(Debug, thiserror::Error)]
pub enum StdinError {
    #[error("the standard input has ended")]
    Ended,
    #[error("the process has exited")]
    Exited,
    #[error("the standard input cannot be written: {0}")]
    Failed(#[source] io::Error),
}

/// A process's standard input. Writers take turns.
#[derive(Debug)]
pub struct Input(Arc<Mutex<End>>);

#[derive(Debug)]
enum End {
    Pipe(pipe::Sender),
    Terminal(Arc<Terminal>),
    Closed,
}

impl Input {
    pub fn pipe(pipe: Option<pipe::Sender>) -> Self {
        Input(Arc::new(Mutex::new(pipe.map_or(End::Closed, End::Pipe))))
    }

    pub fn terminal(terminal: Arc<Terminal>) -> Self {
        Input(Arc::new(Mutex::new(End::Terminal(terminal))))
    }

    /// Writes what the process takes within [`WRITE_LIMIT`] and before it has `exited`; where that is all, it ends if that is wished: a
    /// terminal that takes nothing just now does so before anything else that is written.
    pub async fn write(
        &self,
        data: &[u8],
        and_end: bool,
        exited: impl Future<Output = ()> + Send + 'static,
    ) -> Result<usize, StdinError> {
        let mut written = 0;
        let writing = timeout(WRITE_LIMIT, self.take_turn(data, &mut written));
        let mut exited = Box::pin(exited);
        let result = tokio::select! {
            biased;
            result = writing => result,
            () = &mut exited => Ok(Err(StdinError::Exited)),
        };
        match result {
            Ok(Ok(end)) if and_end => finish(end, exited),
            // The caller learns of the rest with the next call.
            Ok(Err(error)) if written == 0 => return Err(error),
            Ok(_) | Err(_) => {}
        }
        Ok(written)
    }

    /// Writes all of it, and nothing of others between, however long the process takes to read it. Given up, the turn is given back.
    pub async fn write_whole(
        &self,
        data: &[u8],
        exited: impl Future<Output = ()>,
    ) -> Result<(), StdinError> {
        let mut written = 0;
        tokio::select! {
            biased;
            turn = self.take_turn(data, &mut written) => turn.map(drop),
            () = exited => Err(StdinError::Exited),
        }
    }

    /// Waits for the turn and writes all; the turn goes on with what is returned.
    async fn take_turn(
        &self,
        data: &[u8],
        written: &mut usize,
    ) -> Result<OwnedMutexGuard<End>, StdinError> {
        let mut end = self.0.clone().lock_owned().await;
        let result = end.write(data, written).await;
        if result.is_err() {
            *end = End::Closed;
        }
        result.map(|()| end)
    }

    pub async fn close(&self) {
        *self.0.lock().await = End::Closed;
    }
}

impl End {
    async fn write(&mut self, data: &[u8], written: &mut usize) -> Result<(), StdinError> {
        while *written < data.len() {
            let rest = &data[*written..];
            let wrote = match self {
                End::Pipe(pipe) => pipe.write(rest).await,
                End::Terminal(terminal) => terminal.write(rest).await,
                End::Closed => return Err(StdinError::Ended),
            };
            *written += wrote.map_err(told)?;
        }
        match self {
            End::Closed => Err(StdinError::Ended),
            End::Pipe(_) | End::Terminal(_) => Ok(()),
        }
    }
}

/// Ends an input of which its caller has the turn.
fn finish(mut end: OwnedMutexGuard<End>, exited: impl Future<Output = ()> + Send + 'static) {
    let End::Terminal(terminal) = &*end else {
        *end = End::Closed;
        return;
    };
    let terminal = terminal.clone();
    // The turn stays taken until it is typed.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            typed = terminal.write(CTRL_D) => {
                if typed.is_err() {
                    *end = End::Closed;
                }
            }
            () = exited => {}
        }
    });
}

fn told(error: io::Error) -> StdinError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => StdinError::Ended,
        _ => StdinError::Failed(error),
    }
}
