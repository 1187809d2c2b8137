//! Starting the first process of a session.

use std::{
    collections::BTreeMap,
    fs::File,
    io, iter,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use nix::{
    libc,
    unistd::{self, Pid},
};
use tokio::net::unix::pipe;

use super::{
    ProcessSession, Program, StartError, StdioMode, Streams, WorkingDirectory,
    exec_image::{NulError, ProgramStrings},
    exec_status::ExecStatus,
    fork_server,
    leader::Origin,
    pre_exec::{Plan, Setup},
};
use crate::system::process::{
    cgroup::Cgroup,
    child::on_spawner,
    environment, open_files,
    pty::{self, UnregisteredTerminal},
};

/// The capacity of output pipes. With the kernel's default of 64 KiB, fast writers often block.
const PIPE_CAPACITY: i32 = 256 << 10;

/// Starts a program, and waits until it is executed. When this fails, nothing runs.
pub(super) async fn start(mut program: Program) -> Result<ProcessSession, StartError> {
    let user = program.credentials.as_ref();
    let has_rights = user.is_none_or(|user| user.uid.is_root()) || program.can_gain_rights;
    let cgroup = program.cgroup.take();
    let (streams, stdio) = open_streams(&program).await?;
    let (exec_status, status) = ExecStatus::pipe().map_err(StartError::Exhausted)?;
    let setup = set_up(program, stdio, status, cgroup.as_ref())?;
    let origin = Origin {
        is_confined: setup.cgroup.is_some() && !has_rights,
        cgroup,
        forks_before: None,
    };
    // Dropping the leader kills the process.
    let mut leader = fork_server::fork(setup, origin).await?;
    // Meanwhile the process sets itself up.
    let streams = streams.register()?;
    if !exec_status.wait_for_exec().await? {
        tracing::warn!("cannot move a process into its cgroup");
        leader.set_unconfined();
    }
    Ok(ProcessSession { leader, streams })
}

/// The agent's ends of the standard streams.
enum UnregisteredStreams {
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Terminal(UnregisteredTerminal, OwnedFd),
}

impl UnregisteredStreams {
    fn register(self) -> io::Result<Streams> {
        match self {
            UnregisteredStreams::Pipes {
                stdin,
                stdout,
                stderr,
            } => Ok(Streams::Pipes {
                stdin: stdin.map(pipe::Sender::from_owned_fd).transpose()?,
                stdout: pipe::Receiver::from_owned_fd(stdout)?,
                stderr: pipe::Receiver::from_owned_fd(stderr)?,
            }),
            UnregisteredStreams::Terminal(terminal, slave) => {
                let terminal = terminal.register()?;
                Ok(Streams::Terminal { terminal, slave })
            }
        }
    }
}

/// Opens the standard streams. Returns the agent's ends and those of the program.
async fn open_streams(
    program: &Program,
) -> Result<(UnregisteredStreams, [OwnedFd; 3]), StartError> {
    match program.stdio {
        StdioMode::Terminal(size) => {
            let opened = on_spawner(move || pty::open_pair(size), drop).await?;
            let (terminal, slave) = opened.map_err(StartError::Exhausted)?;
            if let Some(credentials) = &program.credentials {
                // Programs that open their terminal by its name need the permission.
                unistd::fchown(&slave, Some(credentials.uid), None).map_err(io::Error::from)?;
            }
            let stdio = [slave.try_clone()?, slave.try_clone()?, slave.try_clone()?];
            Ok((UnregisteredStreams::Terminal(terminal, slave), stdio))
        }
        StdioMode::Pipes | StdioMode::NoInput => {
            let has_input = matches!(program.stdio, StdioMode::Pipes);
            open_pipes(has_input).map_err(StartError::Exhausted)
        }
    }
}

fn open_pipes(has_input: bool) -> io::Result<(UnregisteredStreams, [OwnedFd; 3])> {
    let (stdin, program_stdin) = match has_input {
        true => {
            let (reader, writer) = io::pipe()?;
            (Some(writer.into()), reader.into())
        }
        false => (None, File::open("/dev/null")?.into()),
    };
    let (stdout, program_stdout) = output_pipe()?;
    let (stderr, program_stderr) = output_pipe()?;
    let streams = UnregisteredStreams::Pipes {
        stdin,
        stdout,
        stderr,
    };
    Ok((streams, [program_stdin, program_stdout, program_stderr]))
}

#[expect(unsafe_code, reason = "nix does not set the capacity of std's pipes")]
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    // Failure is harmless: the kernel limits the total per user, and small pipes work too.
    // SAFETY: the descriptor is open, and the call accesses no memory.
    let _ = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_CAPACITY) };
    Ok((reader.into(), writer.into()))
}

fn set_up(
    program: Program,
    stdio: [OwnedFd; 3],
    status: OwnedFd,
    cgroup: Option<&Cgroup>,
) -> Result<Setup, StartError> {
    let (directory, falls_back_to_root) = match program.directory {
        WorkingDirectory::Required(path) => (path, false),
        WorkingDirectory::Preferred(path) => (path, true),
    };
    let variables: BTreeMap<_, _> = environment::plain()
        .into_iter()
        .chain(program.env)
        .collect();
    let args = iter::once(program.command).chain(program.args);
    let strings = ProgramStrings::new(directory.into(), args, variables);
    let strings = strings.map_err(|error| {
        let cause = io::ErrorKind::InvalidInput.into();
        match error {
            NulError::Directory => StartError::Directory(cause),
            NulError::Program => StartError::Program(cause),
        }
    })?;
    Ok(Setup {
        strings,
        stdio,
        status,
        // If descriptors are exhausted, the start fails as well, with the error that fits.
        cgroup: cgroup.and_then(|cgroup| cgroup.directory().open().ok()),
        namespace: program.namespace,
        plan: Plan {
            parent: Pid::this().as_raw(),
            has_terminal: matches!(program.stdio, StdioMode::Terminal(_)),
            first_pipe: first_pipe(program.stdio),
            credentials: program.credentials,
            can_gain_rights: program.can_gain_rights,
            falls_back_to_root,
            open_files: open_files::inherited_limit(),
        },
    })
}

/// Returns the first of the standard streams that are pipes of the program alone.
fn first_pipe(stdio: StdioMode) -> RawFd {
    match stdio {
        StdioMode::Pipes => libc::STDIN_FILENO,
        // Standard input is the null device, which belongs to all programs.
        StdioMode::NoInput => libc::STDOUT_FILENO,
        StdioMode::Terminal(_) => libc::STDERR_FILENO + 1,
    }
}
