//! The worker: attaches Playwright to the browser behind the socket, then runs what it is given, one script after the other.

use std::{
    cell::RefCell,
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
    engine::{Engine, EngineError},
    ops::{Files, Host, RunState},
    outcome::{self, Ending},
    sandbox::{self, SandboxError},
    script_protocol::{FromWorker, RunRequest, ToWorker},
    snapshot::{self, SnapshotError},
    stop::Stopper,
    typescript,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The directory whose files scripts may use.
    #[arg(long)]
    scratch: PathBuf,
    /// Where the browser puts its downloads, for scripts to read.
    #[arg(long)]
    downloads: Option<PathBuf>,
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

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> WorkerError {
    let what = what.into();
    move |source| WorkerError::Io { what, source }
}

pub fn run(options: Options) -> Result<(), WorkerError> {
    let started = Instant::now();
    let socket: OwnedFd = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(io_error("standard input"))?;
    let heap = snapshot::load()?;
    let files = Files::open(
        &options.scratch,
        options.downloads.as_deref(),
        options.scratch_mb,
    )
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
            attached: RefCell::new(false),
            run: RefCell::default(),
        });
        let mut engine = Engine::start(heap, options.heap_mb, host.clone())?;
        let stopper =
            Stopper::start(socket, engine.handle()).map_err(io_error("the watching thread"))?;

        // From here on nothing needs more than the socket and two open directories.
        sandbox::become_user(&options.user, host.files.borrow().scratch_directory())?;
        sandbox::limit(options.heap_mb, options.scratch_mb)?;

        Worker {
            engine,
            host,
            stopper,
            receiver: Receiver::new(stream),
            heap_mb: options.heap_mb,
            running: None,
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
    Engine(Result<(), EngineError>),
    /// The engine has said something and waits for more.
    News,
    Deadline,
}

impl Worker {
    async fn serve(mut self) -> Result<(), WorkerError> {
        self.engine.attach();
        // Whether the engine has something to do or to wait for.
        let mut engine_busy = true;
        loop {
            let turn = self.turn(engine_busy).await?;
            match turn {
                Turn::Message(None) => return Ok(()),
                Turn::Message(Some(message)) => {
                    engine_busy = true;
                    if let Some(ending) = self.accept(message) {
                        self.finish(ending, true).await?;
                    }
                }
                Turn::Engine(result) => {
                    engine_busy = result.is_err();
                    if let Err(err) = result
                        && !self.announced
                    {
                        return self.give_up(err.to_string()).await;
                    }
                }
                Turn::News => {}
                Turn::Deadline => {
                    let ending = self.overdue();
                    return self.finish(ending, false).await;
                }
            }
            if self.stopper.has_fired() {
                let ending = self.overdue();
                return self.finish(ending, false).await;
            }
            if self.engine.is_terminating() {
                return self.finish(self.out_of_memory(), false).await;
            }
            self.announce().await?;
            let ending = self.host.run.borrow_mut().ending.take();
            match ending {
                Some(Ending::Failed { error, stack }) if !self.announced => {
                    return self.give_up(format!("{error}\n{stack}")).await;
                }
                Some(ending) => self.finish(ending, true).await?,
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
            announced,
            ..
        } = self;
        let engine_turn = poll_fn(|context| match engine.poll(context) {
            Poll::Ready(result) => Poll::Ready(Turn::Engine(result)),
            // What it waits for, a timer say, may be long in coming.
            Poll::Pending if host.has_news(*announced) => Poll::Ready(Turn::News),
            Poll::Pending => Poll::Pending,
        });
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
            turn = engine_turn, if engine_busy => turn,
            message = receiver.next(), if !host.inbox.is_full() => Turn::Message(message?),
        })
    }

    /// Takes a message; an ending where it is a script that does not even start.
    fn accept(&mut self, message: ToWorker) -> Option<Ending> {
        match message {
            ToWorker::Cdp(text) => self.host.inbox.push(text),
            ToWorker::CdpClosed(reason) => self.host.inbox.close(reason),
            ToWorker::Run(request) => return self.start(&request).err(),
        }
        None
    }

    fn start(&mut self, request: &RunRequest) -> Result<(), Ending> {
        *self.host.run.borrow_mut() = RunState::default();
        self.runs += 1;
        // Traces of an executor's earlier scripts must not be read with this one's source map.
        let name = match (self.runs, request.file_name.rsplit_once('.')) {
            (1, _) => request.file_name.clone(),
            (n, Some((stem, extension))) => format!("{stem}-{n}.{extension}"),
            (n, None) => format!("{}-{n}", request.file_name),
        };
        let timeout = Duration::from_millis(request.timeout_ms);
        let deadline = Instant::now() + timeout;
        self.running = Some(Running { timeout, deadline });
        self.stopper.set_deadline(Some(deadline));

        let script =
            typescript::compile(&request.code, &name, &self.engine.scope).map_err(|err| {
                Ending::Failed {
                    error: err.message,
                    stack: err.detail,
                }
            })?;
        let target = request.page_target.as_deref().unwrap_or_default();
        self.engine
            .run(&name, script, target)
            .map_err(|err| Ending::Failed {
                error: err.to_string(),
                stack: String::new(),
            })
    }

    async fn announce(&mut self) -> Result<(), WorkerError> {
        if !self.announced && *self.host.attached.borrow() {
            self.announced = true;
            self.send(FromWorker::Attached).await?;
        }
        Ok(())
    }

    /// Tells the agent how the script ended. A worker that is not `reusable` ends afterwards.
    async fn finish(&mut self, ending: Ending, reusable: bool) -> Result<(), WorkerError> {
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
            self.send(message).await?;
        }
        Ok(())
    }

    async fn give_up(&mut self, reason: String) -> Result<(), WorkerError> {
        self.send(FromWorker::Failed(reason.clone())).await?;
        Err(WorkerError::Attach(reason))
    }

    async fn send(&self, message: FromWorker) -> Result<(), WorkerError> {
        let failed = |err: String| io_error("the agent's socket")(io::Error::other(err));
        // Make room first: what a script has queued must not keep its own ending from being said.
        self.host
            .sender
            .flush()
            .await
            .map_err(io_error("the agent's socket"))?;
        self.host
            .sender
            .send(message)
            .map_err(|err| failed(err.to_string()))?;
        self.host
            .sender
            .flush()
            .await
            .map_err(io_error("the agent's socket"))
    }

    fn overdue(&self) -> Ending {
        let seconds = self
            .running
            .as_ref()
            .map_or(0.0, |running| running.timeout.as_secs_f64());
        Ending::Failed {
            error: format!("the script ran longer than its {seconds} seconds and was stopped"),
            stack: String::new(),
        }
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
