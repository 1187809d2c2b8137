#![allow(
    unsafe_code,
    reason = "a session, its terminal and its user are set up between fork and exec, where only `pre_exec` comes; pidfds have no safe call"
)]
//! Programs that lead a session of their own: started, watched, signalled, and reaped only when told to.
//!
//! Until a leader is reaped, its number is nobody else's, and neither is that of its session and its process group. So whoever
//! signals the group while it holds the leader meets nobody else.

use std::{
    ffi::{CString, OsString},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::{self, SigSet, SigmaskHow, Signal},
    },
    unistd::{self, Gid, Pid, Uid},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::unix::pipe,
};

use crate::system::{
    process::child::{on_spawner, plain_environment},
    process::open_files,
    process::pty::{self, Size, Terminal, Unused},
};

/// Who is to be killed first when memory runs out: what a client runs, before the browser and its tabs, and long before us.
const OOM_SCORE: &[u8] = b"800";
/// Given to a pipe that is written faster than it is read; the kernel's own 64 KiB make the writer wait often.
const PIPE_BYTES: i32 = 256 << 10;

/// A user's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub uid: Uid,
    pub gid: Gid,
    pub groups: Vec<Gid>,
}

/// Where a program starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// There or not at all.
    Exactly(PathBuf),
    /// In `/` where it cannot be entered.
    Preferably(PathBuf),
}

/// What a program's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    Pipes,
    /// Pipes, and nothing to read.
    NoInput,
    Terminal(Size),
}

/// What is to be started.
#[derive(Debug)]
pub struct Program {
    pub command: String,
    pub args: Vec<String>,
    /// Beside the plain part of our own environment, or in its place.
    pub env: Vec<(OsString, OsString)>,
    pub directory: Directory,
    /// Ours where there is none.
    pub identity: Option<Identity>,
    pub wiring: Wiring,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the directory cannot be entered: {0}")]
    Directory(#[source] io::Error),
    #[error("the rights of that user cannot be taken: {0}")]
    Identity(#[source] io::Error),
    #[error("the program cannot be run: {0}")]
    Program(#[source] io::Error),
    /// No process, descriptor or memory to be had.
    #[error("the system has no room for another process: {0}")]
    Exhausted(#[source] io::Error),
    #[error("{0}")]
    Other(#[from] io::Error),
}

/// A program that runs.
#[derive(Debug)]
pub struct Session {
    pub leader: Leader,
    pub streams: Streams,
}

/// Our ends of its standard streams.
#[derive(Debug)]
pub enum Streams {
    Pipes {
        stdin: Option<pipe::Sender>,
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
    },
    Terminal {
        terminal: Terminal,
        /// The program's end. As long as it is held, the terminal stays even while no program has it open.
        held: OwnedFd,
    },
}

impl Session {
    /// Starts a program. When this returns an error, nothing runs.
    pub async fn start(program: Program) -> Result<Self, StartError> {
        let started = on_spawner(move || start(program), drop).await??;
        started.register().map_err(StartError::Other)
    }
}

/// A leader that the runtime does not know of yet. It ends when this is dropped.
struct Started {
    unwatched: Unwatched,
    streams: RawStreams,
}

enum RawStreams {
    Pipes(Child),
    Terminal(Unused, OwnedFd),
}

struct Unwatched(Option<(Pid, OwnedFd)>);

impl Drop for Unwatched {
    fn drop(&mut self) {
        if let Some((pid, pidfd)) = self.0.take() {
            let _ = signal::killpg(pid, Signal::SIGKILL);
            let _ = wait(&pidfd, libc::WEXITED);
        }
    }
}

impl Started {
    fn register(mut self) -> io::Result<Session> {
        let streams = match self.streams {
            RawStreams::Pipes(mut child) => {
                let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take())
                else {
                    return Err(io::ErrorKind::BrokenPipe.into());
                };
                let stdin = child.stdin.take().map(OwnedFd::from);
                Streams::Pipes {
                    stdin: stdin.map(pipe::Sender::from_owned_fd).transpose()?,
                    stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
                    stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
                }
            }
            RawStreams::Terminal(unused, held) => Streams::Terminal {
                terminal: unused.register()?,
                held,
            },
        };
        let Some((pid, pidfd)) = self.unwatched.0.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // SAFETY: the pidfd owns its descriptor, and is not replaced while it is registered.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let pidfd = pidfd.map_err(|error| {
            let (pidfd, cause) = error.into_parts();
            drop(Unwatched(Some((pid, pidfd))));
            cause
        })?;
        let hold = Hold {
            pins: 0,
            pidfd: Some(Arc::new(pidfd)),
        };
        let leader = Leader {
            pid,
            hold: Mutex::new(hold),
        };
        Ok(Session { leader, streams })
    }
}

fn start(program: Program) -> Result<Started, StartError> {
    let mut command = Command::new(&program.command);
    command
        .args(&program.args)
        .env_clear()
        .envs(plain_environment())
        .envs(program.env);
    let terminal = match program.wiring {
        Wiring::Pipes | Wiring::NoInput => {
            let stdin = match program.wiring {
                Wiring::Pipes => Stdio::piped(),
                _ => Stdio::null(),
            };
            command
                .stdin(stdin)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            None
        }
        Wiring::Terminal(size) => {
            let (unused, slave) = pty::open_pair(size).map_err(StartError::Exhausted)?;
            if let Some(identity) = &program.identity {
                // Programs that open their terminal by its name must be allowed to.
                unistd::fchown(&slave, Some(identity.uid), None).map_err(io::Error::from)?;
            }
            command
                .stdin(slave.try_clone()?)
                .stdout(slave.try_clone()?)
                .stderr(slave.try_clone()?);
            Some((unused, slave))
        }
    };
    let (directory, or_root) = match &program.directory {
        Directory::Exactly(path) => (path, false),
        Directory::Preferably(path) => (path, true),
    };
    let preparation = Preparation {
        parent: Pid::this(),
        takes_terminal: terminal.is_some(),
        identity: program.identity,
        directory: CString::new(directory.as_os_str().as_encoded_bytes())
            .map_err(|_| StartError::Directory(io::ErrorKind::InvalidInput.into()))?,
        or_root,
        last_signal: libc::SIGRTMAX(),
        open_files: open_files::inherited_limit(),
    };
    // SAFETY: only async-signal-safe calls happen in there, and nothing is allocated.
    unsafe { command.pre_exec(move || preparation.run()) };
    let child = command.spawn().map_err(told)?;
    // It was just started and is not reaped.
    let pid = Pid::from_raw(child.id().cast_signed());
    let pidfd = match pidfd_of(pid) {
        Ok(pidfd) => pidfd,
        Err(error) => {
            let _ = signal::killpg(pid, Signal::SIGKILL);
            let mut child = child;
            let _ = child.wait();
            return Err(StartError::Exhausted(error));
        }
    };
    for pipe in [
        child.stdout.as_ref().map(AsRawFd::as_raw_fd),
        child.stderr.as_ref().map(AsRawFd::as_raw_fd),
    ]
    .into_iter()
    .flatten()
    {
        // A user may have so many large pipes; a small one does as well.
        // SAFETY: the descriptor is open, and the call touches no memory of ours.
        let _ = unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, PIPE_BYTES) };
    }
    Ok(Started {
        unwatched: Unwatched(Some((pid, pidfd))),
        streams: match terminal {
            Some((unused, slave)) => RawStreams::Terminal(unused, slave),
            None => RawStreams::Pipes(child),
        },
    })
}

/// Between fork and exec there is only a number to say what went wrong: the step, and the kernel's own number.
#[derive(Clone, Copy)]
enum Step {
    Session = 1,
    Identity = 2,
    Directory = 3,
}

const PER_STEP: i32 = 100_000;

impl Step {
    fn failed(self) -> impl Fn(Errno) -> io::Error {
        move |errno| io::Error::from_raw_os_error(self as i32 * PER_STEP + errno as i32)
    }
}

fn told(error: io::Error) -> StartError {
    let number = error.raw_os_error().unwrap_or_default();
    let cause = io::Error::from_raw_os_error(number % PER_STEP);
    match number / PER_STEP {
        1 => StartError::Other(cause),
        2 => StartError::Identity(cause),
        3 => StartError::Directory(cause),
        _ => match Errno::from_raw(number) {
            Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => {
                StartError::Exhausted(error)
            }
            _ => StartError::Program(error),
        },
    }
}

/// What happens in the new process before its program is there.
struct Preparation {
    parent: Pid,
    takes_terminal: bool,
    identity: Option<Identity>,
    directory: CString,
    or_root: bool,
    /// The real-time signals have their end where the system says.
    last_signal: i32,
    /// Ours from before we took more: programs may count on it.
    open_files: Option<(libc::rlim_t, libc::rlim_t)>,
}

impl Preparation {
    fn run(&self) -> io::Result<()> {
        self.lead().map_err(Step::Session.failed())?;
        prefer_as_victim();
        if let Some((soft, hard)) = self.open_files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(Step::Session.failed())?;
        }
        close_at_exec();
        if let Some(identity) = &self.identity {
            take(identity).map_err(Step::Identity.failed())?;
        }
        // After the change of user, which makes the kernel forget it.
        prctl::set_pdeathsig(Signal::SIGKILL).map_err(Step::Session.failed())?;
        // The parent may have died before the request above took hold.
        if unistd::getppid() != self.parent {
            return Err(Step::Session.failed()(Errno::ESRCH));
        }
        match unistd::chdir(self.directory.as_c_str()) {
            Err(_) if self.or_root => unistd::chdir(c"/"),
            entered => entered,
        }
        .map_err(Step::Directory.failed())
    }

    fn lead(&self) -> nix::Result<()> {
        for number in 1..=self.last_signal {
            // What we ignore, the program would ignore as well.
            set_default(number);
        }
        signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        unistd::setsid()?;
        if self.takes_terminal {
            // SAFETY: descriptor 0 is the terminal by now, and the call touches no memory.
            Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
        }
        Ok(())
    }
}

/// Asks the kernel itself: the C library keeps its own signals from us, which its `posix_spawn` has the programs it starts ignore, us
/// among them. Those that cannot be set are always at their default.
fn set_default(number: i32) {
    // No handler, no flags, no mask: all of the kernel's struct is zero.
    let default = [0_u64; 4];
    // SAFETY: the kernel reads a struct that is no longer than ours and writes nothing.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            number,
            default.as_ptr(),
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

fn take(identity: &Identity) -> nix::Result<()> {
    unistd::setgroups(&identity.groups)?;
    unistd::setgid(identity.gid)?;
    unistd::setuid(identity.uid)
}

fn prefer_as_victim() {
    // SAFETY: the name ends with a NUL, the bytes are ours, and the descriptor is closed again.
    unsafe {
        let file = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if file >= 0 {
            libc::write(file, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
            libc::close(file);
        }
    }
}

/// What we were started with is not the program's either. A kernel that does not know the call passes it on.
fn close_at_exec() {
    // SAFETY: the call touches no memory, and closes nothing before the program is there.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

fn pidfd_of(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory of ours.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let number = Errno::result(opened)?;
    let number = i32::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The exit code of a process that has ended: 128 and the signal's number where a signal ended it. `None` where it has not.
fn wait(pidfd: &OwnedFd, how: i32) -> io::Result<Option<i32>> {
    loop {
        // SAFETY: all zeros are a valid value of this plain struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let number = pidfd.as_raw_fd().cast_unsigned();
        // SAFETY: the struct is ours and outlives the call.
        let waited = unsafe { libc::waitid(libc::P_PIDFD, number, &raw mut info, how) };
        match Errno::result(waited) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                // SAFETY: waitid has filled these fields, or left them zero.
                let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
                let by_signal = info.si_code != libc::CLD_EXITED;
                return Ok((pid != 0).then_some(status + if by_signal { 128 } else { 0 }));
            }
        }
    }
}

/// The first process of a session. Dropped without having been reaped, its group is killed.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
    hold: Mutex<Hold>,
}

#[derive(Debug)]
struct Hold {
    /// How many rely on its number.
    pins: usize,
    /// `None` once it is reaped.
    pidfd: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Leader {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Waits for its end and returns the exit code: 128 and the signal's number where a signal ended it. It is not reaped.
    pub async fn exited(&self) -> io::Result<i32> {
        let pidfd = self.hold().pidfd.clone();
        let pidfd = pidfd.ok_or(Errno::ECHILD)?;
        loop {
            let mut ready = pidfd.readable().await?;
            match wait(
                pidfd.get_ref(),
                libc::WEXITED | libc::WNOWAIT | libc::WNOHANG,
            )? {
                Some(code) => return Ok(code),
                None => ready.clear_ready(),
            }
        }
    }

    /// Signals its process group.
    pub fn signal(&self, signal: Signal) {
        let hold = self.hold();
        if hold.pidfd.is_some() {
            // A group that is gone is no error.
            let _ = signal::killpg(self.pid, signal);
        }
    }

    /// Keeps its number from being given to another; `None` where it may have been already.
    pub fn pin(leader: &Arc<Self>) -> Option<Pin> {
        let mut hold = leader.hold();
        hold.pidfd.as_ref()?;
        hold.pins += 1;
        drop(hold);
        Some(Pin(leader.clone()))
    }

    /// Gives its number back. `false` where somebody relies on it just now, or where it has not ended.
    pub fn reap(&self) -> bool {
        let mut hold = self.hold();
        let Some(pidfd) = &hold.pidfd else {
            return true;
        };
        let reaped = hold.pins == 0
            && matches!(
                wait(pidfd.get_ref(), libc::WEXITED | libc::WNOHANG),
                Ok(Some(_))
            );
        if reaped {
            hold.pidfd = None;
        }
        reaped
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        if self.reap() {
            return;
        }
        let Some(pidfd) = self.hold().pidfd.take() else {
            return;
        };
        // It takes its time to die, and is a zombie until somebody has waited for it.
        let reaper = std::thread::Builder::new().name("reaper".to_owned());
        if let Err(error) = reaper.spawn(move || wait(pidfd.get_ref(), libc::WEXITED)) {
            tracing::warn!(%error, pid = self.pid(), "a process may stay a zombie");
        }
    }
}

/// As long as it is held, the leader's number stays its own.
#[derive(Debug)]
pub struct Pin(Arc<Leader>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.hold().pins -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use tokio::{io::AsyncReadExt, time};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn start(command: &str, args: &[&str]) -> Session {
        let program = Program {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            directory: Directory::Preferably("/".into()),
            identity: None,
            wiring: Wiring::NoInput,
        };
        Session::start(program).await.unwrap()
    }

    #[tokio::test]
    async fn a_program_ignores_no_signal_that_we_ignore() {
        let ours = [libc::SIGPIPE, libc::SIGRTMIN() + 5, libc::SIGRTMAX()];
        for number in ours {
            // SAFETY: to ignore a signal runs no code of ours.
            unsafe { libc::signal(number, libc::SIG_IGN) };
        }
        let ignored = |status: &str| {
            let line = status.lines().find(|line| line.starts_with("SigIgn:"));
            line.unwrap().to_owned()
        };
        let own = ignored(&fs::read_to_string("/proc/self/status").unwrap());
        assert_ne!(own, "SigIgn:\t0000000000000000");
        let session = start("cat", &["/proc/self/status"]).await;
        let Streams::Pipes { mut stdout, .. } = session.streams else {
            panic!("it has pipes");
        };
        let mut status = String::new();
        let read = stdout.read_to_string(&mut status);
        time::timeout(PATIENCE, read).await.unwrap().unwrap();
        assert_eq!(ignored(&status), "SigIgn:\t0000000000000000");
    }

    #[tokio::test]
    async fn a_leader_that_is_dropped_leaves_no_zombie() {
        let leaders: Vec<_> = futures::future::join_all((0..10).map(|_| start("sleep", &["1000"])))
            .await
            .into_iter()
            .map(|session| session.leader)
            .collect();
        let pids: Vec<u32> = leaders.iter().map(Leader::pid).collect();
        drop(leaders);
        let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        let gone = async {
            while pids.iter().any(is_there) {
                tokio::task::yield_now().await;
            }
        };
        time::timeout(PATIENCE, gone).await.unwrap();
    }
}
