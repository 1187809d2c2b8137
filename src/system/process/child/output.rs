//! The output of a child: read into the log, to a consumer, and into a short tail.

use std::{collections::VecDeque, fmt, io, os::fd::OwnedFd, sync::Arc};

use parking_lot::Mutex;
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Listener, LogParser};
use crate::lines::{Line, LineBuffer};

/// The number of output lines kept for the error report if a child fails.
const TAIL_LINES: usize = 40;
/// The number of bytes kept of each of these lines.
const TAIL_LINE_BYTES: usize = 1024;

/// The last lines of a child's output. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.0.lock().iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(line)?;
        }
        Ok(())
    }
}

/// The consumer of a child's lines, besides the log.
pub(super) enum LineConsumer {
    Listener(Listener),
    LogParser(LogParser),
    None,
}

impl LineConsumer {
    /// Returns the consumer for standard output. Our own programs log to standard error only.
    pub(super) fn for_stdout(&self) -> Self {
        match self {
            LineConsumer::Listener(listener) => LineConsumer::Listener(listener.clone()),
            LineConsumer::LogParser(_) | LineConsumer::None => LineConsumer::None,
        }
    }
}

/// The task that reads a pipe of a child's output.
pub(super) struct OutputReader {
    stop: CancellationToken,
    task: JoinHandle<Option<Receiver>>,
}

impl OutputReader {
    pub(super) fn start(
        name: &'static str,
        pid: u32,
        pipe: OwnedFd,
        consumer: LineConsumer,
        tail: Tail,
    ) -> io::Result<Self> {
        let pipe = Receiver::from_owned_fd(pipe)?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(read_lines(name, pid, pipe, consumer, tail, stop.clone()));
        Ok(OutputReader { stop, task })
    }

    /// Stops the task, and returns the pipe if the child may still write to it.
    pub(super) async fn stop(self) -> Option<OwnedFd> {
        self.stop.cancel();
        let pipe = self.task.await.ok().flatten()?;
        pipe.into_nonblocking_fd().ok()
    }
}

/// Reads lines until end-of-file, so that the child does not block, or until `stop` is cancelled.
/// Returns the pipe in that case.
async fn read_lines(
    name: &'static str,
    pid: u32,
    mut pipe: Receiver,
    consumer: LineConsumer,
    tail: Tail,
    stop: CancellationToken,
) -> Option<Receiver> {
    let mut chunk = [0; 8 * 1024];
    let mut lines = LineBuffer::default();
    let consume = |line: Line| {
        match &consumer {
            LineConsumer::Listener(listener) => listener(&line),
            LineConsumer::LogParser(parser) => {
                if let Some(summary) = parser(&line.text) {
                    tail.push(summary);
                    return;
                }
            }
            LineConsumer::None => {}
        }
        let mut text = line.text;
        if !text.is_empty() {
            tracing::debug!(child = name, pid, "{text}");
            text.truncate(text.floor_char_boundary(TAIL_LINE_BYTES));
            tail.push(text);
        }
    };
    let is_stopped = loop {
        let read = tokio::select! {
            read = pipe.read(&mut chunk) => read,
            () = stop.cancelled() => break true,
        };
        let Ok(read @ 1..) = read else { break false };
        lines.push(&chunk[..read]);
        while let Some(line) = lines.next_line() {
            consume(line);
        }
    };
    lines.take_rest().into_iter().for_each(consume);
    is_stopped.then_some(pipe)
}
