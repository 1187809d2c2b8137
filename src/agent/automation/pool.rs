//! The pool of script workers that are started and attached before a call needs one. Each worker is
//! used once.
//!
//! ```text
//! Pool::acquire --request--> pool task: waiters, warm workers, starts in progress
//!                            ^ browser state (a restart drops all workers)
//! start fails -> back-off -> start again; after some failures the waiters get the error
//! ```
//!
//! The pool's task owns the warm workers.

use std::{collections::VecDeque, path::PathBuf, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use metrics::{gauge, histogram};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    downloads::Downloads,
    hung_tabs::HungTabs,
    scratch::ScratchRoot,
    session_files::SessionFiles,
    worker_session::{StartError, Worker, WorkerContext},
};
use crate::{
    agent::{
        chromium::{BrowserState, Devtools},
        optional_sleep::sleep_until_some,
    },
    backoff::Backoff,
    shutdown::Shutdown,
    system::{outbound::FetchNetwork, script::template::WorkerTemplate},
};

/// The delay of the next start after a script has started, if another warm worker remains.
/// Attaching uses a core for some milliseconds, which the script needs.
pub(super) const REFILL_DELAY: Duration = Duration::from_millis(15);
/// The most concurrent starts while calls wait for a worker. More would only share the cores.
pub(super) const MAX_STARTS: usize = 2;
/// The delay after the first failed start, and the longest delay.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The number of consecutive failures after which waiting calls get the error.
const FAILURES_BEFORE_ERROR: u32 = 3;

#[derive(Debug)]
pub(super) struct PoolOptions {
    /// The number of workers that are kept warm.
    pub(super) warm_workers: usize,
    /// The most calls that may wait at once.
    pub(super) max_waiting: usize,
    /// The limit of the files of a script.
    pub(super) scratch_mb: u32,
    /// The directory in which Chromium saves downloads.
    pub(super) downloads: PathBuf,
    /// The network of the requests of scripts.
    pub(super) network: FetchNetwork,
    /// The files of the session that scripts may give to pages.
    pub(super) files: SessionFiles,
}

type Waiter = oneshot::Sender<Result<Worker, String>>;

#[derive(Clone, Debug)]
pub(super) struct Pool {
    requests: mpsc::Sender<Waiter>,
    renewals: mpsc::Sender<oneshot::Sender<()>>,
}

/// Why no worker was acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    #[error("no script worker started within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("script workers do not start: {0}")]
    Failing(String),
    #[error("the agent is shutting down")]
    Stopped,
}

impl Pool {
    pub(super) fn start(
        options: PoolOptions,
        template: WorkerTemplate,
        scratch: Arc<ScratchRoot>,
        browser: watch::Receiver<BrowserState>,
        hung_tabs: Arc<HungTabs>,
        shutdown: &Shutdown,
    ) -> Pool {
        let (sender, requests) = mpsc::channel(options.max_waiting.max(1));
        let task = PoolTask {
            options,
            template,
            scratch,
            hung_tabs,
            shutdown: shutdown.clone(),
            browser: None,
            warm: VecDeque::new(),
            waiters: VecDeque::new(),
            starts: JoinSet::new(),
            failures: 0,
            backoff: Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY),
            next_start_at: Instant::now(),
        };
        let (renewals, renewal_requests) = mpsc::channel(1);
        shutdown.spawn(task.run(requests, browser, renewal_requests));
        Pool {
            requests: sender,
            renewals,
        }
    }

    /// Discards the warm workers, those that are being started, and the process that they are
    /// forked from. New ones are started.
    pub(super) async fn renew(&self) {
        let (discarded, is_discarded) = oneshot::channel();
        // Both fail only when the pool has ended, and then it has no workers.
        if self.renewals.send(discarded).await.is_ok() {
            let _ = is_discarded.await;
        }
    }

    /// Waits for an unused worker.
    pub(super) async fn acquire(&self, max_wait: Duration) -> Result<Worker, AcquireError> {
        let requested_at = Instant::now();
        let acquire = async {
            let (reply, worker) = oneshot::channel();
            let sent = self.requests.send(reply).await;
            sent.map_err(|_| AcquireError::Stopped)?;
            let worker = worker.await.map_err(|_| AcquireError::Stopped)?;
            worker.map_err(AcquireError::Failing)
        };
        let worker = tokio::time::timeout(max_wait, acquire)
            .await
            .map_err(|_| AcquireError::Timeout(max_wait))??;
        record_wait(requested_at);
        Ok(worker)
    }
}

/// Records the time that a call has waited for its worker.
pub(super) fn record_wait(requested_at: Instant) {
    histogram!("berth_automation_worker_wait_seconds").record(requested_at.elapsed().as_secs_f64());
}

/// The task that owns the warm workers.
struct PoolTask {
    options: PoolOptions,
    template: WorkerTemplate,
    scratch: Arc<ScratchRoot>,
    hung_tabs: Arc<HungTabs>,
    shutdown: Shutdown,
    /// The current browser, and its downloads.
    browser: Option<(Arc<Devtools>, Arc<Downloads>)>,
    warm: VecDeque<Worker>,
    waiters: VecDeque<Waiter>,
    starts: JoinSet<Result<Worker, StartError>>,
    /// The number of consecutive failures.
    failures: u32,
    backoff: Backoff,
    /// The earliest time of the next start.
    next_start_at: Instant,
}

impl PoolTask {
    async fn run(
        mut self,
        mut requests: mpsc::Receiver<Waiter>,
        mut browser: watch::Receiver<BrowserState>,
        mut renewals: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let mut worker_ends = FuturesUnordered::new();
        self.follow_browser(&browser.borrow_and_update().clone());
        let shutdown = self.shutdown.token();
        loop {
            self.start_due_workers();
            gauge!("berth_automation_warm_workers").set(self.warm.len() as f64);
            let start_at = self.needs_start().then_some(self.next_start_at);
            tokio::select! {
                request = requests.recv() => match request {
                    Some(waiter) => self.on_request(waiter),
                    None => break,
                },
                Some(started) = self.starts.join_next(), if !self.starts.is_empty() => {
                    if let Ok(Ok(worker)) = &started {
                        worker_ends.push(worker.ended());
                    }
                    self.on_start_finished(started);
                }
                changed = browser.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let state = browser.borrow_and_update().clone();
                    self.follow_browser(&state);
                }
                Some(discarded) = renewals.recv() => {
                    self.discard_workers();
                    self.template.stop().await;
                    // The caller may have left.
                    let _ = discarded.send(());
                }
                Some(()) = worker_ends.next(), if !worker_ends.is_empty() => {
                    self.warm.retain(|worker| !worker.is_ended());
                }
                () = sleep_until_some(start_at) => {}
                () = shutdown.cancelled() => break,
            }
        }
        gauge!("berth_automation_warm_workers").set(0.0);
        self.template.close().await;
    }

    /// Drops the workers of a browser that is gone.
    fn follow_browser(&mut self, state: &BrowserState) {
        let devtools = state.devtools();
        if devtools.map(|devtools| devtools.generation) == self.generation() {
            return;
        }
        self.discard_workers();
        self.browser = devtools.map(|devtools| {
            let downloads = Downloads::start(devtools, &self.options.downloads, &self.shutdown);
            (devtools.clone(), downloads)
        });
    }

    fn discard_workers(&mut self) {
        self.warm.clear();
        // Those that have started already, too.
        self.starts = JoinSet::new();
        self.reset_failures();
        self.next_start_at = Instant::now();
    }

    fn generation(&self) -> Option<u64> {
        let (devtools, _) = self.browser.as_ref()?;
        Some(devtools.generation)
    }

    fn on_request(&mut self, waiter: Waiter) {
        self.waiters.retain(|waiter| !waiter.is_closed());
        self.waiters.push_back(waiter);
        self.serve_waiters();
        if !self.warm.is_empty() {
            self.next_start_at = self.next_start_at.max(Instant::now() + REFILL_DELAY);
        }
    }

    /// Gives workers to the waiters, first come, first served.
    fn serve_waiters(&mut self) {
        while let Some(worker) = self.warm.pop_front() {
            if worker.is_ended() {
                continue;
            }
            let Some(waiter) = self.waiters.pop_front() else {
                self.warm.push_front(worker);
                return;
            };
            // The caller may have gone meanwhile.
            if let Err(Ok(worker)) = waiter.send(Ok(worker)) {
                self.warm.push_front(worker);
            }
        }
    }

    fn on_start_finished(&mut self, started: Result<Result<Worker, StartError>, JoinError>) {
        match started {
            Ok(Ok(worker)) => {
                self.reset_failures();
                if Some(worker.generation) == self.generation() {
                    self.warm.push_back(worker);
                    self.serve_waiters();
                }
            }
            Ok(Err(error)) => self.on_start_failed(&error.to_string()),
            // The start was aborted because its browser has gone.
            Err(_) => {}
        }
    }

    fn on_start_failed(&mut self, reason: &str) {
        let delay = self.backoff.next_delay();
        tracing::warn!(reason, ?delay, "script worker did not start");
        self.failures = self.failures.saturating_add(1);
        self.next_start_at = Instant::now() + delay;
        if self.failures >= FAILURES_BEFORE_ERROR {
            for waiter in self.waiters.drain(..) {
                let _ = waiter.send(Err(reason.to_owned()));
            }
        }
    }

    fn reset_failures(&mut self) {
        self.failures = 0;
        self.backoff.reset();
    }

    fn needs_start(&self) -> bool {
        let max_starts = if self.waiters.is_empty() {
            1
        } else {
            MAX_STARTS
        };
        self.browser.is_some()
            && self.starts.len() < max_starts
            && self.warm.len() + self.starts.len() < self.waiters.len() + self.options.warm_workers
    }

    fn start_due_workers(&mut self) {
        if self.failures == 0 && self.warm.is_empty() {
            // Without a warm worker, the next start is not delayed.
            self.next_start_at = self.next_start_at.min(Instant::now());
        }
        while self.needs_start() && self.next_start_at <= Instant::now() {
            let Some((devtools, downloads)) = self.browser.clone() else {
                return;
            };
            let context = WorkerContext {
                devtools,
                downloads,
                hung_tabs: self.hung_tabs.clone(),
                network: self.options.network.clone(),
                files: self.options.files.clone(),
                shutdown: self.shutdown.clone(),
            };
            let (template, scratch) = (self.template.clone(), self.scratch.clone());
            let scratch_mb = self.options.scratch_mb;
            self.starts.spawn(async move {
                let scratch = scratch.create().map_err(StartError::Scratch)?;
                Worker::start(&template, scratch, scratch_mb, context).await
            });
        }
    }
}
