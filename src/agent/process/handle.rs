//! The handle of one client process.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time,
};

use super::{
    capture::OutputLog,
    cpu_usage::CpuUsage,
    input::{Input, StdinError},
    output::ProcessOutput,
};
use crate::{
    api::{
        ids::ProcessId,
        process::{KillSignal, ProcessEvent},
    },
    streams::{self, Reader},
    system::process::{
        pty::{Terminal, TerminalSize},
        session::{Leader, ProcessSession, Streams},
        tree::{self, ProcessSnapshot},
    },
};

/// The maximum age of the data in a [`ProcessStatus`].
const MAX_STATUS_AGE: Duration = Duration::from_millis(50);
/// Time for the exit of a killed process to be recorded.
const EXIT_RECORD_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("the process has exited")]
    Exited,
    #[error("cannot resize the terminal: {0}")]
    Failed(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    #[error("some processes survived SIGKILL for 5 s; still retrying")]
    Survived,
    #[error("cannot scan processes: {0}")]
    Scan(#[from] io::Error),
}

/// The state and resource usage of a process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessStatus {
    /// `None` while it runs.
    pub exit_code: Option<i32>,
    /// 100 means one core.
    pub cpu_percent: f64,
    pub resident_bytes: u64,
}

/// A process that was started for a client.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    pub started_at: DateTime<Utc>,
    pub(super) leader: Arc<Leader>,
    /// The mark of its process tree.
    mark: String,
    log: OutputLog,
    input: Input,
    has_terminal: bool,
    /// `None` once it has exited.
    terminal: Mutex<Option<Arc<Terminal>>>,
    exit_code: watch::Sender<Option<i32>>,
    /// Notified after a signal, because the session may be empty now.
    pub(super) signalled: Notify,
    /// Whether the tree must be killed, repeatedly until that succeeds.
    is_kill_requested: AtomicBool,
    created_at: Instant,
    cpu_usage: Mutex<CpuUsage>,
}

impl Process {
    pub(super) fn new(
        id: ProcessId,
        mark: String,
        session: ProcessSession,
        log: OutputLog,
    ) -> (Self, ProcessOutput) {
        let (input, terminal, output) = match session.streams {
            Streams::Pipes {
                stdin,
                stdout,
                stderr,
            } => {
                let output = ProcessOutput::Pipes { stdout, stderr };
                (Input::pipe(stdin), None, output)
            }
            Streams::Terminal { terminal, slave } => {
                let terminal = Arc::new(terminal);
                let output = ProcessOutput::Terminal {
                    terminal: terminal.clone(),
                    slave,
                };
                (Input::terminal(terminal.clone()), Some(terminal), output)
            }
        };
        let created_at = Instant::now();
        let process = Process {
            id,
            started_at: Utc::now(),
            leader: Arc::new(session.leader),
            mark,
            log,
            input,
            has_terminal: terminal.is_some(),
            terminal: Mutex::new(terminal),
            exit_code: watch::Sender::new(None),
            signalled: Notify::new(),
            is_kill_requested: AtomicBool::new(false),
            created_at,
            cpu_usage: Mutex::new(CpuUsage::new(created_at)),
        };
        (process, output)
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.leader.pid()
    }

    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        *self.exit_code.borrow()
    }

    #[must_use]
    pub fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// Returns a reader of its output events. The last event is its exit.
    #[must_use]
    pub fn output(&self, from: streams::StartAt) -> Reader<Arc<ProcessEvent>> {
        self.log.reader(from)
    }

    /// Returns the size of the retained output.
    pub(super) fn output_bytes(&self) -> usize {
        self.log.weight()
    }

    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub async fn status(&self) -> io::Result<ProcessStatus> {
        let now = Instant::now();
        // A snapshot from before its start would not contain it.
        let oldest = now.checked_sub(MAX_STATUS_AGE).unwrap_or(now);
        let snapshot = ProcessSnapshot::since(oldest.max(self.created_at)).await?;
        // Once it is reaped, its pid may belong to another process.
        let usage = match Leader::pin(&self.leader) {
            Some(_pin) => snapshot.usage(self.pid()),
            None => tree::Usage::default(),
        };
        Ok(ProcessStatus {
            exit_code: self.exit_code(),
            cpu_percent: self.cpu_usage.lock().sample(now, usage.cpu),
            resident_bytes: usage.resident_bytes,
        })
    }

    /// Signals the process and everything it started. For SIGKILL, waits until no process is left.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read, or if some processes survived SIGKILL.
    pub async fn signal(&self, signal: KillSignal) -> Result<(), SignalError> {
        let signal = match signal {
            KillSignal::Term => Signal::SIGTERM,
            KillSignal::Int => Signal::SIGINT,
            KillSignal::Hup => Signal::SIGHUP,
            KillSignal::Kill => {
                if !self.kill().await? {
                    return Err(SignalError::Survived);
                }
                let _ = time::timeout(EXIT_RECORD_TIMEOUT, self.exited()).await;
                return Ok(());
            }
        };
        let result = tree::signal_tree(self.leader.clone(), signal).await;
        self.signalled.notify_one();
        Ok(result?)
    }

    /// Kills the process tree. Returns whether no process is left.
    pub(super) async fn kill(&self) -> io::Result<bool> {
        self.request_kill();
        let killed = tree::kill_tree(self.leader.clone(), self.mark.clone()).await;
        if let Ok(true) = killed {
            self.is_kill_requested.store(false, Ordering::Relaxed);
            self.signalled.notify_one();
        }
        killed
    }

    /// Makes [`Lifecycle::reap`](super::lifecycle::Lifecycle::reap) kill the whole tree.
    pub(super) fn request_kill(&self) {
        self.is_kill_requested.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_kill_requested(&self) -> bool {
        self.is_kill_requested.load(Ordering::Relaxed)
    }

    /// # Errors
    /// Fails if it has no terminal or has exited.
    pub fn resize(&self, size: TerminalSize) -> Result<(), ResizeError> {
        if !self.has_terminal {
            return Err(ResizeError::NoTerminal);
        }
        let terminal = self.terminal.lock().clone().ok_or(ResizeError::Exited)?;
        Ok(terminal.resize(size)?)
    }

    /// Writes to the standard input, for at most [`WRITE_TIMEOUT`](super::WRITE_TIMEOUT). Returns
    /// the number of bytes written.
    ///
    /// # Errors
    /// Fails if the standard input is closed or the process has exited.
    pub async fn write_stdin(&self, data: &[u8], end: bool) -> Result<usize, StdinError> {
        if self.exit_code().is_some() {
            return Err(StdinError::Exited);
        }
        self.input.write(data, end, self.exited()).await
    }

    /// Writes all of `data` to its standard input in one piece. There is no timeout; the caller
    /// may drop the future.
    ///
    /// # Errors
    /// Fails if the standard input is closed or the process has exited.
    pub async fn write_stdin_all(&self, data: &[u8]) -> Result<(), StdinError> {
        if self.exit_code().is_some() {
            return Err(StdinError::Exited);
        }
        self.input.write_all(data, self.exited()).await
    }

    /// Resolves once it has exited.
    pub fn exited(&self) -> impl Future<Output = ()> + use<> {
        let mut exit_code = self.exit_code.subscribe();
        async move {
            // The wait fails only if this process was dropped.
            let _ = exit_code.wait_for(Option::is_some).await;
        }
    }

    /// Records the exit code and closes its descriptors. Its output log stays readable.
    pub(super) async fn set_exited(&self, code: i32) {
        self.exit_code.send_replace(Some(code));
        self.terminal.lock().take();
        self.input.close().await;
    }
}
