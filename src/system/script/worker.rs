//! Script workers as child processes: starting, messages, killing.

use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use bytes::{Bytes, BytesMut};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command},
    task::JoinHandle,
};

pub use super::protocol::{
    DOWNLOADS, FrameError, FromWorker, MAX_ENTRIES, MAX_OUTPUT, MAX_RESULT, Page, RunOutcome,
    RunRequest, Script, ToWorker,
};
use super::protocol::{Frame, header, take};
use crate::system::process::session::Credentials;

/// The most bytes of a worker's standard error that are retained for the log. Scripts cannot write
/// there; a panic does.
const MAX_DIAGNOSTICS: usize = 16 << 10;

/// The options of a worker.
#[derive(Debug, Clone)]
pub struct SpawnOptions {
    /// The path of `berth-script`. Its snapshot is in the same directory.
    pub program: PathBuf,
    /// The worker's own directory: the only files that its script can access except through the
    /// browser. A worker that starts as root changes its owner to `user`.
    pub scratch: PathBuf,
    /// The size limit of the engine's heap.
    pub heap_mb: u32,
    /// The size limit of the files in `scratch`.
    pub scratch_mb: u32,
    /// The user that the worker becomes, without further groups. Needed if it starts as root.
    pub user: Option<Credentials>,
}

/// Why a worker was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot start the script worker {program}: {source}")]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot create the script worker's socket: {0}")]
    Socket(io::Error),
}

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

/// The sending half of a worker, and its process. Dropping it kills the process.
#[derive(Debug)]
pub struct ScriptWorker {
    pub pid: u32,
    writer: OwnedWriteHalf,
    child: Child,
    diagnostics: JoinHandle<String>,
}

/// The receiving half of a worker.
#[derive(Debug)]
pub struct Events {
    reader: OwnedReadHalf,
    buffer: BytesMut,
}

impl ScriptWorker {
    /// Starts a worker. It attaches by itself: its CDP messages must be relayed until it sends
    /// [`FromWorker::Attached`].
    pub async fn spawn(options: &SpawnOptions) -> Result<(ScriptWorker, Events), SpawnError> {
        let (agent_end, worker_end) =
            std::os::unix::net::UnixStream::pair().map_err(SpawnError::Socket)?;
        agent_end
            .set_nonblocking(true)
            .map_err(SpawnError::Socket)?;
        let (reader, writer) = UnixStream::from_std(agent_end)
            .map_err(SpawnError::Socket)?
            .into_split();

        let mut command = Command::new(&options.program);
        command
            .arg("worker")
            .arg("--scratch")
            .arg(&options.scratch)
            .arg("--heap-mb")
            .arg(options.heap_mb.to_string())
            .arg("--scratch-mb")
            .arg(options.scratch_mb.to_string());
        if let Some(user) = &options.user {
            command
                .args(["--uid", &user.uid.to_string()])
                .args(["--gid", &user.gid.to_string()]);
        }
        // The socket is the standard input, so that no code runs between fork and exec. It also
        // bounds the worker's life: a worker exits when the other end closes, which happens however
        // the agent dies.
        let mut child = command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(worker_end)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| SpawnError::Start {
                program: options.program.clone(),
                source,
            })?;
        // A new child has a process id and, being piped, a standard error.
        let pid = child.id().unwrap_or_default();
        let stderr = child.stderr.take();
        let diagnostics = tokio::spawn(async move {
            match stderr {
                Some(stderr) => read_tail(stderr, MAX_DIAGNOSTICS).await,
                None => String::new(),
            }
        });
        Ok((
            ScriptWorker {
                pid,
                writer,
                child,
                diagnostics,
            },
            Events {
                reader,
                buffer: BytesMut::with_capacity(16 << 10),
            },
        ))
    }

    /// Sends a message. Waits while the worker's socket is full. Not cancel-safe: after a cancelled
    /// send the stream contains half a frame, and the worker must be killed.
    pub async fn send(&mut self, message: ToWorker) -> Result<(), SendError> {
        let (kind, payload) = message.encode()?;
        write_frame(&mut self.writer, kind, &payload).await
    }

    /// Returns a handle that kills the process.
    pub fn killer(&self) -> Killer {
        Killer(self.child.id().and_then(|pid| i32::try_from(pid).ok()))
    }

    /// Closes the socket, which makes the worker exit, and returns the process.
    pub fn without_socket(self) -> Child {
        self.child
    }

    /// Kills the worker's process group and reaps it.
    pub async fn kill(self) -> Exit {
        self.killer().kill();
        self.wait().await
    }

    /// Waits until the worker exits by itself.
    pub async fn wait(mut self) -> Exit {
        let status = self.child.wait().await.ok();
        let diagnostics = (&mut self.diagnostics).await.unwrap_or_default();
        Exit {
            status,
            diagnostics,
        }
    }
}

/// Kills a worker's process group. It must not be used after the worker was reaped, because another
/// process may have its id then.
#[derive(Debug, Clone, Copy)]
pub struct Killer(Option<i32>);

impl Killer {
    pub fn kill(self) {
        if let Some(group) = self.0 {
            // This fails if the group has ended.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

impl Events {
    /// Waits for the next message. Returns `None` after the worker has closed its end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FromWorker>, FrameError> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
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
async fn read_tail(mut from: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut tail = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..n]);
        tail.drain(..tail.len().saturating_sub(limit));
    }
    String::from_utf8_lossy(&tail).trim_end().to_owned()
}
