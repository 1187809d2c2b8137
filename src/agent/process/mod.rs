//! Processes that clients start on the browser's host.
//!
//! [`Processes::spawn`] starts a process whose output clients read as events.
//! [`Processes::exec`] runs a program to completion and returns the head of its output.
//!
//! ```text
//! starting ──▶ running ──exit──▶ exited, session alive ──reap──▶ reaped ──RETENTION──▶ removed
//!    │            │ deadline, cancellation: SIGTERM, SIGKILL        │
//!    │ permit     │ OutputReader copies to the sink                 │ permit released
//!    ▼            ▼                                                 ▼
//!  limit      readers, stdin, resize, signals                output readable until removed
//! ```
//!
//! A task owns the lifecycle of a process, its output reader and its permit: one of its own for
//! `spawn`, that of the request for `exec`. The registry maps ids to [`Process`] handles; handlers
//! share these. [`AgentRun`] kills everything that is left when the agent stops, and at the next
//! start if the agent was killed.
//!
//! ```text
//! launch         resolves a request: user, environment, directory
//! user           looks up users and their credentials
//! lifecycle      waits, terminates, reaps
//! handle         the shared handle of one process
//! registry       the processes by id, with limits for exited ones
//! input          standard input
//! output         reads pipes and terminals
//! capture        retains output: newest events, or the head of each stream
//! memory_budget  limits the memory of all captures together
//! cpu_usage      CPU percentage between samples
//! exec           runs programs to completion
//! ```

mod capture;
mod cpu_usage;
mod exec;
mod handle;
mod input;
mod launch;
mod lifecycle;
mod memory_budget;
mod output;
mod registry;
mod user;

pub use capture::CapturedOutput;
pub use exec::Execution;
pub use handle::{Process, ProcessStatus, ResizeError, SignalError};
pub use input::{StdinError, WRITE_TIMEOUT};
pub use launch::DisplayAccess;
pub use memory_budget::MemoryReservation;
pub use user::UserError;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics::gauge;
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time,
};
use tokio_util::task::TaskTracker;

use self::{
    capture::OutputSink,
    launch::Users,
    lifecycle::{Lifecycle, OUTPUT_GRACE_PERIOD, TERM_GRACE_PERIOD},
    memory_budget::MemoryBudget,
    output::{OutputReader, ProcessOutput},
    registry::ProcessRegistry,
    user::User,
};
use crate::{
    agent::{isolation::Isolation, sessions::Taints},
    api::{
        ids::ProcessId,
        process::{Launch, SpawnRequest},
    },
    shutdown::Shutdown,
    system::process::{
        agent_run::AgentRun,
        pty::TerminalSize,
        session::{EXEC_TIMEOUT, ProcessSession, SparePipes, StartError, StdioMode},
    },
};

/// The time for which the output and the exit code of an exited process stay readable.
pub const RETENTION: Duration = Duration::from_secs(120);
/// The number of exited processes that are retained.
pub const MAX_EXITED: usize = 1024;
/// The total output of exited processes that is retained.
pub const MAX_EXITED_BYTES: usize = 128 << 20;
/// Time for all processes to end at shutdown, in addition to the time between SIGTERM and
/// SIGKILL.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(3);
/// Time for the programs that are being started at the end of the session: longer than one may wait
/// for others and for its `exec`.
const START_TIMEOUT: Duration = Duration::from_secs(2 * EXEC_TIMEOUT.as_secs() + 1);
/// Time from the start or the end of a program to the upkeep of cgroups and pipes.
const UPKEEP_DELAY: Duration = Duration::from_millis(3);

/// Limits, and the agent's state directory.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of processes at the same time.
    pub max: usize,
    /// Bytes of output retained for the readers of each process.
    pub log_bytes: usize,
    /// Bytes retained of each output stream of an executed program.
    pub exec_output_bytes: usize,
    /// Bytes retained of all executed programs together.
    pub exec_total_bytes: usize,
    /// The directory with the record of this run, by which a later agent finds its processes.
    pub state_dir: PathBuf,
    /// The user and the directories that programs have alone, if they do.
    pub isolation: Option<Isolation>,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("process limit reached ({0})")]
    LimitReached(usize),
    #[error("the agent is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// The client processes of this agent. Clones share them.
#[derive(Debug, Clone)]
pub struct Processes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    run: AgentRun,
    current_user: User,
    permits: Arc<Semaphore>,
    spare_pipes: SparePipes,
    is_upkeep_due: AtomicBool,
    exec_memory: MemoryBudget,
    registry: Mutex<ProcessRegistry>,
    shutdown: Shutdown,
    /// The programs that are being started.
    starts: TaskTracker,
    taints: Taints,
    /// Whether processes survived the kill of all of them.
    has_survivors: AtomicBool,
}

/// A program that has just been started.
struct StartedProcess {
    session: ProcessSession,
    /// The mark of its process tree.
    mark: String,
    permit: ProgramPermit,
}

/// The task of one spawned process.
struct SpawnTask {
    inner: Arc<Inner>,
    process: Arc<Process>,
    output: ProcessOutput,
    sink: OutputSink,
    lifecycle: Lifecycle,
    permit: ProgramPermit,
}

/// The permission for one program: from before its start until it is reaped, or was not started.
/// Then there is something to create and to remove for the upkeep.
struct ProgramPermit {
    inner: Arc<Inner>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ProgramPermit {
    fn drop(&mut self) {
        Inner::keep_up_soon(&self.inner);
    }
}

impl Processes {
    /// Kills the processes of a previous agent, and registers the kill of all processes of this
    /// one for its shutdown.
    ///
    /// # Errors
    /// Fails if the record of this run cannot be written.
    pub async fn new(options: Options, taints: Taints, shutdown: &Shutdown) -> io::Result<Self> {
        let run = AgentRun::start(&options.state_dir).await?;
        let inner = Arc::new(Inner {
            current_user: User::current(),
            permits: Arc::new(Semaphore::new(options.max)),
            spare_pipes: SparePipes::default(),
            is_upkeep_due: AtomicBool::new(false),
            exec_memory: MemoryBudget::new(options.exec_total_bytes),
            options,
            run,
            registry: Mutex::default(),
            shutdown: shutdown.clone(),
            starts: TaskTracker::new(),
            taints,
            has_survivors: AtomicBool::new(false),
        });
        let ending = inner.clone();
        shutdown.spawn(async move { ending.kill_all_at_shutdown().await });
        Ok(Processes { inner })
    }

    /// Starts a process and retains its newest output.
    ///
    /// # Errors
    /// Fails if the program cannot be started; nothing runs then.
    pub async fn spawn(
        &self,
        request: SpawnRequest,
        display: Option<DisplayAccess>,
    ) -> Result<Arc<Process>, SpawnError> {
        let stdio = match request.allocate_tty {
            true => StdioMode::Terminal(TerminalSize {
                rows: request.rows.get(),
                cols: request.cols.get(),
            }),
            false => StdioMode::Pipes,
        };
        let deadline = deadline(&request.launch);
        let started = self.start(request.launch, stdio, display).await?;
        if started.session.leader.was_killed_before_exec() {
            return Err(StartError::Killed.into());
        }
        let id = ProcessId::generate();
        let (sink, log) = OutputSink::log(self.inner.options.log_bytes);
        let (process, output) = Process::new(id, started.mark, started.session, log);
        let process = Arc::new(process);
        self.inner.registry.lock().insert(process.clone());
        self.inner.update_metrics();
        let task = SpawnTask {
            inner: self.inner.clone(),
            process: process.clone(),
            output,
            sink,
            lifecycle: Lifecycle {
                deadline,
                cancel: self.inner.shutdown.token(),
                shutdown: self.inner.shutdown.clone(),
            },
            permit: started.permit,
        };
        self.inner.shutdown.spawn(task.run());
        Ok(process)
    }

    /// Returns the number of running processes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.count()
    }

    /// Returns whether a process runs, or has exited and can still be read.
    #[must_use]
    pub fn is_any_known(&self) -> bool {
        self.count() > 0 || !self.inner.registry.lock().is_empty()
    }

    /// Returns whether a process is left, such as a daemon that has left its session.
    pub async fn has_left_any(&self) -> bool {
        self.inner.run.has_processes().await
    }

    /// Returns whether processes survived the end of the session.
    #[must_use]
    pub fn have_survivors(&self) -> bool {
        self.inner.has_survivors.load(Ordering::Relaxed)
    }

    /// Returns a process by id, if it runs or exited recently.
    #[must_use]
    pub fn get(&self, id: &ProcessId) -> Option<Arc<Process>> {
        self.inner.registry.lock().get(id)
    }

    async fn start(
        &self,
        launch: Launch,
        stdio: StdioMode,
        display: Option<DisplayAccess>,
    ) -> Result<StartedProcess, SpawnError> {
        let inner = &self.inner;
        // Before the check: the end of the session waits for a start that has passed it.
        let _starting = inner.starts.token();
        if inner.shutdown.is_requested() {
            return Err(SpawnError::ShuttingDown);
        }
        let permit = inner.permits.clone().try_acquire_owned();
        let permit = ProgramPermit {
            inner: inner.clone(),
            _permit: permit.map_err(|_| SpawnError::LimitReached(inner.options.max))?,
        };
        let isolation = inner.options.isolation.as_ref();
        let own_user = isolation.and_then(Isolation::dedicated_uid);
        if own_user.is_none() || launch.as_root || launch.as_user.is_some() {
            inner.taints.program().await;
        }
        let mark = inner.run.new_mark();
        let mut program = launch::prepare(launch, stdio, display, &mark, &inner.users()).await?;
        program.cgroup = inner.run.new_cgroup();
        if !matches!(stdio, StdioMode::Terminal(_)) {
            program.output_pipes = inner.spare_pipes.take();
        }
        // Before the start, which wakes another thread of the runtime anyway.
        Inner::keep_up_soon(inner);
        let session = ProcessSession::start(program).await?;
        Ok(StartedProcess {
            session,
            mark,
            permit,
        })
    }
}

impl SpawnTask {
    async fn run(self) {
        let SpawnTask {
            inner,
            process,
            output,
            sink,
            lifecycle,
            permit,
        } = self;
        let mut reader = OutputReader::new(output, &sink);
        let exit = reader.read_during(lifecycle.supervise(&process)).await;
        reader.drain(OUTPUT_GRACE_PERIOD).await;
        sink.end(exit.code, reader.finish().await);
        lifecycle.reap(&process).await;
        drop(permit);
        inner.update_metrics();
        let id = process.id;
        let output_bytes = process.output_bytes();
        // Eviction from the registry must free the output.
        drop((process, sink));
        inner.registry.lock().set_exited(id, output_bytes);
        inner.shutdown.sleep(RETENTION).await;
        inner.registry.lock().remove(id);
    }
}

impl Inner {
    fn users(&self) -> Users<'_> {
        Users {
            agent: &self.current_user,
            isolation: self.options.isolation.as_ref(),
        }
    }

    /// Creates ahead what later starts take, and removes what earlier ones have left. This is
    /// done after a moment, in which a short program ends and its client has the response.
    fn keep_up_soon(this: &Arc<Self>) {
        // There is none if the runtime drops the task of a request when it ends.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if this.is_upkeep_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = this.clone();
        runtime.spawn(async move {
            if inner.shutdown.sleep(UPKEEP_DELAY).await {
                inner.is_upkeep_due.store(false, Ordering::Relaxed);
                inner.spare_pipes.refill().await;
                inner.run.keep_up().await;
            }
        });
    }

    fn update_metrics(&self) {
        gauge!("berth_processes").set(self.count() as f64);
    }

    fn count(&self) -> usize {
        self.options.max - self.permits.available_permits()
    }

    async fn kill_all_at_shutdown(&self) {
        self.shutdown.requested().await;
        if !self.shutdown.is_discarded() {
            // Every process holds a permit until it is reaped.
            let all = u32::try_from(self.options.max).unwrap_or(u32::MAX);
            let ended = self.permits.acquire_many(all);
            let _ = time::timeout(TERM_GRACE_PERIOD + SHUTDOWN_GRACE_PERIOD, ended).await;
        }
        let has_settled = self.wait_for_starts().await;
        // This also kills processes that left their session and outlived their parents.
        let all_died = self.run.kill_all().await;
        if let Some(isolation) = self.options.isolation.clone() {
            // This also kills those that have hidden their mark.
            let _ = spawn_blocking(move || isolation.kill_processes()).await;
        }
        let has_survivors = !(has_settled && all_died);
        self.has_survivors.store(has_survivors, Ordering::Relaxed);
    }

    /// Waits until no program is being started, so that the kill of all misses none. Returns
    /// whether that was in time.
    async fn wait_for_starts(&self) -> bool {
        self.starts.close();
        let settled = time::timeout(START_TIMEOUT, self.starts.wait());
        settled.await.is_ok()
    }
}

fn deadline(launch: &Launch) -> Option<time::Instant> {
    let timeout = launch.timeout_sec.map(Duration::from);
    timeout.map(|timeout| time::Instant::now() + timeout)
}

#[cfg(test)]
mod tests;
