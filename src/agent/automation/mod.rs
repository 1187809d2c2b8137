//! Running scripts beside the browser.
//!
//! A script runs in a process of its own ([`link`]) that is started and attached before it is needed ([`pool`]), or in one that a
//! name keeps alive between calls ([`executors`]). What it sees of the browser, and what the browser suffers from it, is the [`relay`]'s affair.

mod downloads;
mod executors;
mod front;
mod link;
mod output;
mod pool;
mod queue;
mod relay;
mod scratch;
mod tabs;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use metrics::{counter, histogram};
use serde_json::value::RawValue;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

pub use executors::{MAX_EXECUTORS, MAX_QUEUED};

use self::{
    executors::Executors,
    link::{End, Job, Report},
    pool::{AcquireError, Pool, PoolOptions},
    scratch::ScratchRoot,
    tabs::HungTabs,
};
use crate::{agent::chromium::Chromium, api::automation::ExecutorName, shutdown::Shutdown};

/// How long a call waits for a browser that is being restarted.
const BROWSER_HOLD: Duration = Duration::from_secs(10);
/// How long a call waits for a worker; one starts in a small part of it.
const WORKER_PATIENCE: Duration = Duration::from_secs(15);

/// Calls of executors that may wait at once: for the browser, or for their turn.
const MAX_WAITING: usize = MAX_EXECUTORS * MAX_QUEUED;

/// Settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// `berth-script`.
    pub program: PathBuf,
    /// For the scratch directories, nothing else lies there.
    pub scratch: PathBuf,
    /// Where Chromium saves downloads.
    pub downloads: PathBuf,
    pub warm_workers: usize,
    pub max_executes: usize,
    pub heap_mb: u32,
    pub scratch_mb: u32,
    /// Who scripts run as where the agent is root.
    pub user: Option<String>,
    /// How long an executor outlives its last call.
    pub executor_idle: Duration,
}

/// One call.
#[derive(Debug)]
pub struct Script {
    pub code: String,
    pub timeout: Duration,
}

/// What came of it.
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
    #[error("{0} scripts are running already, the most this agent runs at once")]
    Busy(usize),
    #[error("{MAX_QUEUED} calls wait for the executor `{}` already", .0)]
    ExecutorQueueFull(ExecutorName),
    #[error("{MAX_WAITING} calls of executors wait already, the most there can be")]
    TooManyWaiting,
    #[error("{MAX_EXECUTORS} executors are at work, the most there can be")]
    ExecutorsFull,
    #[error("the browser is not running")]
    BrowserDown,
    #[error("no script can be run now")]
    NoWorker(#[source] AcquireError),
    #[error("the agent is being stopped")]
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

#[derive(Clone)]
pub struct Automation {
    chromium: Chromium,
    pool: Pool,
    executors: Executors,
    slots: Slots,
    waiting: Arc<Semaphore>,
    shutdown: Shutdown,
}

/// The right to run a script, of which there are so many.
#[derive(Clone)]
struct Slots {
    free: Arc<Semaphore>,
    all: usize,
}

impl Slots {
    fn take(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let taken = self.free.clone().try_acquire_owned();
        taken.map_err(|_| ExecuteError::Busy(self.all))
    }
}

impl Automation {
    /// Starts the pool, which starts its workers as soon as the browser is there.
    pub fn start(options: Options, chromium: Chromium, shutdown: &Shutdown) -> io::Result<Self> {
        let scratch = Arc::new(ScratchRoot::open(&options.scratch)?);
        let pool = Pool::start(
            PoolOptions {
                warm: options.warm_workers,
                max_waiting: options.max_executes,
                heap_mb: options.heap_mb,
                scratch_mb: options.scratch_mb,
                downloads: options.downloads,
                program: options.program,
                user: options.user,
            },
            scratch,
            chromium.watch(),
            Arc::new(HungTabs::default()),
            shutdown,
        );
        tracing::info!(
            warm_workers = options.warm_workers,
            memory_mb = options.warm_workers * WORKER_MB,
            "script workers wait for calls"
        );
        let slots = Slots {
            free: Arc::new(Semaphore::new(options.max_executes)),
            all: options.max_executes,
        };
        Ok(Automation {
            executors: Executors::new(
                pool.clone(),
                slots.clone(),
                WORKER_PATIENCE,
                options.executor_idle,
                shutdown.clone(),
            ),
            chromium,
            pool,
            slots,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            shutdown: shutdown.clone(),
        })
    }

    /// Runs a script, in the named executor or in a process of its own. When the returned future is dropped, the script is killed.
    pub async fn execute(
        &self,
        script: Script,
        executor: Option<ExecutorName>,
    ) -> Result<Execution, ExecuteError> {
        let begun = Instant::now();
        let outcome = self.run(script, executor).await;
        let label = match &outcome {
            Ok((_, label)) => label,
            Err(error) => error.label(),
        };
        counter!("berth_automation_executes_total", "outcome" => label).increment(1);
        histogram!("berth_automation_execute_seconds").record(begun.elapsed().as_secs_f64());
        outcome.map(|(execution, _)| execution)
    }

    async fn run(
        &self,
        script: Script,
        executor: Option<ExecutorName>,
    ) -> Result<(Execution, &'static str), ExecuteError> {
        // A call of an executor runs when its turn comes; until then it takes nobody's place.
        let _place = match executor {
            Some(_) => self
                .waiting
                .clone()
                .try_acquire_owned()
                .map_err(|_| ExecuteError::TooManyWaiting)?,
            None => self.slots.take()?,
        };
        if self.shutdown.stopping() {
            return Err(ExecuteError::Stopping);
        }
        self.chromium
            .ready(BROWSER_HOLD)
            .await
            .map_err(|_| ExecuteError::BrowserDown)?;
        let timeout = script.timeout;
        let report = match executor {
            Some(name) => self.executors.run(name, script).await?,
            None => {
                let job = Job {
                    code: script.code,
                    timeout,
                    keep: false,
                };
                self.run_once(&job).await?
            }
        };
        Ok(told(report, timeout))
    }
}

impl Automation {
    /// Runs a script in a worker of its own. One that was killed while it waited may be met before its end is known: as no script has begun
    /// in it, the next one is as good.
    async fn run_once(&self, job: &Job) -> Result<Report, ExecuteError> {
        for _ in 0..MAX_WORKERS_TRIED {
            let mut worker = self.pool.acquire(WORKER_PATIENCE).await?;
            if let Some(report) = worker.run(job.clone()).await {
                return Ok(report);
            }
        }
        Ok(Report::never_began())
    }
}

/// As many as may wait dead, and more.
const MAX_WORKERS_TRIED: usize = 16;
/// What a warm worker holds, roughly: for the log line that says what waiting costs.
const WORKER_MB: usize = 30;

impl ExecuteError {
    fn label(&self) -> &'static str {
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

/// A report in the caller's words, and its label for the metrics.
fn told(report: Report, timeout: Duration) -> (Execution, &'static str) {
    let mut execution = Execution {
        success: false,
        result: None,
        error: None,
        stdout: report.stdout,
        stderr: report.stderr,
    };
    let label = match report.end {
        End::Returned(result) => {
            execution.success = true;
            execution.result = result;
            "success"
        }
        // The worker stops a script at its deadline by itself where it can, and says where the script was.
        End::Threw(error) => {
            execution.error = Some(error);
            if report.ran >= timeout {
                "timeout"
            } else {
                "error"
            }
        }
        End::TimedOut => {
            execution.error = Some(format!(
                "the script did not end within {} s (timeout_sec) and was killed",
                timeout.as_secs()
            ));
            "timeout"
        }
        End::Died(reason) => {
            execution.error = Some(reason);
            "crash"
        }
        End::BrowserGone => {
            execution.error = Some("the browser went away while the script ran".to_owned());
            "browser_gone"
        }
        End::Stopped => {
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
