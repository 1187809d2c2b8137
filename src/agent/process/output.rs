//! Reading what a process writes, continuously, so that the process never blocks on its output.

use std::{
    cell::RefCell,
    future::{self, Future},
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::BytesMut;
use futures::{FutureExt, future::BoxFuture};
use nix::unistd;
use tokio::{net::unix::pipe, time};
use tokio_util::sync::CancellationToken;

use super::capture::OutputSink;
use crate::{api::process::OutputStream, system::process::pty::Terminal};

/// The largest read from a pipe, equal to the kernel's default pipe capacity.
const PIPE_CHUNK: usize = 64 << 10;
/// The largest read from a terminal, which never buffers more.
const TERMINAL_CHUNK: usize = 4 << 10;
/// The largest read of what a program has written before the runtime knows of it.
const EARLY_CHUNK: usize = 4 << 10;
/// The number of these reads. Some programs always have more output.
const MAX_EARLY_READS: usize = 16;
/// The largest pipe capacity that a program can set without privileges.
const MAX_PIPE_CAPACITY: usize = 1 << 20;

thread_local! {
    /// The read buffer of all pipes on this thread. It is not held across an await.
    static BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(PIPE_CHUNK));
}

/// The output of a process.
#[derive(Debug)]
pub(super) enum ProcessOutput {
    Pipes {
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
    },
    Terminal {
        terminal: Arc<Terminal>,
        /// Keeps the terminal open until the process has exited. See
        /// [`Streams::Terminal`](crate::system::process::session::Streams::Terminal).
        slave: OwnedFd,
    },
}

/// A source of output.
#[derive(Debug)]
enum OutputPipe {
    Pipe(pipe::Receiver),
    Terminal(Arc<Terminal>),
}

impl OutputPipe {
    /// Waits for data and passes it to `consume`. Returns the number of bytes, 0 at the end.
    async fn read(&self, consume: impl Fn(&mut BytesMut)) -> io::Result<usize> {
        loop {
            // Readiness alone does not yield to other tasks, and some programs always have more
            // output.
            tokio::task::coop::consume_budget().await;
            match self {
                OutputPipe::Pipe(pipe) => pipe.readable().await?,
                OutputPipe::Terminal(terminal) => terminal.readable().await?,
            }
            match self.try_read(&consume) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    fn try_read(&self, consume: impl Fn(&mut BytesMut)) -> io::Result<usize> {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            buffer.reserve(PIPE_CHUNK);
            let read = match self {
                OutputPipe::Pipe(pipe) => pipe.try_read_buf(buffer)?,
                OutputPipe::Terminal(terminal) => {
                    buffer.resize(TERMINAL_CHUNK, 0);
                    let read = terminal.try_read(buffer)?;
                    buffer.truncate(read);
                    read
                }
            };
            consume(buffer);
            Ok(read)
        })
    }

    /// Passes what is in the pipe to `consume`, before the runtime knows of it: short programs have
    /// often written everything and ended by then. Returns whether that was all.
    fn read_early(&self, consume: impl Fn(&mut BytesMut)) -> bool {
        let OutputPipe::Pipe(pipe) = self else {
            return false;
        };
        BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..MAX_EARLY_READS {
                buffer.clear();
                buffer.resize(EARLY_CHUNK, 0);
                // The next read reports errors.
                let Ok(read) = unistd::read(pipe, buffer) else {
                    return false;
                };
                buffer.truncate(read);
                consume(buffer);
                if read == 0 {
                    return true;
                }
            }
            false
        })
    }

    /// Copies everything to `sink` until the end, or until `stop` and then what is buffered at
    /// that time. Returns the pipe if it is still open; the caller must keep reading it.
    async fn copy_to(
        self,
        stream: OutputStream,
        sink: OutputSink,
        stop: CancellationToken,
    ) -> Option<Self> {
        let consume = |buffer: &mut BytesMut| {
            if !buffer.is_empty() {
                sink.write(stream, buffer);
            }
        };
        if self.read_early(consume) {
            return None;
        }
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                read = self.read(consume) => if !matches!(read, Ok(1..)) { return None },
            }
        }
        let mut total = 0;
        while total < MAX_PIPE_CAPACITY {
            match self.try_read(consume) {
                Ok(read @ 1..) => total += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => return None,
            }
        }
        Some(self)
    }

    /// Reads and drops data until the end. Without this, remaining writers would be killed by
    /// SIGPIPE or block on a full pipe.
    async fn discard(self) {
        while let Ok(1..) = self.read(|_| ()).await {}
    }
}

/// Reads all output of one process, in the task that awaits its methods.
pub(super) struct OutputReader {
    /// The copies that have not ended.
    copies: Vec<BoxFuture<'static, Option<OutputPipe>>>,
    stop: CancellationToken,
    slave: Option<OwnedFd>,
}

impl OutputReader {
    pub(super) fn new(output: ProcessOutput, sink: &OutputSink) -> Self {
        let (pipes, slave) = match output {
            ProcessOutput::Pipes { stdout, stderr } => {
                let stdout = (OutputPipe::Pipe(stdout), OutputStream::Stdout);
                let stderr = (OutputPipe::Pipe(stderr), OutputStream::Stderr);
                (vec![stdout, stderr], None)
            }
            ProcessOutput::Terminal { terminal, slave } => {
                let pipe = (OutputPipe::Terminal(terminal), OutputStream::Stdout);
                (vec![pipe], Some(slave))
            }
        };
        let stop = CancellationToken::new();
        let copies = pipes.into_iter().map(|(pipe, stream)| {
            let copy = pipe.copy_to(stream, sink.clone(), stop.clone());
            copy.boxed()
        });
        OutputReader {
            copies: copies.collect(),
            stop,
            slave,
        }
    }

    /// Reads while `work` runs. Returns its result.
    pub(super) async fn read_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let read = async {
            self.read_all().await;
            future::pending().await
        };
        tokio::select! {
            result = work => result,
            result = read => result,
        }
    }

    /// Reads until all writers have closed the output, at most for `timeout`. Call this after the
    /// process has exited: it releases the terminal's slave side.
    pub(super) async fn drain(&mut self, timeout: Duration) {
        self.slave = None;
        let _ = time::timeout(timeout, self.read_all()).await;
    }

    async fn read_all(&mut self) {
        future::poll_fn(|context| {
            self.copies
                .retain_mut(|copy| copy.as_mut().poll(context).is_pending());
            match self.copies.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Reads everything written so far. Returns whether other processes have the output open; what
    /// they write later is discarded.
    pub(super) async fn finish(self) -> bool {
        self.stop.cancel();
        let mut is_open = false;
        for copy in self.copies {
            if let Some(pipe) = copy.await {
                is_open = true;
                tokio::spawn(pipe.discard());
            }
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn early_read_passes_everything_and_notices_the_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let receiver = pipe::Receiver::from_owned_fd(reader.into()).unwrap();
        let pipe = OutputPipe::Pipe(receiver);
        let output = RefCell::new(Vec::new());
        let consume = |buffer: &mut BytesMut| output.borrow_mut().extend_from_slice(buffer);
        assert!(!pipe.read_early(consume), "it may be written to");
        let written = [7; EARLY_CHUNK + 1];
        writer.write_all(&written).unwrap();
        assert!(!pipe.read_early(consume), "it may be written to");
        assert_eq!(output.take(), written);
        writer.write_all(&written).unwrap();
        drop(writer);
        assert!(pipe.read_early(consume));
        assert_eq!(output.take(), written);
    }
}
