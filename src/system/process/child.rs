#![allow(
    unsafe_code,
    reason = "`pre_exec` is the only way to ask the kernel for a death signal between fork and exec"
)]
//! Child processes that cannot outlive this one.
//!
//! Every child leads a process group of its own, so that it can be ended together with what it started, and the kernel
//! kills it when this process is gone, even when that was by SIGKILL. The kernel counts the death of the *thread* that forked, not of the
//! process: all children are therefore started by one thread that lives as long as the process does.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::unix::ffi::OsStrExt,
    process::{ExitStatus, Stdio},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use nix::{
    sys::{
        prctl,
        signal::{self, SigSet, SigmaskHow, Signal},
    },
    unistd::{self, Pid},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{self, ChildStdout, Command},
    runtime::Handle,
    time,
};

use crate::lines::{Line, Lines};
use crate::system::sync::job_thread::JobThread;

/// Variables of our own settings begin so; children inherit none of them, since one may hold a token.
const OWN_VARIABLES: &str = "BERTH_";

/// Lines kept of what a child printed, for the report of its death.
const TAIL_LINES: usize = 40;
/// What is kept of each.
const TAIL_LINE_BYTES: usize = 1024;

static SPAWNER: LazyLock<JobThread> = LazyLock::new(|| JobThread::start("spawner"));

/// Runs `start` on the thread that starts all children. What it has started goes to `abandoned` where the caller has stopped waiting.
pub(super) async fn on_spawner<T: Send + 'static>(
    start: impl FnOnce() -> T + Send + 'static,
    abandoned: impl FnOnce(T) + Send + 'static,
) -> io::Result<T> {
    SPAWNER.run(start, abandoned).await
}

/// Starts `command` as the leader of a new process group which dies with this process. Standard streams are as the caller set them.
///
/// A child that changes its user must ask for its death signal again: the kernel forgets it on a change of credentials.
pub async fn spawn(mut command: Command) -> io::Result<process::Child> {
    leave_out_own(&mut command, std::env::vars_os().map(|(name, _)| name));
    command.process_group(0);
    let parent = Pid::this();
    // SAFETY: only async-signal-safe calls happen between fork and exec: prctl, getppid and sigprocmask, without allocation.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the request above took hold.
            if unistd::getppid() != parent {
                return Err(io::ErrorKind::NotConnected.into());
            }
            signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            Ok(())
        });
    }
    let runtime = Handle::current();
    let start = move || {
        let _entered = runtime.enter();
        command.spawn()
    };
    let abandoned = |spawned: io::Result<process::Child>| {
        if let Ok(mut child) = spawned {
            let _ = child.start_kill();
        }
    };
    on_spawner(start, abandoned).await?
}

/// Variables of ours that would be inherited are not; one the caller has set on the command is meant for the child.
fn leave_out_own(command: &mut Command, inherited: impl Iterator<Item = OsString>) {
    for name in inherited.filter(|name| name.as_bytes().starts_with(OWN_VARIABLES.as_bytes())) {
        let set = command.as_std().get_envs().any(|(set, _)| set == name);
        if !set {
            command.env_remove(name);
        }
    }
}

/// Where programs are looked for when nothing else says so.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a program that is not ours may know of our environment: where programs are, language and time zone. The rest may hold secrets.
pub(super) fn plain_environment() -> Vec<(OsString, OsString)> {
    let is_plain = |name: &OsString| {
        let name = name.as_bytes();
        name.starts_with(b"LC_") || [&b"PATH"[..], b"LANG", b"LANGUAGE", b"TZ"].contains(&name)
    };
    let mut plain: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| is_plain(name))
        .collect();
    if !plain.iter().any(|(name, _)| name == "PATH") {
        plain.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    plain
}

/// How a child ended, in words.
pub fn describe_end(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Sends `signal` to the whole process group; a group that is gone is no error.
pub fn signal_group(leader: u32, signal: Signal) {
    if let Ok(leader) = i32::try_from(leader) {
        let _ = signal::killpg(Pid::from_raw(leader), signal);
    }
}

/// Where a child's standard output goes.
pub enum Stdout {
    /// To the log, as its standard error does.
    Log,
    /// To the caller, who must read it: an unread pipe stalls the child.
    Take,
}

/// Takes a line of a child's standard error that is a log of our own, and sums it up; leaves any other.
pub type OwnLog = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Hears every line that a child prints. It must not wait.
pub type Listener = Arc<dyn Fn(&Line) + Send + Sync>;

/// A supervised child whose output is always read, into the log and a short memory.
pub struct Child {
    name: &'static str,
    pid: u32,
    inner: process::Child,
    tail: Tail,
    /// False once the leader is reaped: its number may then be somebody else's.
    owned: bool,
}

impl Child {
    pub async fn spawn(
        name: &'static str,
        command: Command,
        stdout: Stdout,
        listener: Listener,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let stdin = Stdio::null();
        Self::spawn_hearing(name, command, stdin, stdout, Ears::Listener(listener)).await
    }

    /// As [`Self::spawn`], with a standard input of its own.
    pub async fn spawn_fed(
        name: &'static str,
        command: Command,
        stdin: Stdio,
        stdout: Stdout,
        listener: Listener,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        Self::spawn_hearing(name, command, stdin, stdout, Ears::Listener(listener)).await
    }

    /// As [`Self::spawn`]; lines of its standard error go to `own_log` first.
    pub async fn spawn_logging(
        name: &'static str,
        command: Command,
        stdout: Stdout,
        own_log: OwnLog,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let stdin = Stdio::null();
        Self::spawn_hearing(name, command, stdin, stdout, Ears::OwnLog(own_log)).await
    }

    async fn spawn_hearing(
        name: &'static str,
        mut command: Command,
        stdin: Stdio,
        stdout: Stdout,
        ears: Ears,
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut inner = spawn(command).await?;
        let pid = inner.id().unwrap_or_default();
        let tail = Tail::default();
        let mut taken = inner.stdout.take();
        if matches!(stdout, Stdout::Log)
            && let Some(pipe) = taken.take()
        {
            tokio::spawn(follow(name, pid, pipe, ears.of_stdout(), tail.clone()));
        }
        if let Some(stderr) = inner.stderr.take() {
            tokio::spawn(follow(name, pid, stderr, ears, tail.clone()));
        }
        let child = Self {
            name,
            pid,
            inner,
            tail,
            owned: true,
        };
        Ok((child, taken))
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The last lines it printed.
    pub fn tail(&self) -> String {
        self.tail.to_string()
    }

    /// Waits for its end; what is left of its process group is killed then.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await;
        self.release();
        status
    }

    /// Whether it has ended already.
    pub fn has_ended(&mut self) -> bool {
        let ended = !matches!(self.inner.try_wait(), Ok(None));
        if ended {
            self.release();
        }
        ended
    }

    /// Ends the group: SIGTERM, up to `grace` to follow it, SIGKILL.
    pub async fn end(mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        if let Ok(status) = time::timeout(grace, self.wait()).await {
            return status;
        }
        tracing::warn!(
            child = self.name,
            pid = self.pid,
            "killed: it did not end in time"
        );
        self.kill().await
    }

    /// Kills the group at once.
    pub async fn kill(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        self.wait().await
    }

    fn signal(&self, signal: Signal) {
        if self.owned {
            signal_group(self.pid, signal);
        }
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.owned) {
            signal_group(self.pid, Signal::SIGKILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.release();
    }
}

#[derive(Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(line)?;
        }
        Ok(())
    }
}

/// Who hears of a child's lines beside the log.
enum Ears {
    Listener(Listener),
    OwnLog(OwnLog),
    Nobody,
}

impl Ears {
    /// A log of our own is on standard error alone.
    fn of_stdout(&self) -> Self {
        match self {
            Ears::Listener(listener) => Ears::Listener(listener.clone()),
            Ears::OwnLog(_) | Ears::Nobody => Ears::Nobody,
        }
    }
}

/// Reads to the end whatever happens, so that the child never waits for us.
async fn follow(
    name: &'static str,
    pid: u32,
    mut pipe: impl AsyncRead + Unpin,
    ears: Ears,
    tail: Tail,
) {
    let mut chunk = [0; 8 * 1024];
    let mut lines = Lines::default();
    let hear = |line: Line| {
        match &ears {
            Ears::Listener(listener) => listener(&line),
            Ears::OwnLog(own_log) => {
                if let Some(summary) = own_log(&line.text) {
                    tail.push(summary);
                    return;
                }
            }
            Ears::Nobody => {}
        }
        let mut text = line.text;
        if !text.is_empty() {
            tracing::debug!(child = name, pid, "{text}");
            text.truncate(text.floor_char_boundary(TAIL_LINE_BYTES));
            tail.push(text);
        }
    };
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        lines.push(&chunk[..read]);
        while let Some(line) = lines.next_line() {
            hear(line);
        }
    }
    lines.rest().into_iter().for_each(hear);
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn variables_of_ours_are_left_out_and_those_set_for_the_child_are_not() {
        let mut command = Command::new("x");
        command.env("BERTH_AGENT_START_URL", "about:blank");
        let inherited = ["PATH", "BERTH_AGENT_START_URL", "BERTH_AGENT_TOKEN"];
        leave_out_own(&mut command, inherited.into_iter().map(OsString::from));
        let changes: Vec<_> = command.as_std().get_envs().collect();
        assert_eq!(
            changes,
            [
                (
                    OsStr::new("BERTH_AGENT_START_URL"),
                    Some(OsStr::new("about:blank"))
                ),
                (OsStr::new("BERTH_AGENT_TOKEN"), None),
            ]
        );
    }
}
