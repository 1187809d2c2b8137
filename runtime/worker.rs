//! The worker, in a fork of the template: connects Playwright to the browser over the socket, then
//! runs scripts one at a time.
//!
//! ```text
//! fork ── attach ── Ready ── warm-up, if idle ─┬─ Prepare ── Run ── Done ─┐
//!           └── Failed (exit)                  └──────────────────────────┘
//!                                         deadline, out of memory: Done (exit)
//! ```
//!
//! [`Worker`] owns all state. It waits in one loop for the deadline, the socket, the engine and
//! messages.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use tokio::net::UnixStream;

use crate::{
    channel::{Inbox, ReceiveError, Receiver, Sender},
    engine::{Engine, EngineError, Function},
    ops::{Files, Host, RunState},
    outcome::{self, Ending},
    sandbox::{self, SandboxError},
    script_protocol::{DOWNLOADS, FromWorker, Page, RunRequest, Script, ToWorker},
    typescript,
    watchdog::Watchdog,
};

/// The purpose of a worker.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// The directory whose files scripts may use.
    pub(crate) scratch: PathBuf,
    /// Whether to attach to the browser.
    pub(crate) attaches: bool,
}

/// The limits of a worker, and its user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) heap_mb: u32,
    pub(crate) scratch_mb: u32,
    /// The uid and the gid to change to.
    pub(crate) user: Option<(u32, u32)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("script engine: {0}")]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("cannot connect Playwright to the browser: {0}")]
    Attach(String),
    #[error("{subject}: {source}")]
    Io { subject: String, source: io::Error },
}

/// Runs in a worker that has nothing else to do, so that the code and data that its first script
/// needs are already in memory.
const WARMUP_SCRIPT: &str =
    "const list: string[] = []; for (const one of [1]) list.push(`${one}`); return { list };";
const WARMUP_FILE_NAME: &str = "warm-up.ts";
/// The time without a script after which a worker counts as idle. While one call follows the other,
/// warming up would only take time from them.
const WARMUP_DELAY: Duration = Duration::from_millis(20);

/// Compiles and loads [`WARMUP_SCRIPT`].
pub(crate) fn load_warm_up(engine: &mut Engine) -> Result<Function, EngineError> {
    let script = typescript::compile(WARMUP_SCRIPT, WARMUP_FILE_NAME, &engine.scope)
        .map_err(|err| EngineError::new(err.message))?;
    engine.load(WARMUP_FILE_NAME, script)
}

fn failed(error: EngineError) -> Ending {
    Ending::Failed {
        error: error.to_string(),
        stack: String::new(),
    }
}

fn io_error(subject: impl Into<String>) -> impl FnOnce(io::Error) -> WorkerError {
    let subject = subject.into();
    move |source| WorkerError::Io { subject, source }
}

/// Runs a worker until the agent closes the socket. Nothing may be open but the standard
/// descriptors and `socket`, and no other thread may run.
pub(crate) fn run(
    engine: Engine,
    socket: OwnedFd,
    assignment: &Assignment,
    limits: Limits,
) -> Result<(), WorkerError> {
    let started = Instant::now();
    let files = Files::open(&assignment.scratch, limits.scratch_mb)
        .map_err(io_error(assignment.scratch.display().to_string()))?;
    // Before there is another thread, which the C library would have change its user, too.
    sandbox::become_user(limits.user, files.directory())?;
    if assignment.attaches {
        let created = files.directory().create_dir(DOWNLOADS);
        created.map_err(io_error(DOWNLOADS))?;
    }
    // Made here: an event loop that is inherited would be shared with the template.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_error("event loop"))?;
    runtime.block_on(async {
        let stream = std::os::unix::net::UnixStream::from(
            socket.try_clone().map_err(io_error("agent socket"))?,
        );
        stream
            .set_nonblocking(true)
            .map_err(io_error("agent socket"))?;
        let stream = Rc::new(UnixStream::from_std(stream).map_err(io_error("agent socket"))?);
        let host = Rc::new(Host {
            sender: Rc::new(Sender::new(stream.clone())),
            inbox: Rc::new(Inbox::default()),
            files: RefCell::new(files),
            exchanges: RefCell::default(),
            started,
            ready: Cell::new(false),
            detached: Cell::new(false),
            run: RefCell::default(),
        });
        let mut engine = engine;
        let watchdog = Watchdog::start(socket, engine.handle(), engine.context())
            .map_err(io_error("watchdog thread"))?;

        // From here on, only the socket and one open directory are needed.
        sandbox::restrict_worker()?;

        Worker {
            engine,
            host,
            watchdog,
            receiver: Receiver::new(stream),
            heap_mb: limits.heap_mb,
            running: None,
            prepared: None,
            scripts: 0,
            attaches: assignment.attaches,
            announced: false,
            warm_up_at: None,
        }
        .serve()
        .await
    })
}

struct Worker {
    engine: Engine,
    host: Rc<Host>,
    watchdog: Watchdog,
    receiver: Receiver,
    heap_mb: u32,
    running: Option<RunningScript>,
    /// The next script, or why it cannot run.
    prepared: Option<Result<Function, Ending>>,
    /// The number of scripts that were prepared.
    scripts: u64,
    /// Whether scripts can use the browser.
    attaches: bool,
    /// Whether `Ready` was sent to the agent.
    announced: bool,
    /// When to warm up, unless a script comes first.
    warm_up_at: Option<Instant>,
}

/// The time limit of the running script.
struct RunningScript {
    timeout: Duration,
    deadline: Instant,
}

/// An event of the loop.
enum Event {
    Message(Option<ToWorker>),
    /// The engine is idle or has made progress; whether it has more to do or to wait for.
    Engine(Result<bool, EngineError>),
    Deadline,
    Idle,
}

impl Worker {
    async fn serve(mut self) -> Result<(), WorkerError> {
        self.engine.start_process(self.host.clone())?;
        match self.attaches {
            true => self.engine.attach(),
            // Scripts that do not use the browser need nothing more.
            false => self.host.ready.set(true),
        }
        // Whether the engine has something to do or to wait for.
        let mut engine_busy = true;
        loop {
            match self.next_event(engine_busy).await? {
                Event::Message(None) => return Ok(()),
                Event::Message(Some(message)) => {
                    engine_busy = true;
                    if let Some(ending) = self.handle_message(message) {
                        self.finish(ending, self.is_reusable())?;
                    }
                }
                Event::Engine(Ok(more)) => engine_busy = more,
                Event::Engine(Err(err)) => {
                    if !self.announced {
                        return self.fail(err.to_string()).await;
                    }
                }
                Event::Deadline => {
                    let ending = self.timed_out();
                    return self.finish_last(ending).await;
                }
                Event::Idle => {
                    engine_busy = true;
                    self.warm_up()?;
                }
            }
            if self.watchdog.has_fired() {
                let ending = self.timed_out();
                return self.finish_last(ending).await;
            }
            if self.engine.is_stopped() {
                return self.finish_last(self.out_of_memory()).await;
            }
            self.announce()?;
            let ending = self.host.run.borrow_mut().ending.take();
            match ending {
                Some(Ending::Failed { error, stack }) if !self.announced => {
                    return self.fail(format!("{error}\n{stack}")).await;
                }
                Some(ending) => self.finish(ending, self.is_reusable())?,
                None => {}
            }
        }
    }

    /// Waits for the next event.
    async fn next_event(&mut self, engine_busy: bool) -> Result<Event, WorkerError> {
        let Worker {
            engine,
            host,
            receiver,
            running,
            warm_up_at,
            ..
        } = self;
        let deadline = running.as_ref().map(|running| running.deadline);
        Ok(tokio::select! {
            biased;
            // Before the engine, so that a flood of messages cannot delay the deadline.
            () = sleep_until_some(deadline) => Event::Deadline,
            err = host.sender.keep_flushing() => return Err(io_error("agent socket")(err)),
            result = poll_fn(|context| match engine.poll(context) {
                // The engine still waits for the browser, but the host has an event to handle now.
                Poll::Pending if host.has_events() || engine.is_stopped() => Poll::Ready(Ok(true)),
                poll => poll.map_ok(|()| false),
            }), if engine_busy => Event::Engine(result),
            message = receiver.next(), if !host.inbox.is_full() => Event::Message(message?),
            () = sleep_until_some(*warm_up_at) => Event::Idle,
        })
    }

    /// Handles a message. Returns an ending if it is a script that cannot start.
    fn handle_message(&mut self, message: ToWorker) -> Option<Ending> {
        match message {
            ToWorker::Cdp(text) => self.host.inbox.push(text),
            ToWorker::Prepare(script) => self.prepared = Some(self.prepare(&script)),
            ToWorker::Run(request) => return self.start(&request).err(),
            ToWorker::HttpHead(head) => self.host.exchanges.borrow_mut().set_head(*head),
            ToWorker::HttpBody(id, bytes) => self.host.exchanges.borrow_mut().append(id, &bytes),
            ToWorker::HttpEnd(id) => self.host.exchanges.borrow_mut().end(id),
            ToWorker::HttpFailed(failure) => self.host.exchanges.borrow_mut().fail(failure),
        }
        None
    }

    fn prepare(&mut self, script: &Script) -> Result<Function, Ending> {
        self.warm_up_at = None;
        self.scripts += 1;
        // Unique, so that stack traces of an executor's earlier scripts do not use this source map.
        let name = match (self.scripts, script.file_name.rsplit_once('.')) {
            (1, _) => script.file_name.clone(),
            (n, Some((stem, extension))) => format!("{stem}-{n}.{extension}"),
            (n, None) => format!("{}-{n}", script.file_name),
        };
        let compiled =
            typescript::compile(&script.code, &name, &self.engine.scope).map_err(|err| {
                Ending::Failed {
                    error: err.message,
                    stack: err.detail,
                }
            })?;
        self.engine.load(&name, compiled).map_err(failed)
    }

    fn start(&mut self, request: &RunRequest) -> Result<(), Ending> {
        *self.host.run.borrow_mut() = RunState::default();
        let timeout = Duration::from_millis(request.timeout_ms);
        let deadline = Instant::now() + timeout;
        self.running = Some(RunningScript { timeout, deadline });
        let set = self.watchdog.set_deadline(Some(deadline));
        set.map_err(|error| failed(EngineError::new(error)))?;
        let missing = || Err(failed(EngineError::new("no script was prepared")));
        let script = self.prepared.take().unwrap_or_else(missing)?;
        self.engine.run(script, &request.page).map_err(failed)
    }

    fn warm_up(&mut self) -> Result<(), EngineError> {
        self.warm_up_at = None;
        let script = load_warm_up(&mut self.engine)?;
        self.engine.run(script, &Page::Unused)
    }

    fn is_reusable(&self) -> bool {
        !self.host.detached.get()
    }

    /// Sends `Ready` once Playwright has connected.
    fn announce(&mut self) -> Result<(), WorkerError> {
        if self.host.ready.take() {
            self.announced = true;
            self.warm_up_at = Some(Instant::now() + WARMUP_DELAY);
            self.send(FromWorker::Ready)?;
        }
        Ok(())
    }

    /// Reports to the agent how the script ended.
    fn finish(&mut self, ending: Ending, reusable: bool) -> Result<(), WorkerError> {
        let removed = self.watchdog.set_deadline(None);
        removed.map_err(io_error("watchdog timer"))?;
        if self.running.take().is_none() {
            // The warm-up, or no script at all: an error shows in the exit.
            return Ok(());
        }
        let state = std::mem::take(&mut *self.host.run.borrow_mut());
        let RunState {
            result, mut stderr, ..
        } = state;
        for message in outcome::messages(ending, result, &mut stderr, reusable) {
            self.send(message)?;
        }
        Ok(())
    }

    /// Reports the end of the last script: the engine was stopped while it ran, or is out of
    /// memory.
    async fn finish_last(&mut self, ending: Ending) -> Result<(), WorkerError> {
        self.finish(ending, false)?;
        self.drain().await
    }

    /// Reports that the worker cannot connect to the browser, and ends it.
    async fn fail(&mut self, reason: String) -> Result<(), WorkerError> {
        self.send(FromWorker::Failed(reason.clone()))?;
        self.drain().await?;
        Err(WorkerError::Attach(reason))
    }

    fn send(&self, message: FromWorker) -> Result<(), WorkerError> {
        let failed = |err| WorkerError::Receive(ReceiveError::Frame(err));
        self.host.sender.push(message).map_err(failed)
    }

    /// Writes all queued messages. Messages that arrive meanwhile are dropped, so that the two
    /// sides cannot wait for each other.
    async fn drain(&mut self) -> Result<(), WorkerError> {
        loop {
            tokio::select! {
                result = self.host.sender.flush() => return result.map_err(io_error("agent socket")),
                message = self.receiver.next() => if message?.is_none() {
                    return Ok(());
                },
            }
        }
    }

    /// Returns the ending of a script that has exceeded its timeout.
    fn timed_out(&mut self) -> Ending {
        let seconds = self
            .running
            .as_ref()
            .map_or(0.0, |running| running.timeout.as_secs_f64());
        let error = format!("the script exceeded its timeout of {seconds} s and was stopped");
        // It was stopped while it ran code, or it waits for a call into Playwright or for something
        // else.
        let frames = self.watchdog.frames();
        let (state, stack) = if self.watchdog.has_fired() {
            ("It was running:", self.engine.describe(&frames))
        } else {
            ("It was waiting for:", self.engine.pending_calls())
        };
        let stack = match stack.as_str() {
            "" => String::new(),
            stack => format!("{error}\n{state}\n{stack}"),
        };
        Ending::Failed { error, stack }
    }

    fn out_of_memory(&self) -> Ending {
        Ending::Failed {
            error: format!(
                "out of memory: the script exceeded its heap limit of {} MiB",
                self.heap_mb
            ),
            stack: String::new(),
        }
    }
}

async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
