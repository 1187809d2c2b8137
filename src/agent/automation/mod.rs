//! Running scripts beside the browser.
//!
//! ```text
//! Automation::execute
//!   |-- without an executor: a slot, then a worker of the [`pool`] for this call alone, or one
//!   |                        that is [`unattached`] if the script does not use the browser
//!   `-- with an executor:    [`executors`], one task and one worker per name
//!                               |
//!                               v
//!                    [`worker_session`]: one process, one CDP connection
//!                               |
//!                               v
//!              [`relay`]: which messages pass between them   [`requests`]: HTTP of scripts
//! ```
//!
//! A script runs in a separate process, never in the agent. The pool's task owns the warm workers,
//! an executor's task owns its worker, and a worker's session owns the process, the connection to
//! Chromium and the scratch directory.

mod downloads;
mod executors;
mod front;
mod hung_tabs;
mod output;
mod pool;
mod queue;
mod relay;
mod requests;
mod scratch;
mod script_user;
mod session_files;
mod unattached;
mod worker_session;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use metrics::{counter, histogram};
use serde_json::value::RawValue;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

pub(super) use self::script_user::find_user;
use self::{
    executors::{Executors, MAX_EXECUTORS, MAX_QUEUED_CALLS},
    hung_tabs::HungTabs,
    pool::{AcquireError, Pool, PoolOptions},
    scratch::ScratchRoot,
    session_files::SessionFiles,
    unattached::{UnattachedOptions, UnattachedWorkers},
    worker_session::{Job, Outcome, Report},
};
use crate::{
    agent::{chromium::Chromium, settings::Config},
    api::automation::ExecutorName,
    shutdown::Shutdown,
    system::{
        files::root::RootDirectory,
        outbound::FetchNetwork,
        process::session::Credentials,
        script::template::{TemplateOptions, WorkerTemplate},
    },
};

/// The longest wait of a call for a browser that is restarting.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait of a call for a worker. Starting one takes a small part of it.
const WORKER_TIMEOUT: Duration = Duration::from_secs(15);
/// The most calls of executors that may wait at once, for the browser or in a queue.
const MAX_WAITING: usize = MAX_EXECUTORS * MAX_QUEUED_CALLS;
/// The ready workers for scripts that do not use the browser, per attached one. They have a fourth
/// of its memory, and their calls are short.
const UNATTACHED_PER_WARM_WORKER: usize = 4;
/// The most workers tried for one call: more than can be warm and dead.
const MAX_WORKERS_TRIED: usize = 16;

/// The settings of script execution.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `berth-script` program.
    pub program: PathBuf,
    /// The directory of the scratch directories, which contains nothing else.
    pub scratch: PathBuf,
    /// The directory in which Chromium saves downloads.
    pub downloads: PathBuf,
    pub warm_workers: usize,
    pub max_executes: usize,
    pub heap_mb: u32,
    pub scratch_mb: u32,
    /// The network of the requests of scripts.
    pub network: FetchNetwork,
    /// The files of the session that scripts may give to pages.
    files: SessionFiles,
    /// The user that scripts run as. `None` if the agent is not root.
    pub user: Option<Credentials>,
    /// The time for which an executor outlives its last call.
    pub executor_idle: Duration,
}

impl Options {
    pub(super) fn new(config: &Config, root: RootDirectory, user: Option<Credentials>) -> Self {
        Options {
            program: config.script_worker.clone(),
            scratch: config.session_dir.scratch(),
            downloads: config.session_dir.downloads(),
            warm_workers: config.warm_workers,
            max_executes: config.max_executes,
            heap_mb: config.script_heap_mb,
            scratch_mb: config.script_files_mb,
            network: requests::network(config, user.as_ref()),
            files: SessionFiles::new(root, &config.session_dir),
            user,
            executor_idle: config.executor_idle,
        }
    }
}

/// A script to run.
#[derive(Debug)]
pub struct Script {
    pub code: String,
    pub timeout: Duration,
}

/// The result of a script that ran.
#[derive(Debug)]
pub struct Execution {
    pub success: bool,
    pub result: Option<Box<RawValue>>,
    pub error: Option<String>,
    pub stdout: String,
    pub stderr: String,
}

/// Why a script did not run.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    #[error("limit of running scripts reached ({0})")]
    Busy(usize),
    #[error("limit of queued calls of the executor `{0}` reached ({MAX_QUEUED_CALLS})")]
    ExecutorQueueFull(ExecutorName),
    #[error("limit of waiting calls of executors reached ({MAX_WAITING})")]
    TooManyWaiting,
    #[error("executor limit reached ({MAX_EXECUTORS}), and none is idle")]
    ExecutorsFull,
    #[error("the browser is not running")]
    BrowserDown,
    #[error("no script worker is available")]
    NoWorker(#[source] AcquireError),
    #[error("the agent is shutting down")]
    Stopping,
}

impl From<AcquireError> for ExecuteError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Stopped => ExecuteError::Stopping,
            error => ExecuteError::NoWorker(error),
        }
    }
}

impl ExecuteError {
    fn metric_label(&self) -> &'static str {
        match self {
            ExecuteError::Busy(_)
            | ExecuteError::ExecutorQueueFull(_)
            | ExecuteError::TooManyWaiting
            | ExecuteError::ExecutorsFull => "refused",
            ExecuteError::BrowserDown | ExecuteError::NoWorker(_) | ExecuteError::Stopping => {
                "unavailable"
            }
        }
    }
}

/// The service that runs scripts.
#[derive(Clone)]
pub struct Automation {
    chromium: Chromium,
    pool: Pool,
    unattached: UnattachedWorkers,
    executors: Executors,
    slots: Slots,
    waiting: Arc<Semaphore>,
    shutdown: Shutdown,
}

/// The bound on scripts that run at once.
#[derive(Clone)]
struct Slots {
    permits: Arc<Semaphore>,
    limit: usize,
}

impl Slots {
    fn acquire(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let permit = self.permits.clone().try_acquire_owned();
        permit.map_err(|_| ExecuteError::Busy(self.limit))
    }
}

impl Automation {
    /// Starts the pool, which starts its workers as soon as the browser is ready.
    pub(super) fn start(
        options: Options,
        chromium: Chromium,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let scratch = Arc::new(ScratchRoot::open(
            &options.scratch,
            chromium.status().identity.gid(),
        )?);
        let template = WorkerTemplate::new(TemplateOptions {
            program: options.program,
            scratch: scratch.path().to_owned(),
            heap_mb: options.heap_mb,
            scratch_mb: options.scratch_mb,
            user: options.user,
        });
        let unattached = UnattachedWorkers::start(
            UnattachedOptions {
                ready_workers: options.warm_workers * UNATTACHED_PER_WARM_WORKER,
                max_wait: WORKER_TIMEOUT,
            },
            template.clone(),
            scratch.clone(),
            chromium.watch(),
            shutdown,
        );
        let pool = Pool::start(
            PoolOptions {
                warm_workers: options.warm_workers,
                max_waiting: options.max_executes,
                scratch_mb: options.scratch_mb,
                downloads: options.downloads,
                network: options.network,
                files: options.files,
            },
            template,
            scratch,
            chromium.watch(),
            Arc::new(HungTabs::default()),
            shutdown,
        );
        tracing::info!(
            warm_workers = options.warm_workers,
            "starting script workers"
        );
        let slots = Slots {
            permits: Arc::new(Semaphore::new(options.max_executes)),
            limit: options.max_executes,
        };
        Ok(Automation {
            executors: Executors::new(
                pool.clone(),
                slots.clone(),
                WORKER_TIMEOUT,
                options.executor_idle,
                shutdown.clone(),
            ),
            chromium,
            pool,
            unattached,
            slots,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            shutdown: shutdown.clone(),
        })
    }

    /// Returns whether there are executors, which retain globals.
    pub(super) fn has_executors(&self) -> bool {
        self.executors.is_any()
    }

    /// Has the workers that wait for scripts replaced by new processes.
    pub(super) async fn renew(&self) {
        self.pool.renew().await;
        self.unattached.renew();
    }

    /// Runs a script, in the named executor or in a worker of the pool. Dropping the returned
    /// future kills the script.
    pub async fn execute(
        &self,
        script: Script,
        executor: Option<ExecutorName>,
    ) -> Result<Execution, ExecuteError> {
        let started_at = Instant::now();
        let outcome = self.run(script, executor).await;
        let label = match &outcome {
            Ok((_, label)) => label,
            Err(error) => error.metric_label(),
        };
        counter!("berth_automation_executes_total", "outcome" => label).increment(1);
        histogram!("berth_automation_execute_seconds").record(started_at.elapsed().as_secs_f64());
        outcome.map(|(execution, _)| execution)
    }

    /// Returns the execution and its metric label.
    async fn run(
        &self,
        script: Script,
        executor: Option<ExecutorName>,
    ) -> Result<(Execution, &'static str), ExecuteError> {
        // An executor acquires a slot itself when it reaches the call in its queue.
        let _permit = match executor {
            Some(_) => self
                .waiting
                .clone()
                .try_acquire_owned()
                .map_err(|_| ExecuteError::TooManyWaiting)?,
            None => self.slots.acquire()?,
        };
        if self.shutdown.is_requested() {
            return Err(ExecuteError::Stopping);
        }
        self.chromium
            .ready(BROWSER_TIMEOUT)
            .await
            .map_err(|_| ExecuteError::BrowserDown)?;
        let timeout = script.timeout;
        let report = match executor {
            Some(name) => self.executors.run(name, script).await?,
            None => {
                let job = Job {
                    code: script.code,
                    timeout,
                    keep_worker: false,
                };
                match job.uses_browser() {
                    true => self.run_once(&job).await?,
                    false => self.unattached.run(job).await?,
                }
            }
        };
        Ok(execution_of(report, timeout))
    }

    /// Runs a script in an unused worker. A warm worker that was killed may be handed out before
    /// its end is noticed. No script has started in it then, so the next worker is tried.
    async fn run_once(&self, job: &Job) -> Result<Report, ExecuteError> {
        for _ in 0..MAX_WORKERS_TRIED {
            let mut worker = self.pool.acquire(WORKER_TIMEOUT).await?;
            if let Some(report) = worker.run(job.clone()).await {
                return Ok(report);
            }
        }
        Ok(Report::not_started())
    }
}

/// Converts a worker's report into the caller's result, and returns the metric label.
fn execution_of(report: Report, timeout: Duration) -> (Execution, &'static str) {
    let mut execution = Execution {
        success: false,
        result: None,
        error: None,
        stdout: report.stdout,
        stderr: report.stderr,
    };
    let label = match report.outcome {
        Outcome::Returned(result) => {
            execution.success = true;
            execution.result = result;
            "success"
        }
        // At the deadline the worker usually stops the script itself, and reports where it was.
        Outcome::Threw(error) => {
            execution.error = Some(error);
            if report.duration >= timeout {
                "timeout"
            } else {
                "error"
            }
        }
        Outcome::TimedOut => {
            execution.error = Some(format!(
                "the script did not end within {} s (timeout_sec) and was killed",
                timeout.as_secs()
            ));
            "timeout"
        }
        Outcome::Crashed(reason) => {
            execution.error = Some(reason);
            "crash"
        }
        Outcome::BrowserGone => {
            execution.error = Some("the browser went away while the script ran".to_owned());
            "browser_gone"
        }
        Outcome::Stopped => {
            execution.error = Some("the agent was stopped while the script ran".to_owned());
            "stopped"
        }
    };
    match (report.note, &mut execution.error) {
        (Some(note), Some(error)) => {
            error.push_str("; ");
            error.push_str(&note);
        }
        (Some(note), None) => {
            execution.stderr.push_str(&note);
            execution.stderr.push('\n');
        }
        (None, _) => {}
    }
    (execution, label)
}
