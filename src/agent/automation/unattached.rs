//! Workers for scripts that do not use the browser: started in advance, not attached, used once.
//!
//! ```text
//! UnattachedWorkers::run ── the first of the queue, or a new one ──▶ its session
//!           └── refill ── start, one after the other ──▶ queue
//! ```
//!
//! Starting a worker uses a core for longer than a short script does. So calls in a row first use
//! half of the queue, and missing workers are started in the pause after them.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    pool::{AcquireError, MAX_RETRY_DELAY, REFILL_DELAY, record_wait},
    scratch::ScratchRoot,
    worker_session::{Job, Report, UnattachedWorker},
};
use crate::{
    agent::chromium::BrowserState, backoff::Backoff, shutdown::Shutdown,
    system::script::template::WorkerTemplate,
};

/// The delay before a worker is replaced that has ended by itself or did not start.
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct UnattachedOptions {
    /// The number of workers that are kept ready.
    pub(super) ready_workers: usize,
    /// The longest wait of a call for a worker.
    pub(super) max_wait: Duration,
}

/// The workers that wait for a script, and what new ones are made from. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct UnattachedWorkers {
    options: Arc<UnattachedOptions>,
    template: WorkerTemplate,
    scratch: Arc<ScratchRoot>,
    queue: Arc<Mutex<WorkerQueue>>,
    /// Wakes the task that starts workers: less than half of them are left.
    low: Arc<Notify>,
    shutdown: Shutdown,
}

#[derive(Debug, Default)]
struct WorkerQueue {
    workers: VecDeque<UnattachedWorker>,
    /// When the last call took a worker.
    last_call: Option<Instant>,
    /// Whether a task starts workers for the queue.
    is_refilling: bool,
    /// Grows when all workers are discarded.
    generation: u64,
}

impl UnattachedWorkers {
    /// Starts workers as soon as the browser is ready: no script runs before.
    pub(super) fn start(
        options: UnattachedOptions,
        template: WorkerTemplate,
        scratch: Arc<ScratchRoot>,
        browser: watch::Receiver<BrowserState>,
        shutdown: &Shutdown,
    ) -> Self {
        let workers = UnattachedWorkers {
            options: Arc::new(options),
            template,
            scratch,
            queue: Arc::default(),
            low: Arc::default(),
            shutdown: shutdown.clone(),
        };
        shutdown.spawn(workers.clone().follow(browser));
        workers
    }

    async fn follow(self, mut browser: watch::Receiver<BrowserState>) {
        let is_ready = async {
            let ready = browser.wait_for(|state| state.devtools().is_some());
            ready.await.is_ok()
        };
        tokio::select! {
            true = is_ready => self.refill(),
            () = self.shutdown.requested() => {}
        }
        self.shutdown.requested().await;
        self.discard();
    }

    /// Runs a script. Dropping the returned future kills it.
    pub(super) async fn run(&self, job: Job) -> Result<Report, AcquireError> {
        let requested_at = Instant::now();
        let queued = self.take();
        self.refill();
        let worker = match queued {
            Some(worker) => worker,
            None => {
                let max_wait = self.options.max_wait;
                tokio::select! {
                    started = timeout(max_wait, self.start_one()) => {
                        started.map_err(|_| AcquireError::Timeout(max_wait))??
                    }
                    () = self.shutdown.requested() => return Err(AcquireError::Stopped),
                }
            }
        };
        record_wait(requested_at);
        Ok(worker.run(job, &self.shutdown).await)
    }

    /// Replaces the workers that wait for a script. Called once their template is replaced.
    pub(super) fn renew(&self) {
        self.discard();
        self.refill();
    }

    /// Starts a worker that is not of a template that has been replaced meanwhile.
    async fn start_one(&self) -> Result<UnattachedWorker, AcquireError> {
        loop {
            let generation = self.queue.lock().generation;
            let started = UnattachedWorker::start(&self.template, &self.scratch).await;
            let worker = started.map_err(|error| AcquireError::Failing(error.to_string()))?;
            if self.queue.lock().generation == generation {
                return Ok(worker);
            }
            self.end(worker);
        }
    }

    /// Returns the first worker of the queue that has not ended.
    fn take(&self) -> Option<UnattachedWorker> {
        let mut queue = self.queue.lock();
        queue.last_call = Some(Instant::now());
        let at = queue.workers.iter().position(|worker| !worker.has_ended());
        queue.workers.remove(at?)
    }

    fn discard(&self) {
        let discarded = {
            let mut queue = self.queue.lock();
            queue.generation += 1;
            mem::take(&mut queue.workers)
        };
        for worker in discarded {
            self.end(worker);
        }
    }

    fn end(&self, worker: UnattachedWorker) {
        self.shutdown.spawn(worker.end());
    }

    /// Has missing workers started.
    fn refill(&self) {
        if self.shutdown.is_requested() {
            return;
        }
        let mut queue = self.queue.lock();
        if self.next_start(&queue).is_some() && !queue.is_refilling {
            queue.is_refilling = true;
            self.shutdown.spawn(self.clone().start_missing());
        } else if self.is_low(&queue) {
            self.low.notify_one();
        }
    }

    fn is_low(&self, queue: &WorkerQueue) -> bool {
        queue.workers.len() * 2 < self.options.ready_workers
    }

    /// Returns when to start a worker: at once if less than half of them are left, otherwise in the
    /// pause after the calls. `None` if none is missing.
    fn next_start(&self, queue: &WorkerQueue) -> Option<Instant> {
        if queue.workers.len() >= self.options.ready_workers {
            return None;
        }
        let pause = queue.last_call.filter(|_| !self.is_low(queue));
        Some(pause.map_or_else(Instant::now, |last_call| last_call + REFILL_DELAY))
    }

    /// Starts what is missing, one after the other. Tries again after a failure.
    async fn start_missing(self) {
        let mut backoff = Backoff::new(RETRY_DELAY, MAX_RETRY_DELAY);
        while !self.shutdown.is_requested() {
            let (start_at, generation) = {
                let mut queue = self.queue.lock();
                let Some(start_at) = self.next_start(&queue) else {
                    queue.is_refilling = false;
                    return;
                };
                (start_at, queue.generation)
            };
            if start_at > Instant::now() {
                tokio::select! {
                    () = sleep_until(start_at) => {}
                    () = self.low.notified() => {}
                    () = self.shutdown.requested() => {}
                }
                continue;
            }
            match UnattachedWorker::start(&self.template, &self.scratch).await {
                Ok(worker) => {
                    backoff.reset();
                    self.add(worker, generation);
                }
                Err(error) if self.queue.lock().generation != generation => {
                    tracing::debug!(%error, "script worker of an earlier template did not start");
                }
                Err(error) => {
                    let delay = backoff.next_delay();
                    tracing::warn!(%error, ?delay, "script worker did not start");
                    self.shutdown.sleep(delay).await;
                }
            }
        }
    }

    fn add(&self, worker: UnattachedWorker, generation: u64) {
        let mut queue = self.queue.lock();
        if queue.generation != generation || self.shutdown.is_requested() {
            drop(queue);
            return self.end(worker);
        }
        let (workers, ended) = (self.clone(), worker.ended());
        tokio::spawn(async move {
            ended.await;
            workers.replace_ended().await;
        });
        queue.workers.push_back(worker);
    }

    /// Reaps and replaces workers that have ended while they were in the queue.
    async fn replace_ended(&self) {
        let ended: Vec<_> = {
            let mut queue = self.queue.lock();
            let all = mem::take(&mut queue.workers).into_iter();
            let (ended, running) = all.partition(UnattachedWorker::has_ended);
            queue.workers = running;
            Vec::from(ended)
        };
        if !ended.is_empty() {
            for worker in ended {
                let exit = worker.end().await;
                tracing::warn!(?exit, "idle script worker ended");
            }
            self.shutdown.sleep(RETRY_DELAY).await;
        }
        self.refill();
    }
}
