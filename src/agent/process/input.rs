//! Writing to a process.

use std::{future::Future, io, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::Mutex,
    time::{Instant, timeout_at},
};

use crate::system::pty::Terminal;

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
pub struct Input(Mutex<End>);

#[derive(Debug)]
enum End {
    Pipe(pipe::Sender),
    Terminal(Arc<Terminal>),
    Closed,
}

impl Input {
    pub fn pipe(pipe: Option<pipe::Sender>) -> Self {
        Input(Mutex::new(pipe.map_or(End::Closed, End::Pipe)))
    }

    pub fn terminal(terminal: Arc<Terminal>) -> Self {
        Input(Mutex::new(End::Terminal(terminal)))
    }

    /// Writes what the process takes within [`WRITE_LIMIT`] and before it has `exited`; where that is all, the end as well if it is wished.
    pub async fn write(
        &self,
        data: &[u8],
        and_end: bool,
        exited: impl Future<Output = ()>,
    ) -> Result<usize, StdinError> {
        let until = Instant::now() + WRITE_LIMIT;
        let mut written = 0;
        let writing = async {
            let mut end = self.0.lock().await;
            let result = end.write(data, and_end, &mut written).await;
            if result.is_err() {
                *end = End::Closed;
            }
            result
        };
        let result = tokio::select! {
            biased;
            result = timeout_at(until, writing) => result.unwrap_or(Ok(())),
            () = exited => Err(StdinError::Exited),
        };
        match result {
            // The caller learns of the rest with the next call.
            Err(_) if written > 0 => Ok(written),
            Err(error) => Err(error),
            Ok(()) => Ok(written),
        }
    }

    pub async fn close(&self) {
        *self.0.lock().await = End::Closed;
    }
}

impl End {
    async fn write(
        &mut self,
        data: &[u8],
        and_end: bool,
        written: &mut usize,
    ) -> Result<(), StdinError> {
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
            End::Closed => return Err(StdinError::Ended),
            End::Pipe(_) if and_end => *self = End::Closed,
            End::Terminal(terminal) if and_end => {
                terminal.write(CTRL_D).await.map_err(told)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn told(error: io::Error) -> StdinError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => StdinError::Ended,
        _ => StdinError::Failed(error),
    }
}
