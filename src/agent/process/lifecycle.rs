//! The lifecycle of a client process, from its start until no process of it is left.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::handle::Process;
use crate::{
    shutdown::Shutdown,
    system::process::tree::{self, ProcessSnapshot},
};

/// The exit code of a program that ran into its timeout, as with `timeout(1)`.
pub(super) const EXIT_TIMED_OUT: i32 = 124;
/// The exit code of a process whose real exit code is unknown.
const EXIT_UNKNOWN: i32 = 255;
/// Time between SIGTERM and SIGKILL.
pub(super) const TERM_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Time to read more output after the exit if other processes keep the output open.
pub(super) const OUTPUT_GRACE_PERIOD: Duration = Duration::from_millis(500);
/// Interval between checks whether the session has living processes.
const SESSION_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// The conditions that end a process early.
pub(super) struct Lifecycle {
    /// The time at which the process and everything it started is terminated.
    pub(super) deadline: Option<time::Instant>,
    /// Terminates the process when cancelled.
    pub(super) cancel: CancellationToken,
    /// Kills the process when the session ends.
    pub(super) shutdown: Shutdown,
}

/// The exit of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) is_timed_out: bool,
}

impl Lifecycle {
    /// Waits for the exit of `process`, and terminates it at the deadline or when cancelled.
    /// Other processes of its session may live on; see [`Lifecycle::reap`].
    pub(super) async fn supervise(&self, process: &Process) -> Exit {
        let exit = self.exit_of(process).await;
        process.set_exited(exit.code).await;
        exit
    }

    async fn exit_of(&self, process: &Process) -> Exit {
        let is_timed_out = tokio::select! {
            biased;
            code = exit_code(process) => return Exit { code, is_timed_out: false },
            () = self.deadline_passed() => true,
            () = self.cancel.cancelled() => false,
        };
        let exited = tokio::select! {
            biased;
            () = self.shutdown.discarded() => None,
            code = terminate(process) => code,
        };
        kill(process).await;
        let code = match exited {
            Some(code) => code,
            None => exit_code(process).await,
        };
        Exit { code, is_timed_out }
    }

    async fn deadline_passed(&self) {
        match self.deadline {
            Some(deadline) => time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Kills what an exited process left behind and reaps it. Returns whether both succeeded;
    /// otherwise [`Lifecycle::reap`] must finish the work.
    pub(super) async fn kill_and_reap(&self, process: &Process) -> bool {
        kill(process).await && process.leader.reap()
    }

    /// Waits until the session of an exited process is empty and reaps the process. The deadline
    /// and the cancellation kill the rest of the session.
    pub(super) async fn reap(&self, process: &Process) {
        let (mut is_timed_out, mut is_cancelled) = (false, false);
        let mut since = Instant::now();
        loop {
            if process.is_kill_requested() {
                kill(process).await;
            }
            match ProcessSnapshot::since(since).await {
                Ok(snapshot) => {
                    let is_empty = !snapshot.is_session_alive(process.pid());
                    if is_empty && !process.is_kill_requested() && process.leader.reap() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot scan processes"),
            }
            // Accepting a slightly older snapshot lets concurrent callers share one.
            since = Instant::now() + SESSION_SCAN_INTERVAL / 2;
            tokio::select! {
                () = time::sleep(SESSION_SCAN_INTERVAL) => continue,
                () = process.signalled.notified() => {}
                () = self.deadline_passed(), if !is_timed_out => {
                    is_timed_out = true;
                    request_termination(process).await;
                    let _ = time::timeout(TERM_GRACE_PERIOD, self.cancel.cancelled()).await;
                    process.request_kill();
                }
                () = self.cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    process.request_kill();
                }
            }
            since = Instant::now();
        }
    }
}

/// Asks the process to end. Returns its exit code, unless it takes too long.
async fn terminate(process: &Process) -> Option<i32> {
    request_termination(process).await;
    let exited = time::timeout(TERM_GRACE_PERIOD, exit_code(process)).await;
    exited.ok()
}

async fn exit_code(process: &Process) -> i32 {
    process.leader.exited().await.unwrap_or_else(|error| {
        tracing::error!(%error, pid = process.pid(), "cannot watch a process, killing it");
        process.leader.signal(Signal::SIGKILL);
        EXIT_UNKNOWN
    })
}

/// Sends SIGTERM, and SIGHUP if the process has a terminal: an interactive shell ignores SIGTERM
/// but exits when it loses its terminal.
async fn request_termination(process: &Process) {
    let hangup = process.has_terminal().then_some(Signal::SIGHUP);
    for signal in [Signal::SIGTERM].into_iter().chain(hangup) {
        if let Err(error) = tree::signal_tree(process.leader.clone(), signal).await {
            tracing::warn!(%error, pid = process.pid(), %signal, "cannot signal a process");
        }
    }
}

/// Kills the process tree. Returns whether no process is left.
async fn kill(process: &Process) -> bool {
    process.kill().await.unwrap_or_else(|error| {
        tracing::warn!(%error, pid = process.pid(), "cannot kill a process tree");
        false
    })
}
