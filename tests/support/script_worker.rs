//! A script worker connected to a browser directly, without the agent's relay.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use berth::system::{
    process::session::Credentials,
    script::{
        template::{ForkRequest, TemplateOptions, WorkerTemplate},
        worker::{
            Events, Exit, FromWorker, Page, RunOutcome, RunRequest, Script, ScriptWorker, ToWorker,
        },
    },
};
use futures::{SinkExt, StreamExt};
use nix::unistd::{Gid, Uid};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use super::{
    agent::{Start, TOKEN, TestAgent},
    processes::NOBODY,
    wait::in_time,
};

/// Returns the path of the bundle that snapshots are made of.
pub fn bundle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/dist/playwright.js")
}

/// The worker program of this build. Its snapshot is created if it is missing or stale.
static WORKER: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_berth-script"));
    let bundle = bundle();
    let made = Command::new(&program)
        .args(["snapshot", "--if-stale"])
        .arg(&bundle)
        .status()
        .expect("the worker starts");
    assert!(
        made.success(),
        "no snapshot of {}: run `make build`",
        bundle.display()
    );
    program
});

/// Returns the worker programs to test: this build's, and the one of `BERTH_TEST_V8_WORKER`.
pub fn engines() -> Vec<(&'static str, PathBuf)> {
    let mut engines = vec![("quickjs", WORKER.clone())];
    if let Some(v8) = std::env::var_os("BERTH_TEST_V8_WORKER") {
        engines.push(("v8", v8.into()));
    }
    engines
}

/// Starts an agent whose Chromium runs as this test's user: these workers have no relay that sets
/// another download directory than their own, which is private.
pub async fn agent() -> TestAgent {
    let own = Uid::effective().to_string();
    Start::headless()
        .with(["--warm-workers", "0", "--chromium-user", &own])
        .ready()
        .await
}

/// Returns a template of workers whose scratch directories are temporary directories.
pub fn template(program: &Path) -> WorkerTemplate {
    WorkerTemplate::new(TemplateOptions {
        program: program.to_owned(),
        scratch: std::env::temp_dir(),
        heap_mb: 128,
        scratch_mb: 64,
        user: Some(Credentials {
            uid: Uid::from_raw(NOBODY),
            gid: Gid::from_raw(NOBODY),
            groups: Vec::new(),
        }),
    })
}

/// A worker that is attached to a browser.
pub struct AttachedWorker {
    worker: ScriptWorker,
    events: Events,
    browser: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub scratch: TempDir,
}

/// The outcome and the output of a script.
#[derive(Debug)]
pub struct RunResult {
    /// `None` if the worker exited before a result.
    pub outcome: Option<RunOutcome>,
    pub stdout: String,
    pub stderr: String,
}

impl RunResult {
    pub fn result(&self) -> &str {
        match &self.outcome {
            Some(RunOutcome {
                success: true,
                result: Some(result),
                ..
            }) => result.get(),
            _ => panic!("no result: {self:?}"),
        }
    }

    pub fn error(&self) -> &str {
        match &self.outcome {
            Some(RunOutcome {
                success: false,
                error: Some(error),
                ..
            }) => error,
            _ => panic!("no error: {self:?}"),
        }
    }
}

/// A script with its options.
pub struct Request {
    pub code: String,
    pub page_target: Option<String>,
    pub timeout_ms: u64,
}

pub fn request(code: &str) -> Request {
    Request {
        code: code.to_owned(),
        page_target: None,
        timeout_ms: 50_000,
    }
}

impl AttachedWorker {
    pub async fn to(agent: &TestAgent, program: &Path) -> AttachedWorker {
        Self::forked_from(&template(program), agent).await
    }

    pub async fn forked_from(template: &WorkerTemplate, agent: &TestAgent) -> AttachedWorker {
        let scratch = tempfile::Builder::new()
            .prefix("berth-scratch-")
            .tempdir()
            .expect("a temporary directory");
        let mut request = agent.ws_url("/cdp").into_client_request().expect("a URL");
        let bearer = HeaderValue::from_str(&format!("Bearer {TOKEN}")).expect("a header");
        request.headers_mut().insert("authorization", bearer);
        let (browser, _) = in_time("a handshake", connect_async(request))
            .await
            .expect("the browser answers");
        let name = scratch
            .path()
            .file_name()
            .expect("a name")
            .to_string_lossy();
        let request = ForkRequest {
            scratch: name.into_owned(),
            attaches: true,
        };
        let forked = template.fork(request).await;
        let (worker, events) = forked.expect("it starts");
        let mut attached = AttachedWorker {
            worker,
            events,
            browser,
            scratch,
        };
        match attached.next().await {
            Some(FromWorker::Ready) => attached,
            other => panic!("it did not attach: {other:?}, {:?}", attached.end().await),
        }
    }

    pub fn pid(&self) -> u32 {
        self.worker.pid()
    }

    pub async fn run(&mut self, code: &str) -> RunResult {
        self.run_request(request(code)).await
    }

    /// Starts a script without waiting for its result.
    pub async fn start(&mut self, request: Request) {
        let script = Script {
            code: request.code,
            file_name: "script.ts".to_owned(),
        };
        let run = RunRequest {
            page: request.page_target.map_or(Page::Fresh, Page::Tab),
            timeout_ms: request.timeout_ms,
        };
        self.send(ToWorker::Prepare(script)).await;
        self.send(ToWorker::Run(run)).await;
    }

    pub async fn run_request(&mut self, request: Request) -> RunResult {
        self.start(request).await;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let outcome = loop {
            match self.next().await {
                Some(FromWorker::Stdout(bytes)) => stdout.extend_from_slice(&bytes),
                Some(FromWorker::Stderr(bytes)) => stderr.extend_from_slice(&bytes),
                Some(FromWorker::Done(outcome)) => break Some(*outcome),
                Some(other) => panic!("unexpected: {other:?}"),
                None => break None,
            }
        };
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        RunResult {
            outcome,
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }

    /// Relays CDP messages until the worker sends any other message; `None` after its exit.
    async fn next(&mut self) -> Option<FromWorker> {
        in_time("a message of the worker", async {
            loop {
                tokio::select! {
                    event = self.events.next() => match event.expect("complete frames") {
                        Some(FromWorker::Cdp(text)) => {
                            let text = String::from_utf8(text.into()).expect("CDP is text");
                            self.browser.send(Message::Text(text.into())).await.expect("the browser is connected");
                        }
                        event => return event,
                    },
                    message = self.browser.next() => match message {
                        Some(Ok(Message::Text(text))) => self.send(ToWorker::Cdp(text.into())).await,
                        Some(Ok(_)) => {}
                        other => panic!("the browser is gone: {other:?}"),
                    },
                }
            }
        })
        .await
    }

    async fn send(&mut self, message: ToWorker) {
        // `next` reports a worker that has exited.
        let _ = self.worker.send(message).await;
    }

    /// Waits for the worker to exit.
    pub async fn end(self) -> Exit {
        in_time("the worker's exit", self.worker.wait()).await
    }

    pub async fn kill(self) -> Exit {
        in_time("the worker's exit", self.worker.kill()).await
    }

    /// Closes the socket without a signal, as the death of an agent does. The returned value reaps
    /// the process.
    pub fn abandon(self) -> impl Sized {
        self.worker.without_socket()
    }
}
