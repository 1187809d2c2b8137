//! Script workers as child processes: start, talk, kill.

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

pub use crate::system::script::protocol::{
    DOWNLOADS, FrameError, FromWorker, MAX_ENTRIES, MAX_OUTPUT, MAX_RESULT, Page, RunOutcome,
    RunRequest, Script, ToWorker,
};
use crate::system::script::protocol::{Frame, header, take};

/// How much of what a worker wrote to its standard error is kept for the log. Scripts cannot write there; a panic does.
const MAX_DIAGNOSTICS: usize = 16 << 10;

/// How to start a worker.
#[derive(Debug, Clone)]
pub struct SpawnOptions {
    /// `berth-script`; its snapshot lies beside it.
    pub program: PathBuf,
    /// A directory of this worker alone: the only files its script can reach but through the browser. A worker that starts as root hands it to `user`.
    pub scratch: PathBuf,
    /// The engine's heap.
    pub heap_mb: u32,
    /// The sum of what a script may write in `scratch`.
    pub scratch_mb: u32,
    /// Who the worker becomes where the agent is root.
    pub user: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot start the script worker {program}: {source}")]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot make the script worker's socket: {0}")]
    Socket(io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the script worker is gone: {0}")]
    Gone(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// How a worker ended and what it said.
#[derive(Debug)]
pub struct Exit {
    pub status: Option<ExitStatus>,
    /// The last of its standard error.
    pub diagnostics: String,
}

impl Exit {
    /// Whether it ended because it could not have more memory: what the allocators say, and the engine.
    pub fn is_out_of_memory(&self) -> bool {
        [
            "memory allocation of",
            "out of memory",
            "Out of memory",
            "OutOfMemory",
        ]
        .iter()
        .any(|words| self.diagnostics.contains(words))
    }
}

/// The writing half of a worker, and its process. Dropping it kills the process.
#[derive(Debug)]
pub struct ScriptWorker {
    pub pid: u32,
    writer: OwnedWriteHalf,
    child: Child,
    diagnostics: JoinHandle<String>,
}

/// The reading half.
#[derive(Debug)]
pub struct Events {
    reader: OwnedReadHalf,
    buffer: BytesMut,
}

impl ScriptWorker {
    /// Starts a worker, which attaches by itself: serve its CDP messages until it says [`FromWorker::Attached`].
    pub async fn spawn(options: &SpawnOptions) -> Result<(ScriptWorker, Events), SpawnError> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(SpawnError::Socket)?;
        ours.set_nonblocking(true).map_err(SpawnError::Socket)?;
        let (reader, writer) = UnixStream::from_std(ours)
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
            command.arg("--user").arg(user);
        }
        // The socket is standard input, so that no code of ours runs between fork and exec. It also is the leash: a worker ends
        // when its other end closes, hence with the agent, however the agent dies.
        let mut child = command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| SpawnError::Start {
                program: options.program.clone(),
                source,
            })?;
        // Both are there: the child was just started, with a piped standard error.
        let pid = child.id().unwrap_or_default();
        let stderr = child.stderr.take();
        let diagnostics = tokio::spawn(async move {
            match stderr {
                Some(stderr) => last_of(stderr, MAX_DIAGNOSTICS).await,
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

    /// Waits while the worker's socket is full. Not cancel-safe: a send dropped half-way leaves half a frame, so kill the worker then.
    pub async fn send(&mut self, message: ToWorker) -> Result<(), SendError> {
        let (kind, payload) = message.encode()?;
        write_frame(&mut self.writer, kind, &payload).await
    }

    /// What kills the process at once, from wherever it is needed.
    pub fn killer(&self) -> Killer {
        Killer(self.child.id().and_then(|pid| i32::try_from(pid).ok()))
    }

    /// The process alone, its socket closed: it ends by itself then.
    pub fn without_socket(self) -> Child {
        self.child
    }

    /// Kills the worker's process group and reaps it.
    pub async fn kill(self) -> Exit {
        self.killer().kill();
        self.wait().await
    }

    /// Waits for a worker that ends by itself.
    pub async fn wait(mut self) -> Exit {
        let status = self.child.wait().await.ok();
        let diagnostics = (&mut self.diagnostics).await.unwrap_or_default();
        Exit {
            status,
            diagnostics,
        }
    }
}

/// Kills a worker's process group. Only until the worker is reaped: its id may be somebody else's afterwards.
#[derive(Debug, Clone, Copy)]
pub struct Killer(Option<i32>);

impl Killer {
    pub fn kill(self) {
        if let Some(group) = self.0 {
            // Gone already is as good.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

impl Events {
    /// The next message; `None` once the worker has closed its end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FromWorker>, FrameError> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                return Ok(Some(message));
            }
            // An error here is a reset of the socket, which is how a killed worker closes it.
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
    // One vectored write for header and payload where the socket takes it whole.
    writer.write_all_buf(&mut frame).await?;
    Ok(())
}

/// Reads to the end and keeps the last `limit` bytes, so that a chatty worker neither stalls nor fills memory.
async fn last_of(mut from: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..n]);
        kept.drain(..kept.len().saturating_sub(limit));
    }
    String::from_utf8_lossy(&kept).trim_end().to_owned()
}
