//! Script workers that are started and attached before a call needs one. Each is used once.

use std::{collections::VecDeque, path::PathBuf, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use metrics::{gauge, histogram};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    downloads::Downloads,
    link::{StartError, Surroundings, Worker},
    scratch::ScratchRoot,
    tabs::HungTabs,
};
use crate::{
    agent::chromium::{BrowserState, Devtools},
    shutdown::Shutdown,
    system::{cdp::devtools::DevtoolsHttp, script::worker::SpawnOptions},
};

/// A start costs tens of milliseconds of a core. As long as another worker waits, the script that has just begun comes first.
const POLITE: Duration = Duration::from_millis(15);
/// Starts at once while calls wait for a worker. More would only share the cores.
const MAX_STARTS: usize = 2;
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// So many starts that failed one after another are told to the calls that wait.
const TOLD_AFTER: u32 = 3;

#[derive(Debug)]
pub struct PoolOptions {
    pub warm: usize,
    /// The calls that may wait at once.
    pub max_waiting: usize,
    pub heap_mb: u32,
    pub scratch_mb: u32,
    /// Where Chromium saves downloads.
    pub downloads: PathBuf,
    pub program: PathBuf,
    pub user: Option<String>,
}

type Waiter = oneshot::Sender<Result<Worker, String>>;

#[derive(Clone, Debug)]
pub struct Pool(mpsc::Sender<Waiter>);

#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    #[error("no script worker started within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("script workers do not start: {0}")]
    Failing(String),
    #[error("the agent is being stopped")]
    Stopped,
}

impl Pool {
    pub fn start(
        options: PoolOptions,
        scratch: Arc<ScratchRoot>,
        browser: watch::Receiver<BrowserState>,
        hung: Arc<HungTabs>,
        shutdown: &Shutdown,
    ) -> Pool {
        let (sender, requests) = mpsc::channel(options.max_waiting.max(1));
        let keeper = Keeper {
            options,
            scratch,
            hung,
            shutdown: shutdown.clone(),
            http: DevtoolsHttp::default(),
            browser: None,
            warm: VecDeque::new(),
            waiters: VecDeque::new(),
            starts: JoinSet::new(),
            failures: 0,
            not_before: Instant::now(),
        };
        shutdown.spawn(keeper.keep(requests, browser));
        Pool(sender)
    }

    /// A worker that nobody else has or had.
    pub async fn acquire(&self, patience: Duration) -> Result<Worker, AcquireError> {
        let asked = Instant::now();
        let acquire = async {
            let (reply, worker) = oneshot::channel();
            self.0
                .send(reply)
                .await
                .map_err(|_| AcquireError::Stopped)?;
            worker
                .await
                .map_err(|_| AcquireError::Stopped)?
                .map_err(AcquireError::Failing)
        };
        let worker = tokio::time::timeout(patience, acquire)
            .await
            .map_err(|_| AcquireError::Timeout(patience))??;
        histogram!("berth_automation_worker_wait_seconds").record(asked.elapsed().as_secs_f64());
        Ok(worker)
    }
}

/// The one owner of the waiting workers.
struct Keeper {
    options: PoolOptions,
    scratch: Arc<ScratchRoot>,
    hung: Arc<HungTabs>,
    http: DevtoolsHttp,
    shutdown: Shutdown,
    /// The browser, and what it downloads.
    browser: Option<(Arc<Devtools>, Arc<Downloads>)>,
    warm: VecDeque<Worker>,
    waiters: VecDeque<Waiter>,
    starts: JoinSet<Result<Worker, StartError>>,
    /// One after another.
    failures: u32,
    /// When the next start may begin.
    not_before: Instant,
}

impl Keeper {
    async fn keep(
        mut self,
        mut requests: mpsc::Receiver<Waiter>,
        mut browser: watch::Receiver<BrowserState>,
    ) {
        let mut ends = FuturesUnordered::new();
        self.follow(&browser.borrow_and_update().clone());
        let stop = self.shutdown.token();
        loop {
            self.start_what_is_due();
            gauge!("berth_automation_warm_workers").set(self.warm.len() as f64);
            let due = self.wants_start().then_some(self.not_before);
            tokio::select! {
                request = requests.recv() => match request {
                    Some(waiter) => self.asked(waiter),
                    None => break,
                },
                Some(started) = self.starts.join_next(), if !self.starts.is_empty() => {
                    match started {
                        Ok(Ok(worker)) => {
                            ends.push(worker.ended());
                            self.started(worker);
                        }
                        Ok(Err(error)) => self.failed(&error.to_string()),
                        // Cancelled with the browser it was for.
                        Err(_) => {}
                    }
                }
                changed = browser.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let state = browser.borrow_and_update().clone();
                    self.follow(&state);
                }
                Some(()) = ends.next(), if !ends.is_empty() => self.warm.retain(|worker| !worker.is_ended()),
                () = async {
                    match due {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
                () = stop.cancelled() => break,
            }
        }
        gauge!("berth_automation_warm_workers").set(0.0);
    }

    /// A browser that is gone takes its workers with it.
    fn follow(&mut self, state: &BrowserState) {
        let devtools = state.devtools();
        if devtools.map(|d| d.generation) != self.generation() {
            self.warm.clear();
            self.starts.abort_all();
            self.failures = 0;
            self.not_before = Instant::now();
            self.browser = devtools.map(|devtools| {
                let downloads = Downloads::of(devtools, &self.options.downloads, &self.shutdown);
                (devtools.clone(), downloads)
            });
        }
    }

    fn generation(&self) -> Option<u64> {
        self.browser
            .as_ref()
            .map(|(devtools, _)| devtools.generation)
    }

    fn asked(&mut self, waiter: Waiter) {
        self.waiters.retain(|waiter| !waiter.is_closed());
        self.waiters.push_back(waiter);
        self.serve();
        if !self.warm.is_empty() {
            self.not_before = self.not_before.max(Instant::now() + POLITE);
        }
    }

    /// Gives workers to those who wait, first come first served.
    fn serve(&mut self) {
        while let Some(worker) = self.warm.pop_front() {
            if worker.is_ended() {
                continue;
            }
            let Some(waiter) = self.waiters.pop_front() else {
                self.warm.push_front(worker);
                return;
            };
            // A caller that has gone away gets none.
            if let Err(Ok(worker)) = waiter.send(Ok(worker)) {
                self.warm.push_front(worker);
            }
        }
    }

    fn started(&mut self, worker: Worker) {
        self.failures = 0;
        if Some(worker.generation) == self.generation() {
            self.warm.push_back(worker);
            self.serve();
        }
    }

    fn failed(&mut self, reason: &str) {
        tracing::warn!(reason, "a script worker did not start");
        let backoff = FIRST_BACKOFF * 2u32.saturating_pow(self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.not_before = Instant::now() + backoff.min(MAX_BACKOFF);
        if self.failures >= TOLD_AFTER {
            for waiter in self.waiters.drain(..) {
                let _ = waiter.send(Err(reason.to_owned()));
            }
        }
    }

    fn wants_start(&self) -> bool {
        let at_once = if self.waiters.is_empty() {
            1
        } else {
            MAX_STARTS
        };
        self.browser.is_some()
            && self.starts.len() < at_once
            && self.warm.len() + self.starts.len() < self.waiters.len() + self.options.warm
    }

    fn start_what_is_due(&mut self) {
        if self.failures == 0 && self.warm.is_empty() {
            // Nothing is left to be polite with.
            self.not_before = self.not_before.min(Instant::now());
        }
        while self.wants_start() && self.not_before <= Instant::now() {
            let Some((devtools, downloads)) = self.browser.clone() else {
                return;
            };
            let around = Surroundings {
                devtools,
                downloads,
                http: self.http.clone(),
                hung: self.hung.clone(),
                shutdown: self.shutdown.clone(),
            };
            let scratch = self.scratch.clone();
            let mut options = SpawnOptions {
                program: self.options.program.clone(),
                scratch: PathBuf::new(),
                heap_mb: self.options.heap_mb,
                scratch_mb: self.options.scratch_mb,
                user: self.options.user.clone(),
            };
            self.starts.spawn(async move {
                let scratch = scratch.make().map_err(StartError::Scratch)?;
                options.scratch = scratch.path().to_owned();
                Worker::start(&options, scratch, around).await
            });
        }
    }
}
