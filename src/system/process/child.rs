//! Child processes that cannot outlive this process.
//!
//! Every child leads its own process group, so that it can be ended together with everything it
//! started. The kernel kills it when this process dies, even by SIGKILL. For that, the kernel
//! watches the *thread* that forked and not the process, so all children but programs of clients
//! are started by one thread that lives as long as the process: that of an agent is its main
//! thread, which alone remains when the process continues with another program
//! ([`super::handover`]).

mod adopted;
mod output;
mod spawner;

use std::{
    io,
    os::{
        fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::{
        prctl,
        signal::{self, SigSet, SigmaskHow, Signal},
    },
    unistd::{self, Pid},
};
use serde::{Deserialize, Serialize};
use tokio::{
    process::{self, ChildStdout, Command},
    runtime::Handle,
    time,
};

pub(super) use self::spawner::on_spawner;
pub use self::spawner::{start_on_main_thread, wait_for_starts};
use self::{
    adopted::AdoptedProcess,
    output::{LineConsumer, OutputReader, Tail},
};
use super::{
    environment::{self, Inherited},
    handover::PassedDescriptor,
};
use crate::lines::Line;

/// The running program, even if its file was replaced or removed.
pub(in crate::system) const OWN_PROGRAM: &str = "/proc/self/exe";
/// The lowest number of descriptors that are inherited under another number.
const FIRST_HIGH_DESCRIPTOR: RawFd = 10;

/// Starts `command` as the leader of a new process group that dies with this process. The caller
/// sets the standard streams.
///
/// A child that changes its user must request its death signal again: the kernel resets it when
/// the credentials change.
///
/// # Errors
/// Fails if the program cannot be started.
pub async fn spawn(mut command: Command, inherited: Inherited) -> io::Result<process::Child> {
    environment::limit(&mut command, inherited);
    command.process_group(0);
    die_with_parent(command.as_std_mut());
    let runtime = Handle::current();
    let start = move || {
        let _entered = runtime.enter();
        command.spawn()
    };
    let on_abandoned = |spawned: io::Result<process::Child>| {
        if let Ok(mut child) = spawned {
            let _ = child.start_kill();
        }
    };
    on_spawner(start, on_abandoned).await?
}

/// Makes the child die with the thread that starts it, and receive all signals.
#[expect(
    unsafe_code,
    reason = "the death signal must be requested between fork and exec"
)]
fn die_with_parent(command: &mut std::process::Command) {
    let parent = Pid::this();
    // SAFETY: the hook makes only async-signal-safe calls (prctl, getppid, sigprocmask) and does
    // not allocate.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the request took effect.
            if unistd::getppid() != parent {
                return Err(io::ErrorKind::NotConnected.into());
            }
            signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            Ok(())
        });
    }
}

/// Makes the child inherit the descriptor, under its number in this process.
#[expect(
    unsafe_code,
    reason = "the descriptor must be inherited by this child alone"
)]
pub fn inherit(command: &mut Command, descriptor: OwnedFd) {
    // SAFETY: the hook makes one async-signal-safe call and does not allocate.
    unsafe {
        command.pre_exec(move || {
            fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
}

/// Makes the child inherit the descriptor under this number, which must be one of those that this
/// process has in use from its start to its end.
///
/// # Errors
/// Fails if no further descriptor is available.
#[expect(
    unsafe_code,
    reason = "the descriptor must be inherited by this child alone"
)]
pub fn inherit_as(command: &mut Command, descriptor: OwnedFd, number: RawFd) -> io::Result<()> {
    // Another descriptor to inherit may have the number.
    let high = fcntl(
        &descriptor,
        FcntlArg::F_DUPFD_CLOEXEC(FIRST_HIGH_DESCRIPTOR),
    )?;
    // SAFETY: the descriptor was just created and has no other owner.
    let high = unsafe { OwnedFd::from_raw_fd(high) };
    // SAFETY: the hook makes one async-signal-safe call and does not allocate.
    unsafe {
        command.pre_exec(move || {
            let _: RawFd = unistd::dup2_raw(&high, number)?.into_raw_fd();
            Ok(())
        });
    }
    Ok(())
}

/// Describes how a child ended, for error messages.
pub fn describe_exit(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Sends `signal` to a process group. It is no error if the group does not exist.
pub fn signal_group(leader: u32, signal: Signal) {
    if let Ok(leader) = i32::try_from(leader) {
        let _ = signal::killpg(Pid::from_raw(leader), signal);
    }
}

/// The destination of a child's standard output.
pub enum Stdout {
    /// The log, like standard error.
    Log,
    /// A pipe for the caller, who must read it: an unread pipe blocks the child.
    Pipe,
}

/// Returns a summary if a line of standard error is a log record of one of our own programs, and
/// `None` for any other line.
pub type LogParser = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A callback for every line that a child prints. It must not block.
pub type Listener = Arc<dyn Fn(&Line) + Send + Sync>;

/// A supervised child. Its output is always read, into the log and a short tail.
pub struct Child {
    name: &'static str,
    pid: u32,
    inner: Inner,
    output: Vec<OutputReader>,
    tail: Tail,
    /// Whether the leader is reaped. Its pid may belong to another process afterwards.
    is_reaped: bool,
}

/// A child of the program before, for the next one.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedChild {
    pid: u32,
    /// The pipes of its output.
    output: Vec<PassedDescriptor>,
}

impl PassedChild {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

enum Inner {
    Spawned(process::Child),
    Adopted(AdoptedProcess),
}

impl Inner {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Inner::Spawned(child) => child.wait().await,
            Inner::Adopted(child) => child.wait().await,
        }
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Inner::Spawned(child) => child.try_wait(),
            Inner::Adopted(child) => child.try_wait(),
        }
    }
}

impl Child {
    /// Starts a child with an empty standard input.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub async fn spawn(
        name: &'static str,
        command: Command,
        inherited: Inherited,
        stdout: Stdout,
        listener: Listener,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let stdin = Stdio::null();
        Self::spawn_with_stdin(name, command, inherited, stdin, stdout, listener).await
    }

    /// Starts a child with the given standard input.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub async fn spawn_with_stdin(
        name: &'static str,
        command: Command,
        inherited: Inherited,
        stdin: Stdio,
        stdout: Stdout,
        listener: Listener,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let consumer = LineConsumer::Listener(listener);
        Self::spawn_inner(name, command, inherited, stdin, stdout, consumer).await
    }

    /// Starts a child with an empty standard input. Lines of its standard error go to `parser`
    /// first.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub async fn spawn_with_log_parser(
        name: &'static str,
        command: Command,
        inherited: Inherited,
        stdout: Stdout,
        parser: LogParser,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let consumer = LineConsumer::LogParser(parser);
        let stdin = Stdio::null();
        Self::spawn_inner(name, command, inherited, stdin, stdout, consumer).await
    }

    /// Starts a child with the given standard input. Lines of its standard error go to `parser`
    /// first.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub async fn spawn_with_stdin_and_log_parser(
        name: &'static str,
        command: Command,
        inherited: Inherited,
        stdin: Stdio,
        stdout: Stdout,
        parser: LogParser,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let consumer = LineConsumer::LogParser(parser);
        Self::spawn_inner(name, command, inherited, stdin, stdout, consumer).await
    }

    async fn spawn_inner(
        name: &'static str,
        mut command: Command,
        inherited: Inherited,
        stdin: Stdio,
        stdout: Stdout,
        consumer: LineConsumer,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut inner = spawn(command, inherited).await?;
        let pid = inner.id().unwrap_or_default();
        let mut pipe = inner.stdout.take();
        let stderr = inner.stderr.take();
        let mut child = Self::new(name, pid, Inner::Spawned(inner));
        if matches!(stdout, Stdout::Log)
            && let Some(pipe) = pipe.take()
        {
            child.read_output(pipe.into_owned_fd()?, consumer.for_stdout())?;
        }
        if let Some(stderr) = stderr {
            child.read_output(stderr.into_owned_fd()?, consumer)?;
        }
        Ok((child, pipe))
    }

    fn new(name: &'static str, pid: u32, inner: Inner) -> Self {
        Self {
            name,
            pid,
            inner,
            output: Vec::new(),
            tail: Tail::default(),
            is_reaped: false,
        }
    }

    /// Reads a pipe of its output as long as it exists.
    fn read_output(&mut self, pipe: OwnedFd, consumer: LineConsumer) -> io::Result<()> {
        let tail = self.tail.clone();
        let reader = OutputReader::start(self.name, self.pid, pipe, consumer, tail)?;
        self.output.push(reader);
        Ok(())
    }

    /// Releases the child to the next program of this process. The group is not killed any more.
    ///
    /// # Errors
    /// Fails if its output cannot be passed on. It is killed then.
    pub async fn pass(mut self) -> io::Result<PassedChild> {
        let mut output = Vec::new();
        for reader in self.output.drain(..) {
            // One that has ended was closed by the child.
            if let Some(pipe) = reader.stop().await {
                output.push(PassedDescriptor::new(pipe)?);
            }
        }
        self.is_reaped = true;
        Ok(PassedChild {
            pid: self.pid,
            output,
        })
    }

    /// Takes over a child of the program before. It is killed if that fails.
    ///
    /// # Errors
    /// Fails if it cannot be watched.
    pub fn adopt(name: &'static str, passed: PassedChild, listener: &Listener) -> io::Result<Self> {
        let PassedChild { pid, output } = passed;
        let adopted = AdoptedProcess::open(pid);
        let inner = adopted.inspect_err(|_| signal_group(pid, Signal::SIGKILL))?;
        let mut child = Self::new(name, pid, Inner::Adopted(inner));
        for pipe in output {
            let consumer = LineConsumer::Listener(listener.clone());
            child.read_output(pipe.into_inner(), consumer)?;
        }
        Ok(child)
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the last lines it printed.
    #[must_use]
    pub fn tail(&self) -> String {
        self.tail.to_string()
    }

    /// Waits until it has ended, and kills what is left of its process group.
    ///
    /// # Errors
    /// Fails if the kernel does not report the exit status.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await;
        self.kill_remaining_group();
        status
    }

    /// Returns whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        let has_ended = !matches!(self.inner.try_wait(), Ok(None));
        if has_ended {
            self.kill_remaining_group();
        }
        has_ended
    }

    /// Ends the group with SIGTERM, and with SIGKILL after `grace_period`.
    ///
    /// # Errors
    /// Fails if the kernel does not report the exit status.
    pub async fn terminate(self, grace_period: Duration) -> io::Result<ExitStatus> {
        self.terminate_until(time::sleep(grace_period)).await
    }

    /// Ends the group with SIGTERM, and with SIGKILL when `expired` resolves.
    ///
    /// # Errors
    /// Fails if the kernel does not report the exit status.
    pub async fn terminate_until(
        mut self,
        expired: impl Future<Output = ()>,
    ) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        tokio::select! {
            status = self.wait() => return status,
            () = expired => {}
        }
        tracing::warn!(
            child = self.name,
            pid = self.pid,
            "child did not end within its grace period, killing it"
        );
        self.kill().await
    }

    /// Kills the group.
    ///
    /// # Errors
    /// Fails if the kernel does not report the exit status.
    pub async fn kill(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        self.wait().await
    }

    fn signal(&self, signal: Signal) {
        if !self.is_reaped {
            signal_group(self.pid, signal);
        }
    }

    fn kill_remaining_group(&mut self) {
        if !std::mem::replace(&mut self.is_reaped, true) {
            signal_group(self.pid, Signal::SIGKILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill_remaining_group();
    }
}
