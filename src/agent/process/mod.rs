//! Processes that clients start on the browser's host.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use metrics::gauge;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time,
};

use crate::{
    agent::display,
    api::{
        ids::ProcessId,
        process::{Launch, SpawnRequest},
    },
    shutdown::Shutdown,
    system::{
        process::agent_run::AgentRun,
        process::pty::TerminalSize,
        process::session::{self, ProcessSession, Program, StdioMode, WorkingDirectory},
        process::tree,
    },
};

mod account;
mod budget;
mod input;
mod keeper;
mod output;
mod running;

pub use account::AccountError;
pub use budget::Share;
pub use input::{StdinError, WRITE_LIMIT};
pub use keeper::{EXIT_TIMED_OUT, TERM_GRACE};
pub use output::Collected;
pub use running::{Process, ResizeError, SignalError, Status};

use account::Account;
use budget::Budget;
use keeper::{Keeper, OUTPUT_GRACE};
use output::{Collection, Reading, Sink};

/// How long the output and the exit code of a process that has ended can still be read.
pub const RETENTION: Duration = Duration::from_secs(120);
/// More that have ended than this make the oldest go before their time.
pub const MAX_EXITED: usize = 1024;
/// So does more output than this of those that have ended.
pub const MAX_EXITED_BYTES: usize = 128 << 20;
const TERM: &str = "xterm-256color";
/// For all to end when the agent stops, beside what they are given to end by themselves.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// What bounds the processes.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many may be there at once.
    pub max: usize,
    /// Bytes of output that are kept for the readers of each.
    pub kept_output: usize,
    /// Bytes that are kept of each of the two outputs of a program that is run to its end.
    pub exec_output: usize,
    /// Bytes that are kept of all of those together.
    pub exec_total: usize,
    /// The agent's folder, where a record of this run is kept: others can then end what a killed agent has left.
    pub folder: PathBuf,
}

/// The display that programs are to use.
#[derive(Debug, Clone)]
pub struct DisplayAccess {
    pub name: Arc<str>,
    pub authority: PathBuf,
}

impl DisplayAccess {
    /// The variables by which programs of that user find it and are let in; none where they would not be.
    async fn for_programs_of(self, account: &Account) -> Vec<(&'static str, OsString)> {
        let name = ("DISPLAY", OsString::from(&*self.name));
        let Some(identity) = &account.credentials else {
            return vec![name, ("XAUTHORITY", self.authority.into())];
        };
        let uid = identity.uid.as_raw();
        match display::admit(&self.name, &self.authority, uid).await {
            Ok(()) => vec![name],
            Err(error) => {
                tracing::warn!(%error, uid, "a program of another user goes without the screen");
                Vec::new()
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("{0} processes run, which is the limit")]
    Full(usize),
    #[error("the agent is being stopped")]
    Stopping,
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Start(#[from] session::StartError),
}

/// What came of a program that was run to its end.
#[derive(Debug)]
pub struct Execution {
    pub exit_code: i32,
    pub stdout: Collected,
    pub stderr: Collected,
    /// Something that it has started got away and has an output open still.
    pub output_open: bool,
    pub took: Duration,
    /// What the output takes.
    pub memory: Share,
}

/// The processes of this agent; clones share them.
#[derive(Debug, Clone)]
pub struct Processes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    run: AgentRun,
    own: Account,
    places: Arc<Semaphore>,
    exec_memory: Budget,
    known: Mutex<Known>,
    shutdown: Shutdown,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<ProcessId, Arc<Process>>,
    /// Those that have ended, the oldest first.
    exited: VecDeque<(ProcessId, usize)>,
    exited_bytes: usize,
}

impl Processes {
    /// Clears up what an earlier agent has left, and has all that will be started end with this one.
    ///
    /// # Errors
    /// Where the record of this run cannot be written.
    pub async fn new(options: Options, shutdown: &Shutdown) -> io::Result<Self> {
        let run = AgentRun::start(&options.folder).await?;
        let processes = Processes {
            inner: Arc::new(Inner {
                own: account::own(),
                places: Arc::new(Semaphore::new(options.max)),
                exec_memory: Budget::of(options.exec_total),
                options,
                run,
                known: Mutex::default(),
                shutdown: shutdown.clone(),
            }),
        };
        let stopping = processes.clone();
        shutdown.spawn(async move { stopping.end_with_the_agent().await });
        Ok(processes)
    }

    /// Starts a program and keeps its output for whoever reads it.
    ///
    /// # Errors
    /// Where it cannot be started; nothing runs then.
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
        let id = ProcessId::generate();
        let (session, place) = self.start(id, request.launch, stdio, display).await?;
        let (sink, log) = Sink::keeping(self.inner.options.kept_output);
        let (process, outlets) = Process::new(id, self.inner.mark(id), session, log.clone());
        let process = Arc::new(process);
        self.inner.add(process.clone());
        let keeper = Keeper {
            deadline,
            cancel: self.inner.shutdown.token(),
        };
        let (processes, kept) = (self.clone(), process.clone());
        self.inner.shutdown.spawn(async move {
            let mut reading = Reading::start(outlets, &sink);
            let end = keeper.keep(&kept).await;
            reading.settle(OUTPUT_GRACE).await;
            sink.end(end.exit_code, reading.finish().await);
            keeper.see_off(&kept).await;
            drop(place);
            processes.inner.count();
            processes.inner.has_ended(id, log.weight());
            processes.forget_later(id).await;
        });
        Ok(process)
    }

    /// Runs a program to its end. Whoever stops waiting ends it, and all that it has started ends with it.
    ///
    /// # Errors
    /// Where it cannot be started; nothing runs then.
    pub async fn exec(
        &self,
        launch: Launch,
        display: Option<DisplayAccess>,
    ) -> Result<Execution, SpawnError> {
        let begun = time::Instant::now();
        let deadline = deadline(&launch);
        let id = ProcessId::generate();
        let (session, place) = self.start(id, launch, StdioMode::NoInput, display).await?;
        let memory = self.inner.exec_memory.share();
        let sink = Sink::collecting(self.inner.options.exec_output, memory);
        let (_, nobody_reads) = Sink::keeping(0);
        let (process, outlets) = Process::new(id, self.inner.mark(id), session, nobody_reads);
        let process = Arc::new(process);
        self.inner.count();
        let cancel = self.inner.shutdown.token().child_token();
        let keeper = Keeper {
            deadline,
            cancel: cancel.clone(),
        };
        let (done, answer) = oneshot::channel();
        let processes = self.clone();
        self.inner.shutdown.spawn(async move {
            let mut reading = Reading::start(outlets, &sink);
            let end = keeper.keep(&process).await;
            reading.settle(OUTPUT_GRACE).await;
            let cleared = keeper.clear(&process).await;
            // With those who had the output open, what they wrote is complete.
            reading.settle(OUTPUT_GRACE).await;
            let output_open = reading.finish().await;
            let place = if cleared {
                drop(place);
                processes.inner.count();
                None
            } else {
                Some(place)
            };
            // Nobody may be there any more.
            let _ = done.send((end, output_open, sink.collected()));
            if place.is_some() {
                keeper.see_off(&process).await;
                drop(place);
                processes.inner.count();
            }
        });
        let _cancelled_if_abandoned = cancel.drop_guard();
        let answer = answer.await.map_err(|_| SpawnError::Stopping)?;
        let (end, output_open, collection) = answer;
        let Collection {
            stdout,
            stderr,
            memory,
        } = collection;
        Ok(Execution {
            exit_code: match end.timed_out {
                true => EXIT_TIMED_OUT,
                false => end.exit_code,
            },
            stdout,
            stderr,
            output_open,
            took: begun.elapsed(),
            memory,
        })
    }

    #[must_use]
    pub fn get(&self, id: &ProcessId) -> Option<Arc<Process>> {
        self.inner.known().by_id.get(id).cloned()
    }

    async fn start(
        &self,
        id: ProcessId,
        launch: Launch,
        stdio: StdioMode,
        display: Option<DisplayAccess>,
    ) -> Result<(ProcessSession, OwnedSemaphorePermit), SpawnError> {
        if self.inner.shutdown.stopping() {
            return Err(SpawnError::Stopping);
        }
        let places = self.inner.places.clone();
        let place = places
            .try_acquire_owned()
            .map_err(|_| SpawnError::Full(self.inner.options.max))?;
        let own = &self.inner.own;
        let account = match &launch.as_user {
            Some(name) => account::named(name).await?,
            None if launch.as_root => account::root(own)?,
            None => own.clone(),
        };
        let display = match display {
            Some(display) => display.for_programs_of(&account).await,
            None => Vec::new(),
        };
        let mut env = Vec::new();
        let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.into()));
        set("HOME", account.home.as_os_str());
        set("USER", account.name.as_ref());
        set("LOGNAME", account.name.as_ref());
        set("SHELL", account.shell.as_os_str());
        for (name, value) in &display {
            set(name, value);
        }
        if let StdioMode::Terminal(_) = stdio {
            set("TERM", TERM.as_ref());
        }
        for (name, value) in launch.env.iter() {
            set(name, value.as_ref());
        }
        set(tree::MARK, self.inner.mark(id).as_ref());
        let program = Program {
            command: launch.command,
            args: launch.args,
            env,
            directory: match launch.cwd {
                Some(path) => WorkingDirectory::Required(path.as_path().to_owned()),
                None => WorkingDirectory::Preferred(account.home),
            },
            credentials: account.credentials,
            stdio,
        };
        let session = ProcessSession::start(program).await?;
        Ok((session, place))
    }

    async fn forget_later(&self, id: ProcessId) {
        tokio::select! {
            () = time::sleep(RETENTION) => {}
            () = self.inner.shutdown.stopped() => {}
        }
        self.inner.forget(id);
    }

    async fn end_with_the_agent(&self) {
        self.inner.shutdown.stopped().await;
        // All places are free once all have ended.
        let all = u32::try_from(self.inner.options.max).unwrap_or(u32::MAX);
        let ended = self.inner.places.acquire_many(all);
        let _ = time::timeout(TERM_GRACE + STOP_GRACE, ended).await;
        // What has left its session and outlived its parents.
        self.inner.run.kill_all().await;
    }
}

fn deadline(launch: &Launch) -> Option<time::Instant> {
    let timeout = launch.timeout_sec.map(Duration::from);
    timeout.map(|timeout| time::Instant::now() + timeout)
}

impl Inner {
    fn mark(&self, id: ProcessId) -> String {
        self.run.mark(&id.to_string())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    fn add(&self, process: Arc<Process>) {
        self.known().by_id.insert(process.id, process);
        self.count();
    }

    /// Makes room for another that has ended.
    fn has_ended(&self, id: ProcessId, weight: usize) {
        let mut known = self.known();
        known.exited.push_back((id, weight));
        known.exited_bytes += weight;
        while known.exited.len() > MAX_EXITED
            || (known.exited_bytes > MAX_EXITED_BYTES && known.exited.len() > 1)
        {
            let Some((oldest, weight)) = known.exited.pop_front() else {
                break;
            };
            known.exited_bytes -= weight;
            known.by_id.remove(&oldest);
        }
    }

    fn forget(&self, id: ProcessId) {
        let mut known = self.known();
        known.by_id.remove(&id);
        let at = known.exited.iter().position(|(exited, _)| *exited == id);
        if let Some((_, weight)) = at.and_then(|at| known.exited.remove(at)) {
            known.exited_bytes -= weight;
        }
    }

    fn count(&self) {
        let running = self.options.max - self.places.available_permits();
        gauge!("berth_processes").set(running as f64);
    }
}
