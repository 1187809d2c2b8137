//! The worker: connects Playwright to the browser over the socket, then runs scripts one at a time.
//!
//! ```text
//! start ── attach ── warm-up ── Attached ─┬─ Prepare ── Run ── Done ─┐
//!             │                           └──────────────────────────┘
//!             └── Failed (exit)      deadline, out of memory: Done (exit)
//! ```
//!
//! [`Worker`] owns all state. It waits in one loop for the deadline, the socket, the engine and
//! messages.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    os::fd::{AsFd, OwnedFd},
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
    snapshot::{self, SnapshotError},
    typescript,
    watchdog::Watchdog,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The directory whose files scripts may use
    #[arg(long)]
    scratch: PathBuf,
    /// The limit of the engine's heap, in MiB
    #[arg(long, default_value_t = 256)]
    heap_mb: u32,
    /// The limit of the files in that directory, in MiB
    #[arg(long, default_value_t = 256)]
    scratch_mb: u32,
    /// The uid to change to when started as root
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// The only group of that user
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("cannot start the engine: {0}")]
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

/// Runs before a worker is announced, so that the code and data that the first script needs are
/// already in memory.
const WARMUP_SCRIPT: &str =
    "const list: string[] = []; for (const one of [1]) list.push(`${one}`); return { list };";
const WARMUP_FILE_NAME: &str = "warm-up.ts";

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

/// Runs a worker until the agent closes the socket.
pub(crate) fn run(options: Options) -> Result<(), WorkerError> {
    let started = Instant::now();
    sandbox::close_inherited().map_err(io_error("inherited descriptors"))?;
    let socket: OwnedFd = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(io_error("standard input"))?;
    let heap = snapshot::load()?;
    let files = Files::open(&options.scratch, options.scratch_mb)
        .map_err(io_error(options.scratch.display().to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_error("event loop"))?;
    runtime.block_on(async {
        let stream = std::os::unix::net::UnixStream::from(
            socket.try_clone().map_err(io_error("standard input"))?,
        );
        stream
            .set_nonblocking(true)
            .map_err(io_error("standard input"))?;
        let stream = Rc::new(UnixStream::from_std(stream).map_err(io_error("standard input"))?);
        let host = Rc::new(Host {
            sender: Rc::new(Sender::new(stream.clone())),
            inbox: Rc::new(Inbox::default()),
            files: RefCell::new(files),
            started,
            attached: Cell::new(false),
            detached: Cell::new(false),
            run: RefCell::default(),
        });
        let mut engine = Engine::start(heap, options.heap_mb, host.clone())?;
        let watchdog = Watchdog::start(socket, engine.handle(), engine.context())
            .map_err(io_error("watchdog thread"))?;

        // From here on, only the socket and one open directory are needed.
        let memory = sandbox::memory_limit(options.heap_mb);
        let user = options.uid.zip(options.gid);
        sandbox::become_user(user, host.files.borrow().directory())?;
        sandbox::set_limits(memory, options.scratch_mb)?;
        host.files
            .borrow()
            .directory()
            .create_dir(DOWNLOADS)
            .map_err(io_error(DOWNLOADS))?;
        sandbox::restrict_system_calls()?;

        Worker {
            engine,
            host,
            watchdog,
            receiver: Receiver::new(stream),
            heap_mb: options.heap_mb,
            running: None,
            prepared: None,
            scripts: 0,
            announced: false,
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
    /// Whether `Attached` was sent to the agent.
    announced: bool,
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
}

impl Worker {
    async fn serve(mut self) -> Result<(), WorkerError> {
        self.engine.attach();
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
            ..
        } = self;
        let deadline = running.as_ref().map(|running| running.deadline);
        let sleep = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        Ok(tokio::select! {
            biased;
            // Before the engine, so that a flood of messages cannot delay the deadline.
            () = sleep => Event::Deadline,
            err = host.sender.keep_flushing() => return Err(io_error("agent socket")(err)),
            result = poll_fn(|context| match engine.poll(context) {
                // The engine still waits for the browser, but the host has an event to handle now.
                Poll::Pending if host.has_events() || engine.is_stopped() => Poll::Ready(Ok(true)),
                poll => poll.map_ok(|()| false),
            }), if engine_busy => Event::Engine(result),
            message = receiver.next(), if !host.inbox.is_full() => Event::Message(message?),
        })
    }

    /// Handles a message. Returns an ending if it is a script that cannot start.
    fn handle_message(&mut self, message: ToWorker) -> Option<Ending> {
        match message {
            ToWorker::Cdp(text) => self.host.inbox.push(text),
            ToWorker::Prepare(script) => self.prepared = Some(self.prepare(&script)),
            ToWorker::Run(request) => return self.start(&request).err(),
        }
        None
    }

    fn prepare(&mut self, script: &Script) -> Result<Function, Ending> {
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
        self.watchdog.set_deadline(Some(deadline));
        let missing = || Err(failed(EngineError::new("no script was prepared")));
        let script = self.prepared.take().unwrap_or_else(missing)?;
        self.engine.run(script, &request.page).map_err(failed)
    }

    /// Starts [`WARMUP_SCRIPT`].
    fn warm_up(&mut self) -> Result<(), EngineError> {
        let script = typescript::compile(WARMUP_SCRIPT, WARMUP_FILE_NAME, &self.engine.scope)
            .map_err(|err| EngineError::new(err.message))?;
        let script = self.engine.load(WARMUP_FILE_NAME, script)?;
        self.engine.run(script, &Page::Unused)
    }

    fn is_reusable(&self) -> bool {
        !self.host.detached.get()
    }

    /// Once Playwright has connected, warms up and sends `Attached`.
    fn announce(&mut self) -> Result<(), WorkerError> {
        if self.host.attached.take() {
            self.warm_up()?;
            self.announced = true;
            self.send(FromWorker::Attached)?;
        }
        Ok(())
    }

    /// Reports to the agent how the script ended.
    fn finish(&mut self, ending: Ending, reusable: bool) -> Result<(), WorkerError> {
        self.watchdog.set_deadline(None);
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
