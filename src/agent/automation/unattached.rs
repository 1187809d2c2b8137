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
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    pool::{AcquireError, record_wait},
    scratch::ScratchRoot,
    worker_session::{Job, Report, UnattachedWorker},
};
use crate::{
    agent::chromium::BrowserState, shutdown::Shutdown, system::script::template::WorkerTemplate,
};

/// The delay before a worker is replaced that has ended by itself.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The delay of the next start after a call, while at least half of the queue is left.
const REFILL_DELAY: Duration = Duration::from_millis(15);

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
    shutdown: Shutdown,
}

#[derive(Debug, Default)]
struct WorkerQueue {
    workers: VecDeque<UnattachedWorker>,
    /// Whether a task starts workers for the queue.
    is_refilling: bool,
    /// Whether a task will do that after [`REFILL_DELAY`].
    will_refill: bool,
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

    /// Has missing workers started: at once if less than half of them are left, otherwise soon.
    fn refill(&self) {
        let mut queue = self.queue.lock();
        if queue.workers.len() * 2 < self.options.ready_workers {
            self.refill_now(&mut queue);
        } else if queue.workers.len() < self.options.ready_workers && !queue.will_refill {
            queue.will_refill = true;
            let workers = self.clone();
            self.shutdown.spawn(async move {
                workers.shutdown.sleep(REFILL_DELAY).await;
                let mut queue = workers.queue.lock();
                queue.will_refill = false;
                workers.refill_now(&mut queue);
            });
        }
    }

    fn refill_now(&self, queue: &mut WorkerQueue) {
        if !queue.is_refilling && !self.shutdown.is_requested() {
            queue.is_refilling = true;
            self.shutdown.spawn(self.clone().start_missing());
        }
    }

    /// Starts what is missing. One that does not start is logged, and missing until the next call.
    async fn start_missing(self) {
        loop {
            let generation = {
                let mut queue = self.queue.lock();
                let is_full = queue.workers.len() >= self.options.ready_workers;
                if is_full || self.shutdown.is_requested() {
                    queue.is_refilling = false;
                    return;
                }
                queue.generation
            };
            match UnattachedWorker::start(&self.template, &self.scratch).await {
                Ok(worker) => self.add(worker, generation),
                Err(error) => {
                    tracing::warn!(%error, "script worker did not start");
                    self.queue.lock().is_refilling = false;
                    return;
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
