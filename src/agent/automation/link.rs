//! One script worker and its connection to Chromium: the relay's decisions, carried out.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    downloads::{Downloads, Shelf, Wanted},
    front::activity_order,
    output::Output,
    queue::Queue,
    relay::{self, Downloaded, DownloadsPlace, Front, Out, Relay, Violation},
    scratch::Scratch,
    tabs::HungTabs,
};
use crate::{
    agent::chromium::Devtools,
    shutdown::Shutdown,
    system::{
        cdp::devtools::DevtoolsHttp,
        cdp::socket::{self, CdpReceiver, CdpSender, CdpSocketError},
        script::worker::{
            Events, Exit, FromWorker, Page, RunOutcome, RunRequest, Script, ScriptWorker,
            SpawnError, SpawnOptions, ToWorker,
        },
    },
};

/// From the start of the process to Playwright being attached.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// The worker stops a script at its deadline by itself and says where it was; one that does not is killed this much later.
const KILL_AFTER: Duration = Duration::from_millis(400);
/// What may wait for a worker. One that falls behind further does not read: its script computes without end, or it is stuck.
const MAX_TO_WORKER: usize = 32 << 20;
/// As much for one that has no script to run.
const MAX_TO_IDLE_WORKER: usize = 4 << 20;
/// What waits for Chromium before no more is taken from the worker.
const MAX_TO_BROWSER: usize = 4 << 20;
/// How long a dead worker's last commands may take to come through before the caller is answered, and as long again once
/// the code they run in a page has been stopped.
const QUIESCE: Duration = Duration::from_millis(150);
/// A killed process is gone within this.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// A dead process is reaped within this, or its fate is not told.
const REAP: Duration = Duration::from_secs(1);

/// What a link needs besides its worker.
#[derive(Clone)]
pub struct Surroundings {
    pub devtools: Arc<Devtools>,
    pub downloads: Arc<Downloads>,
    pub http: DevtoolsHttp,
    pub hung: Arc<HungTabs>,
    pub shutdown: Shutdown,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Connect(#[from] CdpSocketError),
    #[error("cannot make a scratch directory: {0}")]
    Scratch(std::io::Error),
    #[error("{0}")]
    Ended(String),
    #[error("the script worker did not attach within {} s", ATTACH_TIMEOUT.as_secs())]
    Timeout,
}

/// A script for a worker.
#[derive(Clone, Debug)]
pub struct Job {
    pub code: String,
    pub timeout: Duration,
    /// The worker may get another one afterwards.
    pub keep: bool,
}

/// How a script ended, and what it printed.
#[derive(Debug)]
pub struct Report {
    pub end: End,
    pub stdout: String,
    pub stderr: String,
    /// The worker takes another script.
    pub reusable: bool,
    /// From the script's start to its end.
    pub ran: Duration,
    /// What is to be said besides.
    pub note: Option<String>,
}

#[derive(Debug)]
pub enum End {
    Returned(Option<Box<RawValue>>),
    Threw(String),
    TimedOut,
    /// The process ended by itself or had to be ended; the text says how.
    Died(String),
    BrowserGone,
    Stopped,
}

/// An attached worker. Dropping it kills the process.
#[derive(Debug)]
pub struct Worker {
    pub generation: u64,
    jobs: mpsc::Sender<(Job, oneshot::Sender<Report>)>,
    ended: CancellationToken,
}

impl Worker {
    /// Starts a process and resolves once Playwright is attached in it.
    pub async fn start(
        options: &SpawnOptions,
        scratch: Scratch,
        around: Surroundings,
    ) -> Result<Worker, StartError> {
        let (worker, events) = ScriptWorker::spawn(options).await?;
        let (sender, receiver) =
            socket::connect(around.devtools.addr, &around.devtools.browser_path).await?;
        let (jobs, waiting_jobs) = mpsc::channel(1);
        let (attached, is_attached) = oneshot::channel();
        let ended = CancellationToken::new();
        let generation = around.devtools.generation;
        let shutdown = around.shutdown.clone();
        let place = around.downloads.place().await;
        let shelf = Shelf::new(scratch.path(), options.scratch_mb);
        let link = Link::new(
            (worker, events),
            (sender, receiver),
            (scratch, shelf),
            place,
            around,
        );
        shutdown.spawn(link.live(waiting_jobs, attached, ended.clone().drop_guard()));
        match timeout(ATTACH_TIMEOUT, is_attached).await {
            Ok(Ok(Ok(()))) => Ok(Worker {
                generation,
                jobs,
                ended,
            }),
            Ok(Ok(Err(reason))) => Err(StartError::Ended(reason)),
            Ok(Err(_)) => Err(StartError::Ended("the script worker's task ended".into())),
            Err(_) => Err(StartError::Timeout),
        }
    }

    /// Runs a script; `None` where the worker had ended before it began. When the returned future is dropped, the script is killed, and with
    /// it the worker.
    pub async fn run(&mut self, job: Job) -> Option<Report> {
        let (reply, report) = oneshot::channel();
        self.jobs.send((job, reply)).await.ok()?;
        report.await.ok()
    }

    pub fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Resolves when the worker has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.ended.clone().cancelled_owned()
    }
}

impl Report {
    /// Of a script for which there was no worker.
    pub fn never_began() -> Self {
        Report {
            end: End::Died("the script worker ended before the script began".to_owned()),
            stdout: String::new(),
            stderr: String::new(),
            reusable: false,
            ran: Duration::ZERO,
            note: None,
        }
    }
}

/// Why a link ends.
#[derive(Debug)]
enum Over {
    /// Nobody wants the worker or its script any more.
    Unwanted,
    /// A script that is not to be followed by another has ended.
    Finished(RunOutcome),
    TimedOut,
    BrowserGone,
    Stopped,
    /// The worker closed its end.
    WorkerClosed,
    /// The worker said that it cannot go on.
    WorkerFailed(String),
    /// The worker was not to be trusted, or kept up with.
    Killed(String),
}

impl From<Violation> for Over {
    fn from(violation: Violation) -> Self {
        Over::Killed(violation.to_string())
    }
}

/// A script under way.
struct Run {
    job: Job,
    reply: oneshot::Sender<Report>,
    stdout: Output,
    stderr: Output,
    begun: Instant,
    started: Option<Instant>,
}

enum Stage {
    Attaching(Option<oneshot::Sender<Result<(), String>>>),
    Idle,
    /// The tabs are asked how they are, and Chromium which one is in front.
    Settling {
        run: Box<Run>,
        order: Order,
    },
    Running {
        run: Box<Run>,
        deadline: Instant,
    },
}

/// Chromium's order of its tabs.
enum Order {
    /// There is one tab at most, or Chromium does not say.
    Unknown,
    Asked(JoinHandle<Option<Vec<String>>>),
    Known(Vec<String>),
}

struct Link {
    relay: Relay,
    stage: Stage,
    receiver: CdpReceiver,
    events: Events,
    to_browser: Arc<Queue<Bytes>>,
    to_worker: Arc<Queue<ToWorker>>,
    browser_writer: JoinHandle<()>,
    worker_writer: JoinHandle<Exit>,
    /// Tells the worker's writer to kill and reap.
    kill: DropGuard,
    killer: crate::system::script::worker::Killer,
    scratch: Scratch,
    shelf: Arc<Shelf>,
    /// The downloads of this call.
    wanted: Vec<Wanted>,
    /// Downloads on their way to the script; each ends with what it is to be told.
    placing: JoinSet<Bytes>,
    around: Surroundings,
}

/// What the loop woke for.
enum Woke {
    Browser(Result<Option<Bytes>, CdpSocketError>),
    Worker(Result<Option<FromWorker>, crate::system::script::worker::FrameError>),
    Job(Option<(Job, oneshot::Sender<Report>)>),
    Order(Option<Vec<String>>),
    Placed(Bytes),
    CallerGone,
    Stop,
    Timer,
}

impl Link {
    fn new(
        (worker, events): (ScriptWorker, Events),
        (sender, receiver): (CdpSender, CdpReceiver),
        (scratch, shelf): (Scratch, Shelf),
        place: DownloadsPlace,
        around: Surroundings,
    ) -> Self {
        let to_browser = Arc::new(Queue::default());
        let to_worker = Arc::new(Queue::default());
        let kill = CancellationToken::new();
        let killer = worker.killer();
        Link {
            relay: Relay::new(place),
            stage: Stage::Idle,
            receiver,
            events,
            browser_writer: tokio::spawn(write_browser(sender, to_browser.clone())),
            worker_writer: tokio::spawn(write_worker(worker, to_worker.clone(), kill.clone())),
            to_browser,
            to_worker,
            kill: kill.drop_guard(),
            killer,
            scratch,
            shelf: Arc::new(shelf),
            wanted: Vec::new(),
            placing: JoinSet::new(),
            around,
        }
    }

    /// The worker's whole life.
    async fn live(
        mut self,
        mut jobs: mpsc::Receiver<(Job, oneshot::Sender<Report>)>,
        attached: oneshot::Sender<Result<(), String>>,
        ended: DropGuard,
    ) {
        self.stage = Stage::Attaching(Some(attached));
        let over = loop {
            match self.step(&mut jobs).await {
                Ok(()) => {}
                Err(over) => break over,
            }
        };
        drop(ended);
        self.end(over).await;
    }

    async fn step(
        &mut self,
        jobs: &mut mpsc::Receiver<(Job, oneshot::Sender<Report>)>,
    ) -> Result<(), Over> {
        self.start_if_settled()?;
        self.carry_out()?;
        let now = match self.wake(jobs).await {
            Woke::Browser(Ok(Some(text))) => {
                return Ok(self.relay.from_browser(text, Instant::now())?);
            }
            Woke::Browser(Err(error @ CdpSocketError::TooLong(_))) => {
                return Err(Over::Killed(error.to_string()));
            }
            Woke::Browser(_) => return Err(Over::BrowserGone),
            Woke::Worker(Ok(Some(event))) => return self.worker_said(event),
            Woke::Worker(Ok(None)) => return Err(Over::WorkerClosed),
            Woke::Worker(Err(error)) => return Err(Over::Killed(error.to_string())),
            Woke::Job(Some((job, reply))) => return self.begin(job, reply),
            Woke::Job(None) | Woke::CallerGone => return Err(Over::Unwanted),
            Woke::Order(list) => {
                if let Stage::Settling { order, .. } = &mut self.stage {
                    *order = list.map_or(Order::Unknown, Order::Known);
                }
                return Ok(());
            }
            Woke::Placed(event) => {
                let size = event.len();
                self.to_worker.push(ToWorker::Cdp(event), size);
                return Ok(());
            }
            Woke::Stop => return Err(Over::Stopped),
            Woke::Timer => Instant::now(),
        };
        self.relay.tick(now);
        match &self.stage {
            Stage::Running { deadline, .. } if *deadline <= now => Err(Over::TimedOut),
            _ => Ok(()),
        }
    }

    /// Waits for whatever comes next.
    async fn wake(&mut self, jobs: &mut mpsc::Receiver<(Job, oneshot::Sender<Report>)>) -> Woke {
        let timer = [self.relay.deadline(), self.stage_deadline()]
            .into_iter()
            .flatten()
            .min();
        let takes_jobs = !matches!(self.stage, Stage::Settling { .. } | Stage::Running { .. });
        let (caller, order) = match &mut self.stage {
            Stage::Settling { run, order } => (Some(&mut run.reply), Some(order)),
            Stage::Running { run, .. } => (Some(&mut run.reply), None),
            _ => (None, None),
        };
        // The worker is not read while Chromium does not keep up with it.
        let from_worker = async {
            self.to_browser.below(MAX_TO_BROWSER).await;
            self.events.next().await
        };
        tokio::select! {
            message = self.receiver.next() => Woke::Browser(message),
            event = from_worker => Woke::Worker(event),
            Some(Ok(event)) = self.placing.join_next(), if !self.placing.is_empty() => Woke::Placed(event),
            job = jobs.recv(), if takes_jobs => Woke::Job(job),
            list = async {
                match order {
                    Some(Order::Asked(asked)) => asked.await.ok().flatten(),
                    _ => pending().await,
                }
            } => Woke::Order(list),
            () = async {
                match caller {
                    Some(reply) => reply.closed().await,
                    None => pending().await,
                }
            } => Woke::CallerGone,
            () = self.around.shutdown.stopped() => Woke::Stop,
            () = async {
                match timer {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            } => Woke::Timer,
        }
    }

    fn stage_deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Running { deadline, .. } => Some(*deadline),
            Stage::Settling { order, .. } => match self.front(order) {
                Front::Wait(until) => Some(until),
                _ => None,
            },
            _ => None,
        }
    }

    fn front(&self, order: &Order) -> Front {
        let known = match order {
            Order::Known(list) => Some(list.as_slice()),
            _ => None,
        };
        self.relay.front(
            known,
            |target| self.around.hung.contains(target),
            Instant::now(),
        )
    }

    fn begin(&mut self, job: Job, reply: oneshot::Sender<Report>) -> Result<(), Over> {
        let run = Box::new(Run {
            job,
            reply,
            stdout: Output::default(),
            stderr: Output::default(),
            begun: Instant::now(),
            started: None,
        });
        let script = Script {
            code: run.job.code.clone(),
            file_name: "script.ts".to_owned(),
        };
        let size = script.code.len();
        self.to_worker.push(ToWorker::Prepare(script), size);
        // An executor's script may have kept a page under a name of its own.
        if !run.job.keep && !names_browser(&run.job.code) {
            self.run(run, Page::Unused);
            return Ok(());
        }
        self.relay.settle(Instant::now());
        // With one tab there is nothing to choose from.
        let order = if self.relay.tabs() > 1 {
            let (http, addr) = (self.around.http.clone(), self.around.devtools.addr);
            Order::Asked(tokio::spawn(
                async move { activity_order(&http, addr).await },
            ))
        } else {
            Order::Unknown
        };
        self.stage = Stage::Settling { run, order };
        Ok(())
    }

    fn start_if_settled(&mut self) -> Result<(), Over> {
        let Stage::Settling { order, .. } = &self.stage else {
            return Ok(());
        };
        let page = match (order, self.front(order)) {
            (Order::Asked(_), _) | (_, Front::Wait(_)) => return Ok(()),
            (_, Front::Tab(target)) => Page::Tab(target),
            (_, Front::Fresh) => Page::Fresh,
        };
        let Stage::Settling { run, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else {
            return Ok(());
        };
        self.carry_out()?;
        self.relay.run();
        self.run(run, page);
        Ok(())
    }

    fn run(&mut self, mut run: Box<Run>, page: Page) {
        let now = Instant::now();
        tracing::debug!(
            settled_micros = run.begun.elapsed().as_micros(),
            ?page,
            "a script starts"
        );
        run.started = Some(now);
        let deadline = now + run.job.timeout + KILL_AFTER;
        let request = RunRequest {
            page,
            timeout_ms: u64::try_from(run.job.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        self.to_worker.push(ToWorker::Run(request), 0);
        self.stage = Stage::Running { run, deadline };
    }

    /// Does what the relay wants done.
    fn carry_out(&mut self) -> Result<(), Over> {
        let bound = match self.stage {
            Stage::Running { .. } | Stage::Settling { .. } => MAX_TO_WORKER,
            _ => MAX_TO_IDLE_WORKER,
        };
        for out in self.relay.take_out() {
            match out {
                Out::ToBrowser(text) => {
                    let size = text.len();
                    self.to_browser.push(text, size);
                }
                Out::ToWorker(text) => {
                    // What waits already is what counts: a single message may be of any size that the frames allow.
                    if self.to_worker.bytes() > bound {
                        return Err(Over::Killed(format!(
                            "the script did not take what the browser sent: {} MiB were waiting for it",
                            bound >> 20
                        )));
                    }
                    let size = text.len();
                    self.to_worker.push(ToWorker::Cdp(text), size);
                }
                Out::Silent(target) => self.around.hung.add(target),
                Out::Alive(target) | Out::Gone(target) => self.around.hung.remove(&target),
                Out::Downloads => self.around.downloads.set(),
                Out::Download(guid) => self.wanted.push(self.around.downloads.want(&guid)),
                Out::Downloaded(download) => self.place(download),
            }
        }
        Ok(())
    }

    /// Gives the script a complete download, then tells it.
    fn place(&mut self, download: Downloaded) {
        let Downloaded { guid, path, event } = download;
        let (shelf, downloads) = (self.shelf.clone(), self.around.downloads.clone());
        self.placing.spawn_blocking(move || {
            match shelf.place(&downloads, &guid, path.as_deref()) {
                Ok(()) => event,
                Err(error) => relay::refused(&guid, &error.to_string()),
            }
        });
    }

    fn worker_said(&mut self, event: FromWorker) -> Result<(), Over> {
        let run = match &mut self.stage {
            Stage::Running { run, .. } => Some(run),
            _ => None,
        };
        match (event, run) {
            (FromWorker::Cdp(text), _) => self.relay.from_worker(text)?,
            (FromWorker::Attached, _) => {
                if let Stage::Attaching(attached) = &mut self.stage {
                    let told = attached
                        .take()
                        .is_some_and(|tell| tell.send(Ok(())).is_ok());
                    self.stage = Stage::Idle;
                    if !told {
                        return Err(Over::Unwanted);
                    }
                }
            }
            (FromWorker::Stdout(bytes), Some(run)) => run.stdout.push(&bytes),
            (FromWorker::Stderr(bytes), Some(run)) => run.stderr.push(&bytes),
            (FromWorker::Stdout(_) | FromWorker::Stderr(_), None) => {}
            (FromWorker::Done(outcome), Some(run)) => {
                if !(run.job.keep && outcome.reusable) {
                    return Err(Over::Finished(*outcome));
                }
                if let Stage::Running { run, .. } = std::mem::replace(&mut self.stage, Stage::Idle)
                {
                    self.relay.rest();
                    self.wanted.clear();
                    run.report(End::from(*outcome), true);
                }
            }
            (FromWorker::Done(_), None) => {
                return Err(Over::Killed(
                    "the script worker answered without having been asked".into(),
                ));
            }
            (FromWorker::Failed(reason), _) => return Err(Over::WorkerFailed(reason)),
        }
        Ok(())
    }

    /// Closes the connection, answers, kills the process and cleans up.
    async fn end(mut self, over: Over) {
        if !matches!(over, Over::Finished(_)) {
            self.killer.kill();
        }
        // Whatever the worker still wants of the browser is not passed on.
        for text in self.to_browser.clear() {
            self.relay.unsent(&text);
        }
        if !matches!(over, Over::BrowserGone) {
            self.quiesce().await;
        }
        self.browser_writer.abort();
        let _ = self.browser_writer.await;
        drop(self.receiver);
        let over = match over {
            // All is said, and the browser has heard the last of it: the caller need not wait for the process.
            Over::Finished(outcome) => {
                if let Stage::Running { run, .. } = std::mem::replace(&mut self.stage, Stage::Idle)
                {
                    run.report(End::from(outcome), false);
                }
                self.killer.kill();
                Over::Unwanted
            }
            over => over,
        };
        if let Stage::Running { run, .. } = &mut self.stage {
            last_words(&mut self.events, run).await;
        }
        // Dropped, the guard tells the writer to reap.
        drop(self.kill);
        let mut exit = self.worker_writer;
        let end = match over {
            Over::TimedOut => End::TimedOut,
            Over::BrowserGone => End::BrowserGone,
            Over::Finished(_) | Over::Stopped | Over::Unwanted => End::Stopped,
            Over::WorkerFailed(reason) | Over::Killed(reason) => End::Died(reason),
            Over::WorkerClosed => End::Died(match timeout(REAP, &mut exit).await {
                Ok(Ok(exit)) => fate(&exit),
                _ => "the script's process ended".to_owned(),
            }),
        };
        match self.stage {
            Stage::Attaching(Some(tell)) => {
                tracing::debug!(relay = ?self.relay, ?end, "a script worker ends before it is attached");
                let _ = tell.send(Err(end.reason()));
            }
            Stage::Settling { run, .. } | Stage::Running { run, .. } => run.report(end, false),
            Stage::Idle | Stage::Attaching(None) => {
                if let End::Died(reason) = &end {
                    tracing::warn!(%reason, "a waiting script worker ended");
                }
            }
        }
        if !exit.is_finished() {
            let _ = exit.await;
        }
        // What is on its way must not arrive in a directory that is gone.
        while self.placing.join_next().await.is_some() {}
        let scratch = self.scratch;
        let _ = tokio::task::spawn_blocking(move || drop(scratch)).await;
    }

    /// Waits until the dead worker's commands have come through; stops their code in pages that it keeps busy.
    async fn quiesce(&mut self) {
        if !self.relay.quiesce(Instant::now()) {
            return;
        }
        self.read_until_quiet().await;
        if !self.relay.is_quiet() {
            self.relay.terminate();
            self.read_until_quiet().await;
        }
    }

    async fn read_until_quiet(&mut self) {
        let until = Instant::now() + QUIESCE;
        while !self.relay.is_quiet() {
            for out in self.relay.take_out() {
                if let Out::ToBrowser(text) = out {
                    let size = text.len();
                    self.to_browser.push(text, size);
                }
            }
            match timeout_at(until, self.receiver.next()).await {
                Ok(Ok(Some(text))) => {
                    if self.relay.from_browser(text, Instant::now()).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

impl Run {
    fn report(self, end: End, reusable: bool) {
        // A caller that is gone wants no report.
        let _ = self.reply.send(Report {
            end,
            stdout: self.stdout.into_text(),
            stderr: self.stderr.into_text(),
            reusable,
            ran: self.started.map_or(Duration::ZERO, |at| at.elapsed()),
            note: None,
        });
    }
}

impl From<RunOutcome> for End {
    fn from(outcome: RunOutcome) -> Self {
        if outcome.success {
            End::Returned(outcome.result)
        } else {
            End::Threw(
                outcome
                    .error
                    .unwrap_or_else(|| "the script failed".to_owned()),
            )
        }
    }
}

impl End {
    fn reason(&self) -> String {
        match self {
            End::Threw(reason) | End::Died(reason) => reason.clone(),
            End::Returned(..) => "the script worker ended".to_owned(),
            End::TimedOut => "the script worker took too long".to_owned(),
            End::BrowserGone => "the browser went away".to_owned(),
            End::Stopped => "the script worker was stopped".to_owned(),
        }
    }
}

/// Whether the code may have to do with the browser: it has one of the names under which a script finds it, or a way around names.
/// One that has not need not wait for a tab, and gets none.
fn names_browser(code: &str) -> bool {
    const NAMES: [&str; 7] = [
        "page",
        "context",
        "browser",
        "playwright",
        "eval",
        "arguments",
        "\\u",
    ];
    NAMES.iter().any(|name| code.contains(name))
}

/// What the killed worker had printed and nobody had read yet.
async fn last_words(events: &mut Events, run: &mut Run) {
    let read = async {
        while let Ok(Some(event)) = events.next().await {
            match event {
                FromWorker::Stdout(bytes) => run.stdout.push(&bytes),
                FromWorker::Stderr(bytes) => run.stderr.push(&bytes),
                _ => {}
            }
        }
    };
    // Its end of the socket closes as it dies.
    let _ = timeout(LAST_WORDS, read).await;
}

fn fate(exit: &Exit) -> String {
    use std::os::unix::process::ExitStatusExt;

    let how = match exit.status {
        Some(status) => match (status.signal(), status.code()) {
            // The kernel's way to take memory back.
            (Some(signal), _) => {
                format!("was ended by signal {signal}; it may have run out of memory")
            }
            (None, Some(code)) => format!("ended with status {code}"),
            (None, None) => "ended".to_owned(),
        },
        None => "ended".to_owned(),
    };
    tracing::warn!(
        how,
        diagnostics = exit.diagnostics,
        "a script's process ended by itself"
    );
    if exit.is_out_of_memory() {
        return "out of memory: the script's process needed more than it may have".to_owned();
    }
    format!("the script's process {how}")
}

async fn write_browser(mut sender: CdpSender, queue: Arc<Queue<Bytes>>) {
    loop {
        // A connection that does not take it is seen by its reader.
        if let Err(error) = sender.send(queue.pop().await).await {
            tracing::debug!(%error, "writing to Chromium");
            return;
        }
    }
}

async fn write_worker(
    mut worker: ScriptWorker,
    queue: Arc<Queue<ToWorker>>,
    kill: CancellationToken,
) -> Exit {
    let write = async {
        loop {
            // A worker that is gone is seen by its reader.
            if worker.send(queue.pop().await).await.is_err() {
                return pending::<()>().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = kill.cancelled() => {}
        () = write => {}
    }
    worker.kill().await
}
