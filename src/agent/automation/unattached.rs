//! Workers for scripts that do not use the browser: started in advance, not attached, used once.
//!
//! ```text
//! UnattachedWorkers::run ── the first of the queue, or the next that has started ──▶ its session
//!           └── refill ──▶ keep_filled ── starts ──▶ calls that wait, or the queue
//! ```
//!
//! Starting a worker uses a core for longer than a short script does. So calls in a row first use
//! half of the queue, and missing workers are started in the pause after them.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    pool::{AcquireError, MAX_RETRY_DELAY, MAX_STARTS, REFILL_DELAY, record_wait},
    scratch::ScratchRoot,
    worker_session::{Job, Report, UnattachedWorker},
};
use crate::{
    agent::{chromium::BrowserState, optional_sleep::sleep_until_some},
    backoff::Backoff,
    shutdown::Shutdown,
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

type Waiter = oneshot::Sender<Result<UnattachedWorker, AcquireError>>;

/// The workers that wait for a script, and what new ones are made from. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct UnattachedWorkers {
    options: Arc<UnattachedOptions>,
    template: WorkerTemplate,
    scratch: Arc<ScratchRoot>,
    queue: Arc<Mutex<WorkerQueue>>,
    /// Wakes the task that starts workers: the first one was taken from a full queue, less than
    /// half are left, or a call waits.
    refill: Arc<Notify>,
    shutdown: Shutdown,
}

#[derive(Debug, Default)]
struct WorkerQueue {
    workers: VecDeque<UnattachedWorker>,
    /// The calls that wait for a worker. Then all in the queue have ended.
    waiters: VecDeque<Waiter>,
    /// When the last call took a worker.
    last_call: Option<Instant>,
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
            refill: Arc::default(),
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
            true = is_ready => self.keep_filled().await,
            () = self.shutdown.requested() => {}
        }
        self.discard();
        self.scratch.discard_kept();
    }

    /// Runs a script. Dropping the returned future kills it.
    pub(super) async fn run(&self, job: Job) -> Result<Report, AcquireError> {
        let requested_at = Instant::now();
        let max_wait = self.options.max_wait;
        let worker = tokio::select! {
            acquired = timeout(max_wait, self.acquire()) => {
                acquired.map_err(|_| AcquireError::Timeout(max_wait))??
            }
            () = self.shutdown.requested() => return Err(AcquireError::Stopped),
        };
        record_wait(requested_at);
        Ok(worker.run(job, &self.shutdown).await)
    }

    /// Replaces the workers that wait for a script. Called once their template is replaced.
    pub(super) fn renew(&self) {
        self.discard();
        self.refill.notify_one();
    }

    /// Takes the first worker of the queue that has not ended, or waits for the next one.
    async fn acquire(&self) -> Result<UnattachedWorker, AcquireError> {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.last_call = Some(Instant::now());
            let was_full = queue.workers.len() >= self.options.ready_workers;
            let at = queue.workers.iter().position(|worker| !worker.has_ended());
            let taken = at.and_then(|at| queue.workers.remove(at));
            if was_full || taken.is_none() || self.is_low(&queue) {
                self.refill.notify_one();
            }
            match taken {
                Some(worker) => return Ok(worker),
                None => queue.wait(),
            }
        };
        waiting.await.map_err(|_| AcquireError::Stopped)?
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

    fn is_low(&self, queue: &WorkerQueue) -> bool {
        queue.workers.len() * 2 < self.options.ready_workers
    }

    /// Returns when to start a worker while `starting` are being started: at once if a call waits
    /// or less than half of them are left, otherwise in the pause after the calls. `None` if none
    /// is missing.
    fn next_start(&self, starting: usize) -> Option<Instant> {
        let mut queue = self.queue.lock();
        queue.waiters.retain(|waiter| !waiter.is_closed());
        let has_waiters = !queue.waiters.is_empty();
        let max_starts = if has_waiters { MAX_STARTS } else { 1 };
        let needed = self.options.ready_workers + queue.waiters.len();
        if starting >= max_starts || queue.workers.len() + starting >= needed {
            return None;
        }
        let is_urgent = has_waiters || self.is_low(&queue);
        let pause = queue.last_call.filter(|_| !is_urgent);
        Some(pause.map_or_else(Instant::now, |last_call| last_call + REFILL_DELAY))
    }

    /// Starts the workers that are missing, until the agent shuts down.
    async fn keep_filled(&self) {
        let mut backoff = Backoff::new(RETRY_DELAY, MAX_RETRY_DELAY);
        let mut retry_at: Option<Instant> = None;
        let mut starts = JoinSet::new();
        while !self.shutdown.is_requested() {
            let start_at = self.next_start(starts.len());
            let start_at = start_at.map(|at| retry_at.map_or(at, |retry_at| at.max(retry_at)));
            if start_at.is_some_and(|start_at| start_at <= Instant::now()) {
                starts.spawn(self.clone().start_one());
                continue;
            }
            tokio::select! {
                Some(started) = starts.join_next() => {
                    let started = started.unwrap_or_else(|panic| Err(panic.to_string()));
                    retry_at = self.after_start(started, &mut backoff);
                }
                () = sleep_until_some(start_at) => {}
                // A call that waits gets the result of another start.
                () = self.refill.notified() => retry_at = None,
                () = self.shutdown.requested() => {}
            }
        }
        // They end by themselves now, and their processes with them.
        while starts.join_next().await.is_some() {}
    }

    /// Returns when to try again if the start has failed and no other call waits.
    fn after_start(&self, started: Result<(), String>, backoff: &mut Backoff) -> Option<Instant> {
        let Err(error) = started else {
            backoff.reset();
            return None;
        };
        let delay = backoff.next_delay();
        tracing::warn!(error, ?delay, "script worker did not start");
        let has_waiters = self.queue.lock().fail_first_waiter(error);
        (!has_waiters).then(|| Instant::now() + delay)
    }

    /// Starts a worker for a call that waits, or for the queue.
    async fn start_one(self) -> Result<(), String> {
        let generation = self.queue.lock().generation;
        match UnattachedWorker::start(&self.template, &self.scratch).await {
            Ok(worker) => self.add(worker, generation),
            Err(error) if self.queue.lock().generation == generation => {
                return Err(error.to_string());
            }
            Err(error) => {
                tracing::debug!(%error, "script worker of an earlier template did not start");
            }
        }
        Ok(())
    }

    fn add(&self, worker: UnattachedWorker, generation: u64) {
        let mut queue = self.queue.lock();
        if queue.generation != generation || self.shutdown.is_requested() {
            drop(queue);
            return self.end(worker);
        }
        let Some(worker) = queue.give_to_waiter(worker) else {
            return;
        };
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
        self.refill.notify_one();
    }
}

impl WorkerQueue {
    fn wait(&mut self) -> oneshot::Receiver<Result<UnattachedWorker, AcquireError>> {
        let (waiter, waiting) = oneshot::channel();
        self.waiters.push_back(waiter);
        waiting
    }

    /// Gives the worker to the first call that still waits. Returns it if none does.
    fn give_to_waiter(&mut self, mut worker: UnattachedWorker) -> Option<UnattachedWorker> {
        while let Some(waiter) = self.waiters.pop_front() {
            match waiter.send(Ok(worker)) {
                Err(Ok(returned)) => worker = returned,
                _ => return None,
            }
        }
        Some(worker)
    }

    /// Gives the error to the first call that waits. Returns whether others do.
    fn fail_first_waiter(&mut self, error: String) -> bool {
        if let Some(waiter) = self.waiters.pop_front() {
            // The caller may have gone meanwhile.
            let _ = waiter.send(Err(AcquireError::Failing(error)));
        }
        !self.waiters.is_empty()
    }
}
