//! Client programs that lead a session: started, watched, signalled and reaped.
//!
//! ```text
//! Program ── PreExec ── fork, set up, exec ──▶ ProcessSession
//!                            ForkReport         Leader + Streams
//!
//! Leader:  running ──exit──▶ zombie ──reap()──▶ reaped
//! ```
//!
//! A [`Leader`] stays a zombie until [`Leader::reap`], which keeps its pid, its process group and
//! its session id from being reused. A signal to the group before that reaches no other
//! process. A [`PidPin`] holds this state while a kill or a scan uses the pid.
//!
//! `spawn` starts the process, `fork` forks it, `pre_exec` sets it up after the fork,
//! `dispositions` resets signals, `exec_image` is the program to execute, `fork_report` reports
//! whether it was executed, `leader` owns the running process, `fork_count` counts forks,
//! `output_pipes` opens pipes ahead, `pidfd` wraps the kernel's process descriptors.

mod dispositions;
mod exec_image;
mod fork;
mod fork_count;
mod fork_report;
mod leader;
mod output_pipes;
pub(in crate::system::process) mod pidfd;
mod pre_exec;
mod spawn;

pub use leader::{Leader, PidPin};
pub use output_pipes::{OutputPipes, SparePipes};
pub use pre_exec::EXEC_TIMEOUT;

use std::{ffi::OsString, io, os::fd::OwnedFd, path::PathBuf};

use nix::unistd::{Gid, Uid};
use tokio::net::unix::pipe;

use crate::system::process::{
    cgroup::Cgroup,
    mount_namespace::MountNamespace,
    pty::{Terminal, TerminalSize},
};

/// The user and groups that a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub uid: Uid,
    pub gid: Gid,
    pub groups: Vec<Gid>,
}

/// The directory a program starts in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkingDirectory {
    /// Starting fails if it cannot be entered.
    Required(PathBuf),
    /// The program starts in `/` if it cannot be entered.
    Preferred(PathBuf),
}

/// The standard streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdioMode {
    /// Three pipes.
    Pipes,
    /// Pipes for the output, and an empty standard input.
    NoInput,
    /// A pseudo-terminal, which is also the controlling terminal.
    Terminal(TerminalSize),
}

/// A program to start.
#[derive(Debug)]
pub struct Program {
    pub command: String,
    pub args: Vec<String>,
    /// Added to the non-secret part of the agent's environment; overrides equal names.
    pub env: Vec<(OsString, OsString)>,
    pub directory: WorkingDirectory,
    /// `None` keeps the agent's own.
    pub credentials: Option<Credentials>,
    /// `None` keeps the agent's own.
    pub namespace: Option<MountNamespace>,
    /// Whether the program, and what it starts, can gain rights, as by set-user-ID programs.
    pub can_gain_rights: bool,
    pub stdio: StdioMode,
    /// The pipes of its output, if it has pipes. `None` opens new ones.
    pub output_pipes: Option<OutputPipes>,
    /// The cgroup to start in. `None` keeps the agent's own.
    pub cgroup: Option<Cgroup>,
}

/// The reason why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot enter the working directory: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot enter the session's mount namespace: {0}")]
    Namespace(#[source] io::Error),
    #[error("cannot switch user: {0}")]
    Credentials(#[source] io::Error),
    #[error("cannot execute the program: {0}")]
    Program(#[source] io::Error),
    /// The system has no process, descriptor or memory left.
    #[error("the system cannot start another process: {0}")]
    Exhausted(#[source] io::Error),
    #[error("the program was killed before it was executed")]
    Killed,
    /// The process was stopped, or its file system does not respond. It is killed.
    #[error("the program was not executed within {} s", EXEC_TIMEOUT.as_secs())]
    Timeout,
    #[error("{0}")]
    Other(#[from] io::Error),
}

/// A running program.
#[derive(Debug)]
pub struct ProcessSession {
    pub leader: Leader,
    pub streams: Streams,
}

/// The agent's ends of a program's standard streams.
#[derive(Debug)]
pub enum Streams {
    Pipes {
        stdin: Option<pipe::Sender>,
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
    },
    Terminal {
        terminal: Terminal,
        /// The program's side. While it is held, the terminal does not report end-of-file even
        /// if no program has it open.
        slave: OwnedFd,
    },
}

impl ProcessSession {
    /// Starts a program. When this fails, nothing runs. It succeeds also if the process was killed
    /// when it was about to execute the program; see [`Leader::was_killed_before_exec`].
    ///
    /// # Errors
    /// Fails if the program cannot be executed as requested or the system lacks resources.
    pub async fn start(program: Program) -> Result<Self, StartError> {
        spawn::start(program).await
    }
}

#[cfg(test)]
mod tests;
