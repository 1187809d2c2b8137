//! The template of the workers: a process with a started script engine, of which each is a fork.
//!
//! ```text
//! WorkerTemplate::fork ── ForkRequest + descriptors ──▶ template process ── fork ──▶ worker
//!                      ◀── ForkReply: the pid ─────────
//! no process, or it has failed ── start ── fork
//! ```
//!
//! [`WorkerTemplate`] starts its process when it is needed, and another one if that ends. It
//! handles one request at a time. The process ends when the agent's end of its socket closes,
//! however the agent ends.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
    },
    unistd::Pid,
};
use tokio::{
    net::{UnixDatagram, UnixStream, unix::pipe},
    process::{Child, Command},
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

pub use super::protocol::ForkRequest;
use super::{
    protocol::{ForkReply, MAX_FORK_MESSAGE},
    worker::{Events, MAX_DIAGNOSTICS, ScriptWorker, WorkerStreams, read_tail},
};
use crate::system::process::{
    child::describe_exit,
    session::{Credentials, Leader},
};

/// The longest wait for a worker. A new process restores its snapshot in a small part of it.
const FORK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for a process to exit that has closed its socket, before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The options of the template, and of its workers.
#[derive(Debug, Clone)]
pub struct TemplateOptions {
    /// The path of `berth-script`. Its snapshot is in the same directory.
    pub program: PathBuf,
    /// The parent of the scratch directories. A worker can access only the files in its own, except
    /// through the browser. One that starts as root changes the owner of its directory to `user`.
    pub scratch: PathBuf,
    /// The size limit of the engine's heap.
    pub heap_mb: u32,
    /// The size limit of the files in a scratch directory.
    pub scratch_mb: u32,
    /// The user that workers become, without further groups. Needed if the agent is root.
    pub user: Option<Credentials>,
}

/// Why a worker was not started.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error("cannot start the script worker {program}: {source}")]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot create the script worker's descriptors: {0}")]
    Descriptors(io::Error),
    #[error("cannot watch the script worker: {0}")]
    Watch(io::Error),
    #[error("cannot fork a script worker: {0}")]
    Refused(String),
    #[error("the template of the script workers has ended ({status}): {diagnostics}")]
    Ended { status: String, diagnostics: String },
    #[error("the template of the script workers sent no valid reply: {0}")]
    Reply(serde_json::Error),
    #[error("no script worker was forked within {} s", FORK_TIMEOUT.as_secs())]
    Timeout,
    #[error("script workers are no longer started")]
    Closed,
    #[error("starting a script worker was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// Starts workers by forking a process that has started already. Clones share it.
#[derive(Debug, Clone)]
pub struct WorkerTemplate {
    options: Arc<TemplateOptions>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<TemplateProcess>,
    is_closed: bool,
}

impl WorkerTemplate {
    #[must_use]
    pub fn new(options: TemplateOptions) -> Self {
        WorkerTemplate {
            options: Arc::new(options),
            state: Arc::default(),
        }
    }

    /// Forks a worker.
    ///
    /// # Errors
    /// Fails if the process, or a new one in its place, forks none.
    pub async fn fork(&self, request: ForkRequest) -> Result<(ScriptWorker, Events), ForkError> {
        let mut state = self.state.clone().lock_owned().await;
        let options = self.options.clone();
        // A task of its own: if the caller leaves, the worker is still received, and dropped.
        tokio::spawn(async move { state.fork(&options, &request).await }).await?
    }

    /// Ends the process. Its workers keep running, and the next one is forked from a new process.
    pub async fn stop(&self) {
        self.state.lock().await.end().await;
    }

    /// Ends the process, and starts no other one.
    pub async fn close(&self) {
        let mut state = self.state.lock().await;
        state.is_closed = true;
        state.end().await;
    }
}

impl State {
    async fn fork(
        &mut self,
        options: &TemplateOptions,
        request: &ForkRequest,
    ) -> Result<(ScriptWorker, Events), ForkError> {
        if self.is_closed {
            return Err(ForkError::Closed);
        }
        let deadline = Instant::now() + FORK_TIMEOUT;
        if let Some(process) = &mut self.process {
            match process.fork(request, deadline).await {
                // It may have ended since its last fork.
                Err(error) if process.has_failed => {
                    let end = self.end().await;
                    tracing::warn!(%error, ?end, "replacing the template of the script workers");
                }
                result => return result,
            }
        }
        let process = self.process.insert(TemplateProcess::start(options)?);
        let result = process.fork(request, deadline).await;
        if !process.has_failed {
            return result;
        }
        let end = self.end().await;
        match (result, end) {
            (Err(ForkError::Ended { .. }), Some((status, diagnostics))) => Err(ForkError::Ended {
                status,
                diagnostics,
            }),
            (result, _) => result,
        }
    }

    /// Ends the process, if there is one, and returns how it has ended and the end of its standard
    /// error.
    async fn end(&mut self) -> Option<(String, String)> {
        Some(self.process.take()?.end().await)
    }
}

/// A running template process. Dropping it kills it.
#[derive(Debug)]
struct TemplateProcess {
    /// A connection of datagrams: unlike a plain datagram socket, it shows the end of the process.
    socket: UnixDatagram,
    child: Child,
    diagnostics: JoinHandle<String>,
    /// Whether it may not be used again: it does not answer as it should.
    has_failed: bool,
}

impl TemplateProcess {
    fn start(options: &TemplateOptions) -> Result<Self, ForkError> {
        let (socket, other) = socket_pair().map_err(ForkError::Descriptors)?;
        let mut command = Command::new(&options.program);
        command
            .arg("template")
            .arg("--scratch")
            .arg(&options.scratch)
            .args(["--heap-mb", &options.heap_mb.to_string()])
            .args(["--scratch-mb", &options.scratch_mb.to_string()]);
        if let Some(user) = &options.user {
            command
                .args(["--uid", &user.uid.to_string()])
                .args(["--gid", &user.gid.to_string()]);
        }
        // The socket is the standard input, so that no code runs between fork and exec.
        let mut child = command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| ForkError::Start {
                program: options.program.clone(),
                source,
            })?;
        let stderr = child.stderr.take();
        let diagnostics = tokio::spawn(async move {
            match stderr {
                Some(stderr) => read_tail(stderr, MAX_DIAGNOSTICS).await,
                None => String::new(),
            }
        });
        Ok(TemplateProcess {
            socket,
            child,
            diagnostics,
            has_failed: false,
        })
    }

    async fn fork(
        &mut self,
        request: &ForkRequest,
        deadline: Instant,
    ) -> Result<(ScriptWorker, Events), ForkError> {
        let (streams, descriptors) = worker_streams().map_err(ForkError::Descriptors)?;
        self.has_failed = true;
        self.send(request, descriptors)?;
        let received = timeout_at(deadline, self.receive()).await;
        let reply = received.map_err(|_| ForkError::Timeout)??;
        self.has_failed = false;
        match reply {
            ForkReply::Forked { pid } => {
                ScriptWorker::of_fork(Pid::from_raw(pid), streams).map_err(ForkError::Watch)
            }
            ForkReply::Failed { reason } => Err(ForkError::Refused(reason)),
        }
    }

    /// Sends a request with the worker's descriptors, which are closed here.
    fn send(&self, request: &ForkRequest, descriptors: [OwnedFd; 2]) -> Result<(), ForkError> {
        let request = serde_json::to_vec(request).map_err(ForkError::Reply)?;
        let descriptors = descriptors.each_ref().map(AsRawFd::as_raw_fd);
        // The process reads each request before the next one is sent, so there is space for it.
        let sent = sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&request)],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            None,
        );
        sent.map(drop).map_err(|_| hung_up())
    }

    async fn receive(&self) -> Result<ForkReply, ForkError> {
        let mut buffer = [0; MAX_FORK_MESSAGE];
        match self.socket.recv(&mut buffer).await {
            // A process that was killed resets the socket.
            Ok(0) | Err(_) => Err(hung_up()),
            Ok(length) => serde_json::from_slice(&buffer[..length]).map_err(ForkError::Reply),
        }
    }

    /// Ends the process, and returns how it has ended and the end of its standard error.
    async fn end(mut self) -> (String, String) {
        if !self.has_failed || timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            // Fails if it has ended.
            let _ = self.child.start_kill();
        }
        let status = describe_exit(self.child.wait().await);
        self.reap_unknown_worker();
        (status, self.diagnostics.await.unwrap_or_default())
    }

    /// Kills and reaps a worker whose reply was not awaited: it is a child of this process.
    fn reap_unknown_worker(&self) {
        let mut buffer = [0; MAX_FORK_MESSAGE];
        let Ok(length @ 1..) = self.socket.try_recv(&mut buffer) else {
            return;
        };
        if let Ok(ForkReply::Forked { pid }) = serde_json::from_slice(&buffer[..length]) {
            drop(Leader::of_child(Pid::from_raw(pid)));
        }
    }
}

/// Returns the error of a process that has closed its socket. How it has ended is known later.
fn hung_up() -> ForkError {
    ForkError::Ended {
        status: "its socket is closed".to_owned(),
        diagnostics: String::new(),
    }
}

fn socket_pair() -> io::Result<(UnixDatagram, OwnedFd)> {
    let (own, other) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let own = std::os::unix::net::UnixDatagram::from(own);
    own.set_nonblocking(true)?;
    Ok((UnixDatagram::from_std(own)?, other))
}

/// Returns both ends of a worker's socket and standard error.
fn worker_streams() -> io::Result<(WorkerStreams, [OwnedFd; 2])> {
    let (socket, worker_socket) = std::os::unix::net::UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    let (stderr, worker_stderr) = io::pipe()?;
    let streams = WorkerStreams {
        socket: UnixStream::from_std(socket)?,
        stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
    };
    Ok((streams, [worker_socket.into(), worker_stderr.into()]))
}
