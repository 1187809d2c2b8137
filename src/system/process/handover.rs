//! The handover of this process to another program: its file was replaced, and the process goes on
//! with the new one. It keeps its id and its children, and inherits descriptors and a state.
//!
//! ```text
//! NextProgram::check ─▶ state and descriptors collected ─▶ NextProgram::exec ─▶ take_state
//! ```
//!
//! The kernel kills children with the thread that has started them, or was the main thread of a
//! program before. So the main thread starts all of them but programs of clients, of which none
//! runs then, and calls `exec`: it is the one that remains.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{self, BufWriter, Read, Seek, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        resource::{Resource, setrlimit},
        signal::{SigHandler, Signal, kill, signal},
        wait::waitpid,
    },
    unistd::Pid,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use tokio::time::timeout;

use super::{
    child::{OWN_PROGRAM, on_spawner},
    environment, open_files,
    stat::ProcStat,
};

/// The command that prints the format of the states that the program reads.
pub const FORMAT_COMMAND: &str = "handover-format";
/// The number of the format. It changes with the meaning of a state.
pub const FORMAT: u32 = 1;
/// The variable with the number of the descriptor of the state.
const STATE_VARIABLE: &str = "BERTH_HANDOVER";
/// The subcommand of a server whose settings can be checked, and that of the check.
const SERVER: &str = "agent";
const CHECK: &str = "check";
/// The longest time for a program to print its format, or to check its settings.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that are read of its output.
const MAX_OUTPUT: usize = 2048;

/// Why a program cannot take over.
#[derive(Debug, thiserror::Error)]
pub enum UnusableProgram {
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} is of a version to which a running browser cannot be passed")]
    Format { program: String },
    #[error("{program} rejects the options: {message}")]
    Options { program: String, message: String },
    #[error("{program} did not answer within {} s", CHECK_TIMEOUT.as_secs())]
    Timeout { program: String },
}

/// The program that this process was started with: its path, which may lead to a newer file by
/// now, and its arguments.
#[derive(Clone, Debug)]
pub struct NextProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl NextProgram {
    /// Returns the program of this process. To be called before its file can have been replaced.
    ///
    /// # Errors
    /// Fails if the system does not report the path.
    pub fn current() -> io::Result<Self> {
        let mut arguments = env::args_os();
        // A link leads to the newest version; a name without a directory was searched for.
        let named = arguments.next().map(PathBuf::from);
        let named = named.filter(|path| path.components().count() > 1);
        let path = match named {
            Some(path) => std::path::absolute(path)?,
            None => env::current_exe()?,
        };
        Ok(NextProgram {
            path,
            arguments: arguments.collect(),
        })
    }

    /// Checks that the program at the path can take over: that it starts, reads states of our
    /// format, and accepts the options.
    ///
    /// # Errors
    /// Fails if it cannot.
    pub async fn check(&self) -> Result<(), UnusableProgram> {
        let program = self.path.display().to_string();
        let mut format = tokio::process::Command::new(&self.path);
        format.arg(FORMAT_COMMAND).env_clear();
        let format = self.run(format).await?;
        if String::from_utf8_lossy(&format.stdout).trim() != FORMAT.to_string() {
            return Err(UnusableProgram::Format { program });
        }
        // The options may be in variables, so the environment is passed on.
        let mut check = tokio::process::Command::new(&self.path);
        check.args(self.check_arguments());
        let checked = self.run(check).await?;
        if !checked.status.success() {
            let printed = &checked.stderr[..checked.stderr.len().min(MAX_OUTPUT)];
            let message = String::from_utf8_lossy(printed).trim().to_owned();
            return Err(UnusableProgram::Options { program, message });
        }
        Ok(())
    }

    /// Returns the arguments with which the program checks its options: those of the server, after
    /// another subcommand.
    fn check_arguments(&self) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        let server = arguments.iter().position(|argument| argument == SERVER);
        arguments.insert(server.unwrap_or_default(), CHECK.into());
        arguments
    }

    async fn run(&self, mut command: tokio::process::Command) -> Result<Output, UnusableProgram> {
        let program = self.path.display().to_string();
        command.stdin(Stdio::null()).kill_on_drop(true);
        match timeout(CHECK_TIMEOUT, command.output()).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(source)) => Err(UnusableProgram::Start { program, source }),
            Err(_) => Err(UnusableProgram::Timeout { program }),
        }
    }

    /// Continues this process with the program at the path, or with the present one if that cannot
    /// be started. Children of this process, except `kept`, are killed first. Returns if
    /// `is_given_up` does at the last moment.
    ///
    /// # Errors
    /// Fails if neither can be started.
    pub async fn exec<T>(
        self,
        state: T,
        kept: Vec<u32>,
        is_given_up: impl FnOnce() -> bool + Send + 'static,
    ) -> io::Result<()>
    where
        T: Serialize + Send + 'static,
    {
        let replace = move || {
            // The descriptors in the state stay open until the next program has them.
            let memory = write_state(&state)?;
            kill_children_except(&kept);
            restore_limits();
            ignore_restart_signal()?;
            if is_given_up() {
                return Ok(());
            }
            let error = self.replace_process(self.path.as_os_str(), &memory);
            let program = self.path.display();
            tracing::error!(%error, %program, "cannot start, continuing with the present program");
            drop(self.replace_process(OsStr::new(OWN_PROGRAM), &memory));
            Err(error)
        };
        on_spawner(replace, drop).await?
    }

    /// Returns only if the program cannot be started.
    fn replace_process(&self, program: &OsStr, state: &PassedDescriptor) -> io::Error {
        Command::new(program)
            .arg0(&self.path)
            .args(&self.arguments)
            .env(STATE_VARIABLE, state.0.as_raw_fd().to_string())
            .exec()
    }
}

/// Takes the state that the program before has passed, or `None` if there was none.
///
/// Must be called once, before the process starts a thread: it changes the environment.
///
/// # Errors
/// Fails if it cannot be read.
pub fn take_state<T: DeserializeOwned>() -> io::Result<Option<T>> {
    let Some(number) = environment::take(STATE_VARIABLE) else {
        return Ok(None);
    };
    let number = number.to_str().and_then(|number| number.parse().ok());
    let number = number.ok_or(io::ErrorKind::InvalidData)?;
    let mut state = File::from(PassedDescriptor::inherited(number)?.into_inner());
    state.rewind()?;
    let mut text = Vec::new();
    state.read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Kills the children that the program before has passed, because its state cannot be used.
pub fn kill_children() {
    kill_children_except(&[]);
}

/// Writes the state to memory that the next program inherits.
fn write_state(state: &impl Serialize) -> io::Result<PassedDescriptor> {
    let memory = File::from(memfd_create("handover", MFdFlags::MFD_CLOEXEC)?);
    let mut writer = BufWriter::new(&memory);
    serde_json::to_writer(&mut writer, state)?;
    writer.flush()?;
    drop(writer);
    PassedDescriptor::new(memory.into())
}

/// Ignores SIGUSR1 until the next program handles it: it would end that program.
#[expect(unsafe_code, reason = "nix cannot know what a handler would do")]
fn ignore_restart_signal() -> io::Result<()> {
    // SAFETY: the signal is ignored, so that no code runs when it arrives.
    unsafe { signal(Signal::SIGUSR1, SigHandler::SigIgn) }?;
    Ok(())
}

/// Gives the next program the limits that this one was started with.
fn restore_limits() {
    if let Some((soft, hard)) = open_files::inherited_limit()
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
    {
        tracing::warn!(%error, "cannot lower the limit on open files");
    }
}

/// Kills and reaps the children of this process, except some: the next program would not know of
/// them.
fn kill_children_except(kept: &[u32]) {
    let own = Pid::this().as_raw();
    let is_left = |pid: &i32| {
        let is_kept = u32::try_from(*pid).is_ok_and(|pid| kept.contains(&pid));
        !is_kept && ProcStat::of(*pid).is_some_and(|process| process.parent == own)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(is_left).map(Pid::from_raw) {
        let _ = kill(pid, Signal::SIGKILL);
        while waitpid(pid, None) == Err(Errno::EINTR) {}
    }
}

/// A descriptor that the next program inherits. In a state it is its number.
pub struct PassedDescriptor(OwnedFd);

impl PassedDescriptor {
    /// Makes the descriptor inheritable.
    ///
    /// # Errors
    /// Fails if the descriptor is not open.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(PassedDescriptor(descriptor))
    }

    /// Takes a descriptor that this process has inherited.
    #[expect(unsafe_code, reason = "the program before has passed the number")]
    fn inherited(number: RawFd) -> io::Result<Self> {
        if number < 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the borrow ends with the call, which fails if the number is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        // Children of this process do not inherit it.
        fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        // SAFETY: it is open, and the state names it once.
        Ok(PassedDescriptor(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// Returns an inherited descriptor, which children of this process do not inherit.
    #[must_use]
    pub fn into_inner(self) -> OwnedFd {
        self.0
    }
}

impl fmt::Debug for PassedDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PassedDescriptor({})", self.0.as_raw_fd())
    }
}

impl Serialize for PassedDescriptor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(self.0.as_raw_fd())
    }
}

impl<'de> Deserialize<'de> for PassedDescriptor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = RawFd::deserialize(deserializer)?;
        PassedDescriptor::inherited(number).map_err(serde::de::Error::custom)
    }
}

/// Bytes in a state, as base64.
#[derive(Debug, Default)]
pub struct PassedBytes(pub Bytes);

impl<T: Into<Bytes>> From<T> for PassedBytes {
    fn from(bytes: T) -> Self {
        PassedBytes(bytes.into())
    }
}

impl Serialize for PassedBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PassedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text);
        Ok(PassedBytes(bytes.map_err(serde::de::Error::custom)?.into()))
    }
}
