//! Starting the first process of a session.

use std::{
    collections::BTreeMap,
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
};

use nix::{
    libc,
    unistd::{self, Pid},
};
use tokio::net::unix::pipe;

use super::{
    ProcessSession, Program, StartError, StdioMode, Streams, WorkingDirectory,
    exec_image::ExecImage,
    exec_status::{ExecStatus, UnregisteredExecStatus},
    leader::UnregisteredLeader,
    pre_exec::{PreExec, to_start_error},
};
use crate::system::process::{
    cgroup::Cgroup,
    environment, open_files,
    pty::{self, UnregisteredTerminal},
};

/// The capacity of output pipes. With the kernel's default of 64 KiB, fast writers often block.
const PIPE_CAPACITY: i32 = 256 << 10;

/// A session that is not yet registered with the async runtime. It is killed when this is dropped.
pub(super) struct UnregisteredSession {
    leader: UnregisteredLeader,
    streams: UnregisteredStreams,
    exec_status: UnregisteredExecStatus,
}

enum UnregisteredStreams {
    Pipes(Child),
    Terminal(UnregisteredTerminal, OwnedFd),
}

impl UnregisteredSession {
    /// Starts `program`, without waiting until it is executed. When this fails, nothing runs.
    pub(super) fn start(mut program: Program) -> Result<Self, StartError> {
        // The hook executes the program: the standard library forks, and connects the streams.
        let mut command = Command::new(&program.command);
        let terminal = connect_stdio(&mut command, &program)?;
        let cgroup = program.cgroup.take();
        let (exec_status, status) =
            UnregisteredExecStatus::pipe().map_err(StartError::Exhausted)?;
        let setup = pre_exec(program, status, cgroup.as_ref(), terminal.is_some())?;
        set_hook(&mut command, setup);
        let spawned = command.spawn();
        let child = spawned.map_err(|error| match error.raw_os_error() {
            Some(errno) => to_start_error(errno),
            None => StartError::Other(error),
        })?;
        let pid = Pid::from_raw(child.id().cast_signed());
        if cgroup
            .as_ref()
            .is_some_and(|cgroup| !cgroup.contains(pid.as_raw()))
        {
            tracing::warn!(%pid, "cannot move a process into its cgroup");
        }
        let leader = UnregisteredLeader::new(pid, cgroup).map_err(StartError::Exhausted)?;
        enlarge_pipes(&child);
        let streams = match terminal {
            Some((terminal, slave)) => UnregisteredStreams::Terminal(terminal, slave),
            None => UnregisteredStreams::Pipes(child),
        };
        Ok(UnregisteredSession {
            leader,
            streams,
            exec_status,
        })
    }

    pub(super) fn register(self) -> io::Result<(ProcessSession, ExecStatus)> {
        let session = ProcessSession {
            streams: self.streams.register()?,
            leader: self.leader.register()?,
        };
        Ok((session, self.exec_status.register()?))
    }
}

impl UnregisteredStreams {
    fn register(self) -> io::Result<Streams> {
        let mut child = match self {
            UnregisteredStreams::Pipes(child) => child,
            UnregisteredStreams::Terminal(terminal, slave) => {
                let terminal = terminal.register()?;
                return Ok(Streams::Terminal { terminal, slave });
            }
        };
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let stdin = child.stdin.take().map(OwnedFd::from);
        Ok(Streams::Pipes {
            stdin: stdin.map(pipe::Sender::from_owned_fd).transpose()?,
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
        })
    }
}

/// Sets the standard streams of `command`. Returns both sides of the terminal if it gets one.
fn connect_stdio(
    command: &mut Command,
    program: &Program,
) -> Result<Option<(UnregisteredTerminal, OwnedFd)>, StartError> {
    let size = match program.stdio {
        StdioMode::Terminal(size) => size,
        StdioMode::Pipes | StdioMode::NoInput => {
            let stdin = match program.stdio {
                StdioMode::Pipes => Stdio::piped(),
                _ => Stdio::null(),
            };
            command
                .stdin(stdin)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            return Ok(None);
        }
    };
    let (terminal, slave) = pty::open_pair(size).map_err(StartError::Exhausted)?;
    if let Some(credentials) = &program.credentials {
        // Programs that open their terminal by its name need the permission.
        unistd::fchown(&slave, Some(credentials.uid), None).map_err(io::Error::from)?;
    }
    command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave.try_clone()?);
    Ok(Some((terminal, slave)))
}

fn pre_exec(
    program: Program,
    status: OwnedFd,
    cgroup: Option<&Cgroup>,
    has_terminal: bool,
) -> Result<PreExec, StartError> {
    let (directory, falls_back_to_root) = match program.directory {
        WorkingDirectory::Required(path) => (path, false),
        WorkingDirectory::Preferred(path) => (path, true),
    };
    let directory = CString::new(directory.into_os_string().into_encoded_bytes())
        .map_err(|_| StartError::Directory(io::ErrorKind::InvalidInput.into()))?;
    let variables: BTreeMap<_, _> = environment::plain()
        .into_iter()
        .chain(program.env)
        .collect();
    let image = ExecImage::new(&program.command, &program.args, variables)
        .map_err(|error| StartError::Program(error.into()))?;
    // The caller notices and reports a process without its cgroup. If descriptors are exhausted,
    // the spawn fails as well, with the error that fits.
    let cgroup_procs = cgroup.and_then(|cgroup| cgroup.directory().open_procs().ok());
    Ok(PreExec {
        image,
        status,
        parent: Pid::this(),
        cgroup_procs,
        has_terminal,
        pipes: match program.stdio {
            StdioMode::Pipes => &[0, 1, 2],
            // Standard input is the null device, which belongs to all programs.
            StdioMode::NoInput => &[1, 2],
            StdioMode::Terminal(_) => &[],
        },
        credentials: program.credentials,
        namespace: program.namespace,
        can_gain_rights: program.can_gain_rights,
        directory,
        falls_back_to_root,
        last_signal: libc::SIGRTMAX(),
        open_files: open_files::inherited_limit(),
    })
}

#[expect(
    unsafe_code,
    reason = "code that runs after fork must be async-signal-safe"
)]
fn set_hook(command: &mut Command, setup: PreExec) {
    // SAFETY: `PreExec::exec` makes async-signal-safe calls only and does not allocate.
    unsafe { command.pre_exec(move || setup.exec()) };
}

#[expect(unsafe_code, reason = "nix does not set the capacity of std's pipes")]
fn enlarge_pipes(child: &Child) {
    let stdout = child.stdout.as_ref().map(AsRawFd::as_raw_fd);
    let stderr = child.stderr.as_ref().map(AsRawFd::as_raw_fd);
    for pipe in [stdout, stderr].into_iter().flatten() {
        // Failure is harmless: the kernel limits the total per user, and small pipes work too.
        // SAFETY: the descriptor is open, and the call accesses no memory.
        let _ = unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, PIPE_CAPACITY) };
    }
}
