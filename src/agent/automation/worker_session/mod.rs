//! The session of one script worker: its process, its connection to Chromium, and the relay
//! between them.
//!
//! ```text
//!                      WorkerSession (one task)
//!  Worker::run --job--> +--------------------+ <--events--  worker process
//!         <--report---  |  relay, stage      | --queue--> write_worker task (also reaps)
//!                       |                    | <--messages-- Chromium
//!                       +--------------------+ --queue--> write_browser task
//!
//!  stage:  Attaching --Ready--> Idle --job--> Settling --page chosen--> Running
//!                                   ^                                         |
//!                                   +------- done, of an executor ------------+
//!  any stage --ExitReason--> shut down
//! ```
//!
//! | file | job |
//! |---|---|
//! | `mod` | [`Worker`], the handle of the pool and of the executors |
//! | `job` | jobs, their outcomes and reports |
//! | `stage` | the stages, and their transitions |
//! | `pump` | the loop: waits for events, dispatches them, performs the relay's actions |
//! | `unattached` | the session of a script that does not use the browser |
//! | `exit` | ending a session: quiescing the browser, draining output, reaping the process |

mod exit;
mod job;
mod pump;
mod stage;
mod unattached;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    job::JobRequest,
    pump::{write_browser, write_worker},
    stage::Stage,
};
pub(super) use self::{
    job::{Job, Outcome, Report},
    unattached::UnattachedWorker,
};
use super::{
    downloads::{DownloadRef, Downloads, ScriptDownloads},
    hung_tabs::HungTabs,
    queue::Queue,
    relay::{DownloadSettings, Relay},
    requests::Requests,
    scratch::Scratch,
    session_files::SessionFiles,
};
use crate::{
    agent::chromium::Devtools,
    shutdown::Shutdown,
    system::{
        cdp::multiplexer::{CdpReceiver, CdpSender, ClientOptions, ConnectError, Endpoint},
        outbound::FetchNetwork,
        script::{
            template::{ForkError, ForkRequest, WorkerTemplate},
            worker::{Events, Exit, Killer, ScriptWorker, ToWorker},
        },
    },
};

/// The longest event for a worker, in bytes. Chromium repeats some events to each new worker, and a
/// longer one would delay all of them.
const MAX_EVENT: usize = 64 << 20;
const CONNECTION: ClientOptions = ClientOptions {
    // The relay checks what a script may call.
    caller: None,
    max_event: MAX_EVENT,
};
/// The time that a running Chromium has to answer the first command of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time from the start of the process until Playwright is attached.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// The services that a session needs besides its worker.
#[derive(Clone)]
pub(super) struct WorkerContext {
    pub(super) devtools: Arc<Devtools>,
    pub(super) downloads: Arc<Downloads>,
    pub(super) hung_tabs: Arc<HungTabs>,
    pub(super) network: FetchNetwork,
    pub(super) files: SessionFiles,
    pub(super) shutdown: Shutdown,
}

/// Why a worker did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Fork(#[from] ForkError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("Chromium did not answer within {} s", CONNECT_TIMEOUT.as_secs())]
    NoAnswer,
    #[error("cannot create a scratch directory: {0}")]
    Scratch(std::io::Error),
    #[error("{0}")]
    Ended(String),
    #[error("the script worker did not attach within {} s", ATTACH_TIMEOUT.as_secs())]
    Timeout,
}

/// An attached worker. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) generation: u64,
    jobs: mpsc::Sender<JobRequest>,
    ended: CancellationToken,
}

impl Worker {
    /// Forks a process and waits until Playwright is attached in it.
    pub(super) async fn start(
        template: &WorkerTemplate,
        scratch: Scratch,
        scratch_mb: u32,
        context: WorkerContext,
    ) -> Result<Worker, StartError> {
        let request = ForkRequest {
            scratch: scratch.name(),
            attaches: true,
        };
        let worker = template.fork(request).await?;
        let devtools = &context.devtools;
        let connecting = devtools.multiplexer.connect(Endpoint::Browser, CONNECTION);
        let connection = timeout(CONNECT_TIMEOUT, connecting).await;
        let connection = connection.map_err(|_| StartError::NoAnswer)??;
        let generation = devtools.generation;
        let shutdown = context.shutdown.clone();
        let (jobs, job_queue) = mpsc::channel(1);
        let (attached_sender, attached) = oneshot::channel();
        let ended = CancellationToken::new();
        let download_settings = context.downloads.settings().await;
        let downloads = ScriptDownloads::new(scratch.path(), scratch_mb);
        let session = WorkerSession::new(
            worker,
            connection,
            (scratch, downloads),
            download_settings,
            context,
        );
        shutdown.spawn(session.run(job_queue, attached_sender, ended.clone().drop_guard()));
        match timeout(ATTACH_TIMEOUT, attached).await {
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

    /// Runs a script. Returns `None` if the worker ended before the script started. Dropping the
    /// returned future kills the script, and the worker with it.
    pub(super) async fn run(&mut self, job: Job) -> Option<Report> {
        let (reply, report) = oneshot::channel();
        self.jobs.send((job, reply)).await.ok()?;
        report.await.ok()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the worker has ended.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.ended.clone().cancelled_owned()
    }
}

struct WorkerSession {
    relay: Relay,
    stage: Stage,
    receiver: CdpReceiver,
    events: Events,
    to_browser: Arc<Queue<Bytes>>,
    to_worker: Arc<Queue<ToWorker>>,
    browser_writer: JoinHandle<()>,
    worker_writer: JoinHandle<Exit>,
    /// Dropping it makes the worker's writer kill and reap the process.
    reap_guard: DropGuard,
    killer: Killer,
    scratch: Scratch,
    script_downloads: Arc<ScriptDownloads>,
    /// The downloads of the current call.
    download_refs: Vec<DownloadRef>,
    /// Downloads being delivered to the script. Each yields the event to send afterwards.
    deliveries: JoinSet<Bytes>,
    requests: Requests,
    context: WorkerContext,
}

impl WorkerSession {
    fn new(
        (worker, events): (ScriptWorker, Events),
        (sender, receiver): (CdpSender, CdpReceiver),
        (scratch, script_downloads): (Scratch, ScriptDownloads),
        download_settings: DownloadSettings,
        context: WorkerContext,
    ) -> Self {
        let to_browser = Arc::new(Queue::default());
        let to_worker = Arc::new(Queue::default());
        let reap = CancellationToken::new();
        let killer = worker.killer();
        Self {
            relay: Relay::new(
                scratch.path().to_owned(),
                context.files.clone(),
                download_settings,
            ),
            stage: Stage::Idle,
            receiver,
            events,
            browser_writer: tokio::spawn(write_browser(sender, to_browser.clone())),
            worker_writer: tokio::spawn(write_worker(worker, to_worker.clone(), reap.clone())),
            to_browser,
            to_worker,
            reap_guard: reap.drop_guard(),
            killer,
            scratch,
            script_downloads: Arc::new(script_downloads),
            download_refs: Vec::new(),
            deliveries: JoinSet::new(),
            requests: Requests::new(context.network.clone()),
            context,
        }
    }

    /// Serves the worker until it ends.
    async fn run(
        mut self,
        mut jobs: mpsc::Receiver<JobRequest>,
        attached: oneshot::Sender<Result<(), String>>,
        ended: DropGuard,
    ) {
        self.stage = Stage::Attaching(Some(attached));
        let reason = loop {
            if let Err(reason) = self.step(&mut jobs).await {
                break reason;
            }
        };
        drop(ended);
        self.shut_down(reason).await;
    }
}
