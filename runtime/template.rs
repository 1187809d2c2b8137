//! The template: a process that has started the engine and waits. It forks a worker per request of
//! the agent.
//!
//! ```text
//! agent ── ForkRequest, worker's socket and standard error ──▶ template ── clone ──▶ worker
//!       ◀───────────────────── ForkReply ─────────────────────                         │
//!       ◀──────────────────────── parent, reaps, speaks the worker's protocol ─────────┘
//! ```
//!
//! A fork shares the template's memory until one of them writes to it, so it starts in a fraction
//! of the time and has the engine's heap without a copy. The template itself runs no script and
//! holds nothing of one. A worker is a child of the agent, not of the template, and outlives it.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use nix::{
    cmsg_space,
    errno::Errno,
    libc,
    sys::{
        prctl,
        socket::{ControlMessageOwned, MsgFlags, recvmsg, send},
    },
    unistd::{Pid, dup2_stderr, dup2_stdin},
};

use crate::{
    engine::{Engine, EngineError},
    heap::HugeHeap,
    sandbox::{self, SandboxError},
    script_protocol::{ForkReply, ForkRequest, MAX_FORK_MESSAGE},
    snapshot::{self, SnapshotError},
    worker::{self, Assignment, Limits, WorkerError},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The parent of the directories whose files scripts may use, one per worker
    #[arg(long)]
    scratch: PathBuf,
    /// The limit of the engine's heap, in MiB
    #[arg(long, default_value_t = 256)]
    heap_mb: u32,
    /// The limit of the files in a worker's directory, in MiB
    #[arg(long, default_value_t = 256)]
    scratch_mb: u32,
    /// The uid that workers change to when started as root
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// The only group of that user
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("cannot start the engine: {0}")]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("threads of the engine, which a fork would lose: {0}")]
    Threads(usize),
    #[error("{subject}: {source}")]
    Io {
        subject: &'static str,
        source: io::Error,
    },
    #[error("invalid request: {0}")]
    Request(String),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

fn io_error<E: Into<io::Error>>(subject: &'static str) -> impl FnOnce(E) -> TemplateError {
    move |source| TemplateError::Io {
        subject,
        source: source.into(),
    }
}

/// A received request.
struct Request {
    assignment: Assignment,
    socket: OwnedFd,
    stderr: OwnedFd,
}

/// Forks workers until the agent closes the socket on standard input. Returns in each worker, too,
/// when it has ended.
pub(crate) fn run(options: Options) -> Result<(), TemplateError> {
    sandbox::close_inherited().map_err(io_error("inherited descriptors"))?;
    let heap = HugeHeap::reserve();
    let mut engine = Engine::start(snapshot::load()?, options.heap_mb)?;
    // Every fork has the memory that this has touched.
    worker::load_warm_up(&mut engine)?;
    heap.complete();
    // Without symbolic links, as the workers need it.
    let scratch = options
        .scratch
        .canonicalize()
        .map_err(io_error("scratch directory"))?;
    let limits = Limits {
        heap_mb: options.heap_mb,
        scratch_mb: options.scratch_mb,
        user: options.uid.zip(options.gid),
    };
    sandbox::set_limits(sandbox::memory_limit(limits.heap_mb), limits.scratch_mb)?;
    #[cfg(feature = "v8")]
    inherit_memory().map_err(io_error("own memory"))?;
    let threads = threads().map_err(io_error("own threads"))?;
    if threads > 1 {
        return Err(TemplateError::Threads(threads - 1));
    }
    sandbox::restrict_template()?;
    while let Some(request) = receive(&scratch)? {
        match fork() {
            Ok(None) => return work(engine, request, limits),
            Ok(Some(pid)) => reply(&ForkReply::Forked { pid: pid.as_raw() })?,
            Err(error) => reply(&ForkReply::Failed {
                reason: error.to_string(),
            })?,
        }
    }
    Ok(())
}

/// Runs the worker in a fork.
fn work(engine: Engine, request: Request, limits: Limits) -> Result<(), TemplateError> {
    let Request {
        assignment,
        socket,
        stderr,
    } = request;
    prctl::set_name(c"berth-worker").map_err(io_error("own name"))?;
    dup2_stderr(&stderr).map_err(io_error("standard error"))?;
    drop(stderr);
    // Also closes this end of the template's socket.
    dup2_stdin(&socket).map_err(io_error("standard input"))?;
    Ok(worker::run(engine, socket, &assignment, limits)?)
}

/// Waits for a request. Returns `None` once the agent has closed its end.
fn receive(root: &Path) -> Result<Option<Request>, TemplateError> {
    let mut buffer = [0; MAX_FORK_MESSAGE];
    let mut control = cmsg_space!([libc::c_int; 2]);
    let (length, descriptors) = loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received = recvmsg::<()>(
            io::stdin().as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        );
        match received {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(io_error("standard input")(error)),
            Ok(message) => {
                let parts = message.cmsgs().map_err(io_error("standard input"))?;
                break (
                    message.bytes,
                    parts.flat_map(descriptors_of).collect::<Vec<_>>(),
                );
            }
        }
    };
    if length == 0 {
        return Ok(None);
    }
    let request: ForkRequest = serde_json::from_slice(&buffer[..length])
        .map_err(|error| TemplateError::Request(error.to_string()))?;
    let mut components = Path::new(&request.scratch).components();
    let (Some(Component::Normal(name)), None) = (components.next(), components.next()) else {
        let name = request.scratch;
        return Err(TemplateError::Request(format!(
            "`scratch` is not the name of a directory: {name}"
        )));
    };
    let [socket, stderr] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|found| {
        TemplateError::Request(format!("received {} of 2 descriptors", found.len()))
    })?;
    Ok(Some(Request {
        assignment: Assignment {
            scratch: root.join(name),
            attaches: request.attaches,
        },
        socket,
        stderr,
    }))
}

#[allow(unsafe_code, reason = "takes ownership of received descriptors")]
fn descriptors_of(message: ControlMessageOwned) -> Vec<OwnedFd> {
    match message {
        // SAFETY: the kernel has just created these descriptors for this process.
        ControlMessageOwned::ScmRights(received) => received
            .into_iter()
            .map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
            .collect(),
        _ => Vec::new(),
    }
}

fn reply(reply: &ForkReply) -> Result<(), TemplateError> {
    let reply =
        serde_json::to_vec(reply).map_err(|error| TemplateError::Request(error.to_string()))?;
    match send(
        io::stdin().as_fd().as_raw_fd(),
        &reply,
        MsgFlags::MSG_NOSIGNAL,
    ) {
        // The agent is gone, which the next request shows.
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
        Err(error) => Err(io_error("standard input")(error)),
    }
}

/// Forks. Returns `None` in the new process, which is a child of this process's parent.
#[allow(unsafe_code, reason = "no wrapper sets the parent of a fork")]
fn fork() -> nix::Result<Option<Pid>> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without a new stack this is a fork with another parent. This process has one thread,
    // which holds no lock, so the copy can continue as it is.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match Errno::result(pid)? {
        0 => Ok(None),
        pid => Ok(Some(Pid::from_raw(
            i32::try_from(pid).map_err(|_| Errno::ERANGE)?,
        ))),
    }
}

/// Makes forks inherit all memory. V8 excludes its heap, which makes forks fast that only execute
/// another program.
#[cfg(feature = "v8")]
#[allow(unsafe_code, reason = "changes a property of mapped memory")]
fn inherit_memory() -> io::Result<()> {
    let mut mapping = None;
    for line in std::fs::read_to_string("/proc/self/smaps")?.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let Some((start, end)) = mapping else {
                continue;
            };
            if flags.split_whitespace().any(|flag| flag == "dc") {
                let start = start as *mut libc::c_void;
                // SAFETY: the range is mapped, and its content and access remain as they are.
                Errno::result(unsafe {
                    libc::madvise(start, end - start as usize, libc::MADV_DOFORK)
                })?;
            }
        } else if let Some(range) = range_of(line) {
            mapping = Some(range);
        }
    }
    Ok(())
}

/// Returns the addresses in the first line of a mapping, or `None` for another line.
#[cfg(feature = "v8")]
fn range_of(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let parse = |address| usize::from_str_radix(address, 16).ok();
    Some((parse(start)?, parse(end)?))
}

/// Returns the number of this process's threads.
fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}
