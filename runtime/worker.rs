//! The worker: attaches Playwright to the browser behind the socket, then runs what it is given, one script after the other.

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
    stop::Stopper,
    typescript,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The directory whose files scripts may use.
    #[arg(long)]
    scratch: PathBuf,
    /// The bound of the engine's heap.
    #[arg(long, default_value_t = 256)]
    heap_mb: u32,
    /// The bound of what scripts may write in their directory.
    #[arg(long, default_value_t = 256)]
    scratch_mb: u32,
    /// Who to become when started as root.
    #[arg(long, default_value = "nobody")]
    user: String,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the engine does not start: {0}")]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("Playwright does not attach to the browser: {0}")]
    Attach(String),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

const REHEARSAL: &str =
    "const list: string[] = []; for (const one of [1]) list.push(`${one}`); return { list };";
const REHEARSAL_NAME: &str = "rehearsal.ts";

fn failed(error: EngineError) -> Ending {
    Ending::Failed {
        error: error.to_string(),
        stack: String::new(),
    }
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> WorkerError {
    let what = what.into();
    move |source| WorkerError::Io { what, source }
}

pub fn run(options: Options) -> Result<(), WorkerError> {
    let started = Instant::now();
    sandbox::close_inherited().map_err(io_error("the inherited descriptors"))?;
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
        .map_err(io_error("the event loop"))?;
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
        let stopper = Stopper::start(socket, engine.handle(), engine.context())
            .map_err(io_error("the watching thread"))?;

        // From here on nothing needs more than the socket and one open directory.
        let memory = sandbox::memory_bound(options.heap_mb);
        sandbox::become_user(&options.user, host.files.borrow().directory())?;
        sandbox::limit(memory, options.scratch_mb)?;
        host.files
            .borrow()
            .directory()
            .create_dir(DOWNLOADS)
            .map_err(io_error(DOWNLOADS))?;
        sandbox::refuse_other_system_calls()?;

        Worker {
            engine,
            host,
            stopper,
            receiver: Receiver::new(stream),
            heap_mb: options.heap_mb,
            running: None,
            prepared: None,
            runs: 0,
            announced: false,
        }
        .serve()
        .await
    })
}

struct Worker {
    engine: Engine,
    host: Rc<Host>,
    stopper: Stopper,
    receiver: Receiver,
    heap_mb: u32,
    running: Option<Running>,
    /// The script that runs next.
    prepared: Option<Result<Function, Ending>>,
    /// How many scripts there have been.
    runs: u64,
    /// Whether the agent knows that Playwright is connected.
    announced: bool,
}

struct Running {
    timeout: Duration,
    deadline: Instant,
}

/// What happened in one turn of the loop.
enum Turn {
    Message(Option<ToWorker>),
    /// And whether there is more for it to do or to wait for.
    Engine(Result<bool, EngineError>),
    Deadline,
}

impl Worker {
    async fn serve(mut self) -> Result<(), WorkerError> {
        self.engine.attach();
        // Whether the engine has something to do or to wait for.
        let mut engine_busy = true;
        loop {
            match self.turn(engine_busy).await? {
                Turn::Message(None) => return Ok(()),
                Turn::Message(Some(message)) => {
                    engine_busy = true;
                    if let Some(ending) = self.accept(message) {
                        self.finish(ending, self.is_reusable())?;
                    }
                }
                Turn::Engine(Ok(more)) => engine_busy = more,
                Turn::Engine(Err(err)) => {
                    if !self.announced {
                        return self.give_up(err.to_string()).await;
                    }
                }
                Turn::Deadline => {
                    let ending = self.overdue();
                    return self.finish_for_good(ending).await;
                }
            }
            if self.stopper.has_fired() {
                let ending = self.overdue();
                return self.finish_for_good(ending).await;
            }
            if self.engine.is_stopped() {
                return self.finish_for_good(self.out_of_memory()).await;
            }
            self.announce()?;
            let ending = self.host.run.borrow_mut().ending.take();
            match ending {
                Some(Ending::Failed { error, stack }) if !self.announced => {
                    return self.give_up(format!("{error}\n{stack}")).await;
                }
                Some(ending) => self.finish(ending, self.is_reusable())?,
                None => {}
            }
        }
    }

    async fn turn(&mut self, engine_busy: bool) -> Result<Turn, WorkerError> {
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
            // Ahead of the engine, so that a flood of messages cannot hide that a script is over its time.
            () = sleep => Turn::Deadline,
            err = host.sender.keep_flushing() => return Err(io_error("the agent's socket")(err)),
            result = poll_fn(|context| match engine.poll(context) {
                // The engine goes on to wait for the browser; what it has just told the host is to be looked at now.
                Poll::Pending if host.has_news() || engine.is_stopped() => Poll::Ready(Ok(true)),
                poll => poll.map_ok(|()| false),
            }), if engine_busy => Turn::Engine(result),
            message = receiver.next(), if !host.inbox.is_full() => Turn::Message(message?),
        })
    }

    /// Takes a message; an ending where it is a script that does not even start.
    fn accept(&mut self, message: ToWorker) -> Option<Ending> {
        match message {
            ToWorker::Cdp(text) => self.host.inbox.push(text),
            ToWorker::Prepare(script) => self.prepared = Some(self.prepare(&script)),
            ToWorker::Run(request) => return self.start(&request).err(),
        }
        None
    }

    fn prepare(&mut self, script: &Script) -> Result<Function, Ending> {
        self.runs += 1;
        // Traces of an executor's earlier scripts must not be read with this one's source map.
        let name = match (self.runs, script.file_name.rsplit_once('.')) {
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
        self.running = Some(Running { timeout, deadline });
        self.stopper.set_deadline(Some(deadline));
        let nothing = || Err(failed(EngineError::new("there is no script to run")));
        let script = self.prepared.take().unwrap_or_else(nothing)?;
        self.engine.run(script, &request.page).map_err(failed)
    }

    /// Goes the way of a script that does nothing: what the first one touches is in memory then, and costs it no time.
    fn rehearse(&mut self) -> Result<(), EngineError> {
        let script = typescript::compile(REHEARSAL, REHEARSAL_NAME, &self.engine.scope)
            .map_err(|err| EngineError::new(err.message))?;
        let script = self.engine.load(REHEARSAL_NAME, script)?;
        self.engine.run(script, &Page::Unused)
    }

    fn is_reusable(&self) -> bool {
        !self.host.detached.get()
    }

    fn announce(&mut self) -> Result<(), WorkerError> {
        if self.host.attached.take() {
            self.rehearse()?;
            self.announced = true;
            self.say(FromWorker::Attached)?;
        }
        Ok(())
    }

    /// Tells the agent how the script ended.
    fn finish(&mut self, ending: Ending, reusable: bool) -> Result<(), WorkerError> {
        self.stopper.set_deadline(None);
        if self.running.take().is_none() {
            // Without a script there is nobody to tell; what happened shows in the exit.
            return Ok(());
        }
        let state = std::mem::take(&mut *self.host.run.borrow_mut());
        let RunState {
            result, mut stderr, ..
        } = state;
        for message in outcome::messages(ending, result, &mut stderr, reusable) {
            self.say(message)?;
        }
        Ok(())
    }

    /// The same for the last script of this worker: its engine was stopped somewhere, or is out of memory.
    async fn finish_for_good(&mut self, ending: Ending) -> Result<(), WorkerError> {
        self.finish(ending, false)?;
        self.say_the_rest().await
    }

    async fn give_up(&mut self, reason: String) -> Result<(), WorkerError> {
        self.say(FromWorker::Failed(reason.clone()))?;
        self.say_the_rest().await?;
        Err(WorkerError::Attach(reason))
    }

    fn say(&self, message: FromWorker) -> Result<(), WorkerError> {
        let failed = |err| WorkerError::Receive(ReceiveError::Frame(err));
        self.host.sender.push(message).map_err(failed)
    }

    /// Waits until all is written. What comes in meanwhile is let go, so that neither side waits for the other.
    async fn say_the_rest(&mut self) -> Result<(), WorkerError> {
        loop {
            tokio::select! {
                result = self.host.sender.flush() => return result.map_err(io_error("the agent's socket")),
                message = self.receiver.next() => if message?.is_none() {
                    return Ok(());
                },
            }
        }
    }

    fn overdue(&mut self) -> Ending {
        let seconds = self
            .running
            .as_ref()
            .map_or(0.0, |running| running.timeout.as_secs_f64());
        let error = format!("the script ran longer than its {seconds} seconds and was stopped");
        // It was at work and was stopped there, or it waits for a call of Playwright's, or for something of its own.
        let frames = self.stopper.frames();
        let (doing, place) = if self.stopper.has_fired() {
            ("It was running:", self.engine.describe(&frames))
        } else {
            ("It was waiting for:", self.engine.pending_calls())
        };
        let stack = match place.as_str() {
            "" => String::new(),
            place => format!("{error}\n{doing}\n{place}"),
        };
        Ending::Failed { error, stack }
    }

    fn out_of_memory(&self) -> Ending {
        Ending::Failed {
            error: format!(
                "out of memory: the script used more than its {} MB of heap",
                self.heap_mb
            ),
            stack: String::new(),
        }
    }
}
