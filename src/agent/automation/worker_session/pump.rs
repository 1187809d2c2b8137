//! The message pump of a session: waits for the next event, dispatches it, and performs the relay's
//! actions.

use std::{future::pending, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    WorkerSession,
    exit::ExitReason,
    job::{JobRequest, Report},
    stage::{Stage, TabOrder},
};
use crate::{
    agent::{
        automation::{
            queue::Queue,
            relay::{CompletedDownload, RelayAction, canceled_download},
        },
        optional_sleep::sleep_until_some,
    },
    system::{
        cdp::multiplexer::{CdpSender, Disconnected, End},
        script::worker::{
            Exit, FrameError, FromWorker, HttpFailure, HttpRequest, ScriptWorker, ToWorker,
        },
    },
};

/// The most bytes queued for a worker that runs a script. A worker that falls behind further does
/// not read: its script is in an endless computation, or it is stuck.
const MAX_WORKER_QUEUE: usize = 32 << 20;
/// The same for a worker without a script.
const MAX_IDLE_WORKER_QUEUE: usize = 4 << 20;
/// The most bytes of replies queued for a worker, which has sent a command for each.
const MAX_REPLY_QUEUE: usize = 512 << 20;
/// The bytes queued for a worker above which no response of its requests is read.
const MAX_RESPONSE_QUEUE: usize = 1 << 20;
/// The memory of a queued message about a request besides its body.
const MESSAGE_OVERHEAD: usize = 512;
/// The bytes queued for Chromium above which the worker is not read.
const MAX_BROWSER_QUEUE: usize = 4 << 20;

/// The event that woke the session.
enum Wakeup {
    Browser(Result<Bytes, End>),
    Worker(Result<Option<FromWorker>, FrameError>),
    Job(Option<JobRequest>),
    TabOrder(Option<Vec<String>>),
    /// A download was delivered to the script; this is the event to send.
    Delivered(Bytes),
    /// A message about a request of the script.
    Request(ToWorker),
    CallerGone,
    Shutdown,
    Timer,
}

impl WorkerSession {
    /// Waits for one event and handles it.
    pub(super) async fn step(
        &mut self,
        jobs: &mut mpsc::Receiver<JobRequest>,
    ) -> Result<(), ExitReason> {
        self.start_if_settled()?;
        self.perform_actions()?;
        match self.next_wakeup(jobs).await {
            Wakeup::Browser(Ok(text)) => {
                let is_behind = self.to_worker.bytes() > MAX_IDLE_WORKER_QUEUE / 2;
                self.relay.set_worker_behind(is_behind);
                self.relay.from_browser(text, Instant::now())?;
            }
            Wakeup::Browser(_) => return Err(ExitReason::BrowserGone),
            Wakeup::Worker(Ok(Some(event))) => self.on_worker_event(event)?,
            Wakeup::Worker(Ok(None)) => return Err(ExitReason::WorkerClosed),
            Wakeup::Worker(Err(error)) => return Err(ExitReason::Killed(error.to_string())),
            Wakeup::Job(Some(request)) => self.accept_job(request),
            Wakeup::Job(None) | Wakeup::CallerGone => return Err(ExitReason::Unneeded),
            Wakeup::TabOrder(list) => self.set_tab_order(list),
            Wakeup::Delivered(event) => self.queue_for_worker(event),
            Wakeup::Request(message) => self.queue_response(message),
            Wakeup::Shutdown => return Err(ExitReason::Shutdown),
            Wakeup::Timer => return self.on_timer(Instant::now()),
        }
        Ok(())
    }

    async fn next_wakeup(&mut self, jobs: &mut mpsc::Receiver<JobRequest>) -> Wakeup {
        let deadlines = [self.relay.deadline(), self.stage_deadline()];
        let timer = deadlines.into_iter().flatten().min();
        let accepts_jobs = self.stage.accepts_jobs();
        let (reply, order) = match &mut self.stage {
            Stage::Settling { run, order } => (Some(&mut run.reply), Some(order)),
            Stage::Running { run, .. } => (Some(&mut run.reply), None),
            _ => (None, None),
        };
        // Back-pressure: the worker is not read while Chromium does not keep up with it.
        let from_worker = async {
            self.to_browser.below(MAX_BROWSER_QUEUE).await;
            self.events.next().await
        };
        // Likewise, responses wait while the worker does not keep up with them.
        let from_requests = async {
            self.to_worker.below(MAX_RESPONSE_QUEUE).await;
            self.requests.next().await
        };
        tokio::select! {
            message = self.receiver.next() => Wakeup::Browser(message),
            event = from_worker => Wakeup::Worker(event),
            Some(Ok(event)) = self.deliveries.join_next(), if !self.deliveries.is_empty() => {
                Wakeup::Delivered(event)
            }
            message = from_requests => Wakeup::Request(message),
            request = jobs.recv(), if accepts_jobs => Wakeup::Job(request),
            list = tab_order(order) => Wakeup::TabOrder(list),
            () = caller_gone(reply) => Wakeup::CallerGone,
            () = self.context.shutdown.requested() => Wakeup::Shutdown,
            () = sleep_until_some(timer) => Wakeup::Timer,
        }
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), ExitReason> {
        self.relay.tick(now);
        match &self.stage {
            Stage::Running { deadline, .. } if *deadline <= now => Err(ExitReason::TimedOut),
            _ => Ok(()),
        }
    }

    fn on_worker_event(&mut self, event: FromWorker) -> Result<(), ExitReason> {
        match event {
            FromWorker::Cdp(text) => self.relay.from_worker(text)?,
            FromWorker::Ready => self.on_attached()?,
            FromWorker::Stdout(bytes) => {
                if let Stage::Running { run, .. } = &mut self.stage {
                    run.stdout.push(&bytes);
                }
            }
            FromWorker::Stderr(bytes) => {
                if let Stage::Running { run, .. } = &mut self.stage {
                    run.stderr.push(&bytes);
                }
            }
            FromWorker::Done(result) => self.on_done(*result)?,
            FromWorker::Failed(reason) => return Err(ExitReason::WorkerFailed(reason)),
            FromWorker::HttpRequest(request, body) => self.start_request(*request, body)?,
            FromWorker::HttpCancel(id) => self.requests.cancel(id),
        }
        Ok(())
    }

    /// Starts a request of the running script. Code that an earlier call has left sends none.
    fn start_request(&mut self, request: HttpRequest, body: Bytes) -> Result<(), ExitReason> {
        let started = match self.stage {
            Stage::Running { .. } => self.requests.start(request, body),
            _ => Err(ended_failure(request.id)),
        };
        if let Err(failure) = started {
            self.check_worker_queue()?;
            self.queue_response(ToWorker::HttpFailed(failure));
        }
        Ok(())
    }

    /// Ends the requests of a call that has ended.
    pub(super) fn end_requests(&mut self) {
        for id in self.requests.cancel_all() {
            self.queue_response(ToWorker::HttpFailed(ended_failure(id)));
        }
    }

    pub(super) fn perform_actions(&mut self) -> Result<(), ExitReason> {
        for action in self.relay.take_actions() {
            match action {
                RelayAction::ToBrowser(text) => self.queue_for_browser(text),
                RelayAction::ToWorker(text) => {
                    self.check_worker_queue()?;
                    self.queue_for_worker(text);
                }
                RelayAction::TabHung(target) => self.context.hung_tabs.add(target),
                RelayAction::TabAnswered(target) | RelayAction::TabClosed(target) => {
                    self.context.hung_tabs.remove(&target);
                }
                RelayAction::RenewDownloadSetting => self.context.downloads.renew_setting(),
                RelayAction::DownloadStarted(guid) => {
                    let download_ref = self.context.downloads.reference(&guid);
                    self.download_refs.push(download_ref);
                }
                RelayAction::DownloadCompleted(download) => self.deliver(download),
            }
        }
        Ok(())
    }

    /// Rejects a further message if too many bytes are queued already. The size of a single message
    /// is bounded by the protocol alone.
    fn check_worker_queue(&self) -> Result<(), ExitReason> {
        let bound = match self.stage {
            Stage::Running { .. } | Stage::Settling { .. } => MAX_WORKER_QUEUE,
            _ => MAX_IDLE_WORKER_QUEUE,
        };
        if self.to_worker.bytes() <= bound && self.to_worker.reply_bytes() <= MAX_REPLY_QUEUE {
            return Ok(());
        }
        Err(ExitReason::Killed(format!(
            "the script did not read the browser's messages: {} MiB were queued",
            (self.to_worker.bytes() + self.to_worker.reply_bytes()) >> 20
        )))
    }

    pub(super) fn queue_for_browser(&self, text: Bytes) {
        let size = text.len();
        self.to_browser.push(text, size);
    }

    fn queue_response(&self, message: ToWorker) {
        let size = match &message {
            ToWorker::HttpBody(_, bytes) => bytes.len(),
            ToWorker::HttpHead(head) => {
                let headers = head.headers.iter();
                headers.map(|(name, value)| name.len() + value.len()).sum()
            }
            _ => 0,
        };
        self.to_worker.push(message, size + MESSAGE_OVERHEAD);
    }

    fn queue_for_worker(&self, text: Bytes) {
        let size = text.len();
        // As Chromium and the relay write them.
        match text.starts_with(b"{\"id\"") {
            true => self.to_worker.push_reply(ToWorker::Cdp(text), size),
            false => self.to_worker.push(ToWorker::Cdp(text), size),
        }
    }

    /// Delivers a complete download to the script, and then its event.
    fn deliver(&mut self, download: CompletedDownload) {
        let CompletedDownload { guid, path, event } = download;
        let script_downloads = self.script_downloads.clone();
        let downloads = self.context.downloads.clone();
        self.deliveries.spawn_blocking(move || {
            match script_downloads.deliver(&downloads, &guid, path.as_deref()) {
                Ok(()) => event,
                Err(error) => canceled_download(&guid, &error.to_string()),
            }
        });
    }
}

fn ended_failure(id: u32) -> HttpFailure {
    HttpFailure {
        id,
        code: "EPERM".to_owned(),
        reason: "the script that sent the request has ended".to_owned(),
    }
}

async fn tab_order(order: Option<&mut TabOrder>) -> Option<Vec<String>> {
    match order {
        Some(TabOrder::Pending(task)) => task.await.ok().flatten(),
        _ => pending().await,
    }
}

async fn caller_gone(reply: Option<&mut oneshot::Sender<Report>>) {
    match reply {
        Some(reply) => reply.closed().await,
        None => pending().await,
    }
}

/// Writes queued messages to Chromium until the connection fails. The reader reports the failure.
pub(super) async fn write_browser(sender: CdpSender, queue: Arc<Queue<Bytes>>) {
    loop {
        let text = queue.pop().await;
        // The relay writes UTF-8.
        let Ok(text) = std::str::from_utf8(&text) else {
            continue;
        };
        if let Err(Disconnected) = sender.send(text).await {
            return;
        }
    }
}

/// Writes queued messages to the worker until `reap`, then kills and reaps the process.
pub(super) async fn write_worker(
    mut worker: ScriptWorker,
    queue: Arc<Queue<ToWorker>>,
    reap: CancellationToken,
) -> Exit {
    let write = async {
        loop {
            // The reader reports that the worker has closed its end.
            if worker.send(queue.pop().await).await.is_err() {
                return pending::<()>().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = reap.cancelled() => {}
        () = write => {}
    }
    worker.kill().await
}
