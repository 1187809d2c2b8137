//! Starting the first process of a session.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ffi::{CString, NulError},
    fs::File,
    io,
    os::{
        fd::{OwnedFd, RawFd},
        unix::ffi::OsStringExt,
    },
    time::Instant,
};

use nix::{
    libc,
    unistd::{self, Pid},
};
use tokio::{
    net::unix::pipe,
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    time,
};

use super::{
    ProcessSession, Program, StartError, StdioMode, Streams, WorkingDirectory,
    dispositions::ignored_signals,
    exec_image::ExecImage,
    fork::{Memory, SuidDumpable, fork_and_wait},
    fork_count::{ForkCount, count_fork},
    fork_report::{ForkReport, Outcome},
    leader::{Leader, Origin, reap_failed},
    output_pipes::OutputPipes,
    pre_exec::{EXEC_TIMEOUT, PreExec, to_fork_error, to_start_error},
};
use crate::system::process::{cgroup::Cgroup, child::on_spawner, environment, open_files, pty};

/// The most processes that are being set up at a time. Each blocks a thread, for up to
/// [`EXEC_TIMEOUT`].
const MAX_STARTS: usize = 64;
static STARTS: Semaphore = Semaphore::const_new(MAX_STARTS);

thread_local! {
    /// The report of the processes that this thread forks.
    static REPORT: Cell<Option<ForkReport>> = const { Cell::new(None) };
}

/// Starts a program, and waits until it is executed, or killed when it was about to be. When this
/// fails, nothing runs.
pub(super) async fn start(mut program: Program) -> Result<ProcessSession, StartError> {
    let (streams, stdio) = open_streams(&mut program).await?;
    // Never closed.
    let permit = time::timeout(EXEC_TIMEOUT, STARTS.acquire()).await;
    let _permit = permit.map_err(|_| StartError::Timeout)?;
    let leader = run_blocking(|| start_leader(program, stdio))?;
    Ok(ProcessSession { leader, streams })
}

/// Runs `work`, which may block, on this thread, while another one continues with the tasks of the
/// runtime. This thread must not end before the process does, as a death signal is bound to the
/// thread that forks: so the runtime keeps its threads.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn start_leader(mut program: Program, stdio: [OwnedFd; 3]) -> Result<Leader, StartError> {
    let memory = memory_of(&program)?;
    let user = program.credentials.as_ref();
    let has_rights = user.is_none_or(|user| user.uid.is_root()) || program.can_gain_rights;
    let mut cgroup = program.cgroup.take();
    let descriptor = cgroup.as_mut().and_then(Cgroup::take_descriptor);
    let setup = set_up(program, stdio, descriptor)?;
    let is_confined = setup.cgroup.is_some() && !has_rights;
    let origin = Origin {
        cgroup,
        is_confined,
        forks_before: if is_confined { None } else { ForkCount::now() },
    };
    let started_at = Instant::now();
    let forked = count_fork(|| fork_and_wait(&setup, memory));
    let is_late = started_at.elapsed() >= EXEC_TIMEOUT;
    let pid = forked.map_err(to_fork_error)?;
    let outcome = setup.report.outcome();
    REPORT.set(Some(setup.report));
    if let Outcome::Failed(code) = outcome {
        reap_failed(pid, &origin);
        return Err(to_start_error(code));
    }
    // Dropping the leader kills the process.
    let mut leader = Leader::new(pid, origin).map_err(StartError::Exhausted)?;
    // After that time its timer has killed it, unless it was executed.
    if outcome == Outcome::Killed || is_late && leader.was_killed_before_exec() {
        return Err(match is_late {
            true => StartError::Timeout,
            false => StartError::Killed,
        });
    }
    if outcome == Outcome::ExecutedOutsideCgroup {
        tracing::warn!("cannot move a process into its cgroup");
        leader.set_unconfined();
    }
    Ok(leader)
}

/// Opens the standard streams. Returns the agent's ends and those of the program.
async fn open_streams(program: &mut Program) -> Result<(Streams, [OwnedFd; 3]), StartError> {
    match program.stdio {
        StdioMode::Terminal(size) => {
            let opened = on_spawner(move || pty::open_pair(size), drop).await?;
            let (terminal, slave) = opened.map_err(StartError::Exhausted)?;
            if let Some(credentials) = &program.credentials {
                // Programs that open their terminal by its name need the permission.
                unistd::fchown(&slave, Some(credentials.uid), None).map_err(io::Error::from)?;
            }
            let stdio = [slave.try_clone()?, slave.try_clone()?, slave.try_clone()?];
            let terminal = terminal.register()?;
            Ok((Streams::Terminal { terminal, slave }, stdio))
        }
        StdioMode::Pipes | StdioMode::NoInput => {
            let has_input = matches!(program.stdio, StdioMode::Pipes);
            let output = program.output_pipes.take();
            open_pipes(has_input, output).map_err(StartError::Exhausted)
        }
    }
}

fn open_pipes(has_input: bool, output: Option<OutputPipes>) -> io::Result<(Streams, [OwnedFd; 3])> {
    let (stdin, program_stdin) = match has_input {
        true => {
            let (reader, writer) = io::pipe()?;
            let sender = pipe::Sender::from_owned_fd(writer.into())?;
            (Some(sender), reader.into())
        }
        false => (None, File::open("/dev/null")?.into()),
    };
    let output = output.map_or_else(OutputPipes::open, Ok)?;
    output.enlarge();
    let OutputPipes { stdout, stderr } = output;
    let streams = Streams::Pipes {
        stdin,
        stdout: stdout.agent,
        stderr: stderr.agent,
    };
    Ok((streams, [program_stdin, stdout.program, stderr.program]))
}

/// Returns the use that the new process makes of the agent's memory.
fn memory_of(program: &Program) -> Result<Memory, StartError> {
    if program.credentials.is_none() {
        return Ok(Memory::Shared);
    }
    SuidDumpable::of_system().memory().ok_or_else(|| {
        let reason = "fs.suid_dumpable is neither 0 nor 2: that user could read the agent's memory";
        StartError::Credentials(io::Error::other(reason))
    })
}

fn set_up(
    program: Program,
    stdio: [OwnedFd; 3],
    cgroup: Option<OwnedFd>,
) -> Result<PreExec, StartError> {
    let invalid = |_: NulError| io::Error::from(io::ErrorKind::InvalidInput);
    let (directory, falls_back_to_root) = match program.directory {
        WorkingDirectory::Required(path) => (path, false),
        WorkingDirectory::Preferred(path) => (path, true),
    };
    let directory = CString::new(directory.into_os_string().into_vec())
        .map_err(|error| StartError::Directory(invalid(error)))?;
    let plain = environment::plain().iter().cloned();
    let variables: BTreeMap<_, _> = plain.chain(program.env).collect();
    let image = ExecImage::new(program.command, program.args, variables)
        .map_err(|error| StartError::Program(invalid(error)))?;
    let report = REPORT.take().map_or_else(ForkReport::new, Ok);
    let report = report.map_err(StartError::Exhausted)?;
    report.reset();
    Ok(PreExec {
        image,
        directory,
        stdio,
        cgroup,
        namespace: program.namespace,
        parent: Pid::this(),
        has_terminal: matches!(program.stdio, StdioMode::Terminal(_)),
        first_pipe: first_pipe(program.stdio),
        user: program.credentials.map(Into::into),
        can_gain_rights: program.can_gain_rights,
        falls_back_to_root,
        open_files: open_files::inherited_limit(),
        ignored_signals: ignored_signals(),
        report,
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

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::system::process::session::{Credentials, tests::program};

    fn program_in(directory: &str, command: &str) -> Program {
        let is_root = unistd::geteuid().is_root();
        let credentials = is_root.then(|| Credentials {
            uid: 65534.into(),
            gid: 65534.into(),
            groups: vec![65534.into()],
        });
        Program {
            directory: WorkingDirectory::Required(directory.into()),
            credentials,
            ..program(command)
        }
    }

    #[tokio::test]
    async fn failed_start_is_reported_with_shared_and_with_copied_memory() {
        for memory in [Memory::Shared, Memory::Copied] {
            for (program, executed, exit_code) in [
                (program_in("/", "false"), true, 1),
                (program_in("/", "true"), true, 0),
                (program_in("/", "/no/such"), false, 1),
                (program_in("/no/such", "true"), false, 1),
            ] {
                let (_streams, stdio) = open_pipes(false, None).unwrap();
                let setup = set_up(program, stdio, None).unwrap();
                let pid = fork_and_wait(&setup, memory).unwrap();
                let outcome = setup.report.outcome();
                assert_eq!(outcome == Outcome::Executed, executed, "{outcome:?}");
                assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, exit_code)));
            }
        }
    }
}
