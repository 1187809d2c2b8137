//! Script workers as child processes: messages, exit, killing. The [`template`](super::template)
//! starts them.

use std::{io, process::ExitStatus, sync::Arc};

use bytes::{Bytes, BytesMut};
use nix::{
    sys::signal::Signal,
    unistd::{Pid, setpgid},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    task::JoinHandle,
};

pub use super::protocol::{
    DOWNLOADS, FrameError, FromWorker, HttpFailure, HttpRequest, HttpResponse, MAX_ENTRIES,
    MAX_HTTP_RESPONSE, MAX_OUTPUT, MAX_RESULT, Page, RunOutcome, RunRequest, Script, ToWorker,
};
use super::protocol::{Frame, header, take};
use crate::system::process::session::Leader;

/// The most bytes of a process's standard error that are retained for the log. Scripts cannot write
/// there; a panic does.
pub(super) const MAX_DIAGNOSTICS: usize = 16 << 10;

/// The initial size of the buffer of received bytes.
const READ_SIZE: usize = 16 << 10;

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the script worker is gone: {0}")]
    Gone(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The exit of a worker.
#[derive(Debug)]
pub struct Exit {
    pub status: Option<ExitStatus>,
    /// The tail of its standard error.
    pub diagnostics: String,
}

impl Exit {
    /// Whether the worker ran out of memory, judged by the messages of the allocators and of the
    /// engine.
    pub fn is_out_of_memory(&self) -> bool {
        [
            "memory allocation of",
            "out of memory",
            "Out of memory",
            "OutOfMemory",
        ]
        .iter()
        .any(|message| self.diagnostics.contains(message))
    }
}

/// The sending half of a worker, and its process, which dies when this and its [`Killer`]s are
/// dropped.
#[derive(Debug)]
pub struct ScriptWorker {
    writer: OwnedWriteHalf,
    process: Arc<Leader>,
    diagnostics: JoinHandle<String>,
}

/// The receiving half of a worker.
#[derive(Debug)]
pub struct Events {
    reader: OwnedReadHalf,
    buffer: BytesMut,
}

/// The agent's ends of a worker's descriptors.
pub(super) struct WorkerStreams {
    pub(super) socket: UnixStream,
    pub(super) stderr: pipe::Receiver,
}

impl ScriptWorker {
    /// Takes ownership of a forked worker. It attaches by itself: its CDP messages must be relayed
    /// until it sends [`FromWorker::Ready`].
    ///
    /// # Errors
    /// Fails if the process has no descriptor left; the worker is killed then.
    pub(super) fn of_fork(pid: Pid, streams: WorkerStreams) -> io::Result<(Self, Events)> {
        // The worker leads a group, so that no signal to the template's group reaches it. This
        // fails only if it has ended.
        let _ = setpgid(pid, pid);
        let process = Arc::new(Leader::of_child(pid)?);
        let (reader, writer) = streams.socket.into_split();
        Ok((
            ScriptWorker {
                writer,
                process,
                diagnostics: tokio::spawn(read_tail(streams.stderr, MAX_DIAGNOSTICS)),
            },
            Events {
                reader,
                buffer: BytesMut::with_capacity(READ_SIZE),
            },
        ))
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a message. Waits while the worker's socket is full. Not cancel-safe: after a cancelled
    /// send the stream contains half a frame, and the worker must be killed.
    pub async fn send(&mut self, message: ToWorker) -> Result<(), SendError> {
        let (kind, payload) = message.encode()?;
        write_frame(&mut self.writer, kind, &payload).await
    }

    /// Returns a handle that kills the process.
    pub fn killer(&self) -> Killer {
        Killer(self.process.clone())
    }

    /// Whether the process has exited.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.process.has_exited()
    }

    /// Waits until the process has exited. The future does not keep it alive.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.process.ended()
    }

    /// Closes the socket, which makes the worker exit, and returns the process.
    pub fn without_socket(self) -> Arc<Leader> {
        self.process
    }

    /// Kills the worker and reaps it.
    pub async fn kill(self) -> Exit {
        self.killer().kill();
        self.wait().await
    }

    /// Waits until the worker exits by itself, and reaps it.
    pub async fn wait(mut self) -> Exit {
        let status = self.process.exit_status().await.ok();
        self.process.reap();
        let diagnostics = (&mut self.diagnostics).await.unwrap_or_default();
        Exit {
            status,
            diagnostics,
        }
    }
}

/// Kills a worker. It has no effect after the worker was reaped.
#[derive(Debug, Clone)]
pub struct Killer(Arc<Leader>);

impl Killer {
    pub fn kill(&self) {
        self.0.signal(Signal::SIGKILL);
    }
}

impl Events {
    /// Waits for the next message. Returns `None` after the worker has closed its end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FromWorker>, FrameError> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                if self.buffer.is_empty() {
                    // A part of the memory of the message, which may be long.
                    self.buffer = BytesMut::with_capacity(READ_SIZE);
                }
                return Ok(Some(message));
            }
            // A killed worker resets the socket, which is an error here.
            if self.reader.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return Ok(None);
            }
        }
    }
}

async fn write_frame(
    writer: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    payload: &Bytes,
) -> Result<(), SendError> {
    let header = header(kind, payload)?;
    let mut frame = bytes::Buf::chain(&header[..], &payload[..]);
    // A single vectored write, if the socket accepts all of it.
    writer.write_all_buf(&mut frame).await?;
    Ok(())
}

/// Reads to the end and returns the last `limit` bytes. Reading everything keeps a worker with much
/// output from blocking.
pub(super) async fn read_tail(mut from: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut tail = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..n]);
        tail.drain(..tail.len().saturating_sub(limit));
    }
    String::from_utf8_lossy(&tail).trim_end().to_owned()
}
