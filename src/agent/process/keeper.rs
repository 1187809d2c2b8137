//! What accompanies a process from its start until nothing is left of it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::running::Process;
use crate::system::process::tree::{self, ProcessSnapshot};

/// The exit code of a program whose time was over, as `timeout(1)` has it.
pub const EXIT_TIMED_OUT: i32 = 124;
/// For a process to end by itself when it is asked to, before it is killed.
pub const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long output is waited for after a process's exit where others that it has started hold its output open.
pub const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// How often it is looked whether those others are still there.
const LOOK: Duration = Duration::from_secs(1);
/// An exit code for a process whose own cannot be learned.
const EXIT_UNKNOWN: i32 = 255;

pub struct Keeper {
    /// When it is to end, with all it has started.
    pub deadline: Option<time::Instant>,
    /// Ends it early.
    pub cancel: CancellationToken,
}

/// How a process came to its end.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub exit_code: i32,
    pub timed_out: bool,
}

impl Keeper {
    /// Sees to the process's end. Then [`Keeper::see_off`] has its turn.
    pub async fn keep(&self, process: &Process) -> End {
        let end = self.wait(process).await;
        process.set_exited(end.exit_code).await;
        end
    }

    async fn wait(&self, process: &Process) -> End {
        let timed_out = tokio::select! {
            biased;
            exit_code = exit_of(process) => return End { exit_code, timed_out: false },
            () = self.time_is_over() => true,
            () = self.cancel.cancelled() => false,
        };
        ask_to_end(process).await;
        let ended = time::timeout(TERM_GRACE, exit_of(process)).await;
        kill(process).await;
        let exit_code = match ended {
            Ok(exit_code) => exit_code,
            Err(_) => exit_of(process).await,
        };
        End {
            exit_code,
            timed_out,
        }
    }

    async fn time_is_over(&self) {
        match self.deadline {
            Some(deadline) => time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Kills what an ended process has left. Whether that is over, and its number given back: usually at once.
    pub async fn clear(&self, process: &Process) -> bool {
        kill(process).await && process.leader.reap()
    }

    /// Gives the process's number back once nobody is in its session any more.
    pub async fn see_off(&self, process: &Process) {
        let (mut timed_out, mut cancelled) = (false, false);
        let mut since = Instant::now();
        loop {
            if process.is_condemned() {
                kill(process).await;
            }
            match ProcessSnapshot::since(since).await {
                Ok(snapshot) => {
                    let is_over =
                        !process.is_condemned() && !snapshot.is_session_alive(process.pid());
                    if is_over && process.leader.reap() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(%error, "processes cannot be looked at"),
            }
            // Who looks at about the same time shares the look.
            since = Instant::now() + LOOK / 2;
            tokio::select! {
                () = time::sleep(LOOK) => continue,
                () = process.signalled.notified() => {}
                () = self.time_is_over(), if !timed_out => {
                    timed_out = true;
                    ask_to_end(process).await;
                    let _ = time::timeout(TERM_GRACE, self.cancel.cancelled()).await;
                    process.condemn();
                }
                () = self.cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    process.condemn();
                }
            }
            since = Instant::now();
        }
    }
}

async fn exit_of(process: &Process) -> i32 {
    process.leader.exited().await.unwrap_or_else(|error| {
        tracing::error!(%error, pid = process.pid(), "the end of a process cannot be watched");
        process.leader.signal(Signal::SIGKILL);
        EXIT_UNKNOWN
    })
}

/// As the system does at its end. A shell in front of somebody takes no notice of the one signal, but knows what the loss of its terminal means.
async fn ask_to_end(process: &Process) {
    let hangup = process.has_terminal().then_some(Signal::SIGHUP);
    for signal in [Signal::SIGTERM].into_iter().chain(hangup) {
        if let Err(error) = tree::signal_tree(process.leader.clone(), signal).await {
            tracing::warn!(%error, pid = process.pid(), "a process could not be asked to end");
        }
    }
}

async fn kill(process: &Process) -> bool {
    process.kill().await.unwrap_or_else(|error| {
        tracing::warn!(%error, pid = process.pid(), "what a process has started may be left");
        false
    })
}
