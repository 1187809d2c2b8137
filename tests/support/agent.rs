//! A real `berth agent` in a folder of its own, on a free port.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use nix::{sys::signal::Signal, unistd::Uid};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{
    processes,
    wait::{in_time, until},
};

pub const TOKEN: &str = "the-token-of-the-agent-under-test";

/// How the agent is started.
pub struct Start {
    folder: TempDir,
    arguments: Vec<OsString>,
    token: bool,
    log: &'static str,
    limit: Option<Limit>,
    programs: Option<PathBuf>,
}

/// What the system allows it.
#[derive(Clone, Copy)]
enum Limit {
    OpenFiles(u32),
    InotifyWatches(u32),
    OwnFiles,
    Replays(u32),
}

/// A running agent; dropping it kills it.
pub struct TestAgent {
    folder: TempDir,
    process: Child,
    pub base_url: String,
    pub http: reqwest::Client,
}

impl Start {
    /// Chromium without a display, which starts fastest.
    pub fn headless() -> Self {
        Self::on_screen().with(["--headless"])
    }

    /// For routes that have nothing to do with a browser: what is started in its place ends at once, each time.
    pub fn without_browser() -> Self {
        Self::headless().with(["--chromium", "/bin/true"])
    }

    /// Chromium on an X server, as by default.
    pub fn on_screen() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("berth-agent-")
                .tempdir()
                .expect("a temporary folder"),
            arguments: Vec::new(),
            token: true,
            log: "debug",
            limit: None,
            programs: None,
        }
    }

    /// A screen and no browser on it.
    pub async fn screen_alone() -> TestAgent {
        let start = Self::on_screen().with(["--chromium", "/bin/true"]);
        let agent = start.listening().await;
        until("a screen", async || {
            let health = agent.ok(agent.get("/health")).await;
            (health["display"]["state"] == "up").then_some(())
        })
        .await;
        agent
    }

    pub fn with<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.arguments.extend(arguments.map(OsString::from));
        self
    }

    pub fn without_token(mut self) -> Self {
        self.token = false;
        self
    }

    /// What it logs; by default all but the smallest things.
    pub fn logging(mut self, filter: &'static str) -> Self {
        self.log = filter;
        self
    }

    /// What a shell or a service manager may allow by default.
    pub fn with_soft_limit_of_open_files(mut self, limit: u32) -> Self {
        self.limit = Some(Limit::OpenFiles(limit));
        self
    }

    /// In a user namespace of its own, so that the limit is nobody else's.
    pub fn with_limit_of_inotify_watches(mut self, limit: u32) -> Self {
        self.limit = Some(Limit::InotifyWatches(limit));
        self
    }

    /// With a disk of its own for recordings, of so many KiB.
    pub fn with_room_for_replays(mut self, kib: u32) -> Self {
        self.limit = Some(Limit::Replays(kib));
        self
    }

    /// Programs that are not told by their path are looked for in this folder alone.
    pub fn with_programs_in(mut self, folder: &Path) -> Self {
        self.programs = Some(folder.to_owned());
        self
    }

    /// Without what root may do to any file: permissions hold for it as for everybody.
    pub fn without_rights_over_files(mut self) -> Self {
        self.limit = Some(Limit::OwnFiles);
        self
    }

    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The command with everything set; its output is the caller's.
    pub fn command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_berth");
        let mut command = match self.limit {
            Some(Limit::OpenFiles(limit)) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -Sn {limit} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(program);
                shell
            }
            Some(Limit::InotifyWatches(limit)) => {
                let mut unshare = Command::new("unshare");
                let setting = "/proc/sys/user/max_inotify_watches";
                let script = format!("echo {limit} > {setting} && exec \"$0\" \"$@\"");
                unshare.args(["--user", "--map-root-user", "sh", "-c"]);
                unshare.arg(script).arg(program);
                unshare
            }
            Some(Limit::Replays(kib)) => {
                let mut unshare = Command::new("unshare");
                let folder = self.state_dir().join("replays");
                let folder = folder.display();
                let script = format!(
                    "mkdir -p {folder} && mount -t tmpfs -o size={kib}k none {folder} && exec \"$0\" \"$@\""
                );
                unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
                unshare.arg(script).arg(program);
                unshare
            }
            // Only root has them.
            Some(Limit::OwnFiles) if Uid::effective().is_root() => {
                let mut setpriv = Command::new("setpriv");
                let rights = "-dac_override,-dac_read_search,-fowner,-fsetid";
                setpriv.args(["--inh-caps", "-all", "--bounding-set", rights]);
                setpriv.arg(program);
                setpriv
            }
            Some(Limit::OwnFiles) | None => Command::new(program),
        };
        command
            .args([
                "agent",
                "--listen",
                "127.0.0.1:0",
                "--json",
                "--log",
                self.log,
                "--state-dir",
            ])
            .arg(self.state_dir())
            .args(&self.arguments)
            .env_remove("PULSE_SERVER")
            .kill_on_drop(true);
        if self.token {
            command.env("BERTH_AGENT_TOKEN", TOKEN);
        }
        if let Some(programs) = &self.programs {
            command.env("PATH", programs);
        }
        command
    }

    /// Starts it and waits until it listens.
    pub async fn listening(self) -> TestAgent {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join("agent.log"))
            .expect("a log file");
        let mut process = self
            .command()
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the agent starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("standard output is piped");
        in_time(
            "the agent's line",
            BufReader::new(stdout).read_line(&mut line),
        )
        .await
        .expect("standard output can be read");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let log = fs::read_to_string(self.folder.path().join("agent.log"));
            panic!(
                "the agent said {line:?} and logged {}",
                log.unwrap_or_default()
            )
        });
        TestAgent {
            base_url: told["base_url"].as_str().expect("a base URL").to_owned(),
            folder: self.folder,
            process,
            http: reqwest::Client::new(),
        }
    }

    /// Starts it and waits until its Chromium answers.
    pub async fn ready(self) -> TestAgent {
        let agent = self.listening().await;
        agent.ready().await;
        agent
    }
}

impl TestAgent {
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    /// The URL of a WebSocket route.
    pub fn ws_url(&self, path: &str) -> String {
        self.url(path).replacen("http", "ws", 1)
    }

    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("agent.log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path)).bearer_auth(TOKEN)
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    pub fn put(&self, path: &str) -> RequestBuilder {
        self.request(Method::PUT, path)
    }

    /// Sends it and reads status and JSON; an answer that is none is told as a string.
    pub async fn answer(&self, request: RequestBuilder) -> (StatusCode, Value) {
        let response = in_time("an answer", request.send())
            .await
            .expect("the agent answers");
        let status = response.status();
        let text = in_time("a body", response.text()).await.expect("a body");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, body)
    }

    /// The answer to a request that must succeed.
    pub async fn ok(&self, request: RequestBuilder) -> Value {
        let (status, body) = self.answer(request).await;
        assert!(status.is_success(), "{status}: {body}\n{}", self.log());
        body
    }

    /// Waits until Chromium answers and returns `/json/version`.
    pub async fn ready(&self) -> Value {
        self.ok(self.get("/json/version")).await
    }

    /// `GET /chromium` once `wanted` holds of it.
    pub async fn chromium_when(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, async || {
            let status = self.ok(self.get("/chromium")).await;
            wanted(&status).then_some(status)
        })
        .await
    }

    /// A number in `GET /chromium`, which must be there.
    pub async fn chromium_number(&self, field: &str) -> u64 {
        let status = self
            .chromium_when("Chromium running", |status| status[field].is_u64())
            .await;
        status[field].as_u64().expect("it is a number")
    }

    /// The X server's process, once there is one.
    pub async fn display_pid(&self) -> u32 {
        let pid = until("a display", async || {
            let health = self.ok(self.get("/health")).await;
            health["display"]["pid"].as_u64()
        });
        u32::try_from(pid.await).expect("a process")
    }

    /// Asks it to stop, and asserts that it ends well and leaves no process.
    pub async fn stop(mut self) {
        processes::signal(self.pid(), Signal::SIGTERM);
        let status = in_time("the agent's end", self.process.wait())
            .await
            .expect("it can be waited for");
        assert!(status.success(), "{status}\n{}", self.log());
        self.nothing_left().await;
    }

    /// As [`Self::stop`]; what it has left is kept.
    pub async fn stop_keeping(mut self) -> TempDir {
        processes::signal(self.pid(), Signal::SIGTERM);
        let status = in_time("the agent's end", self.process.wait()).await;
        let status = status.expect("it can be waited for");
        assert!(status.success(), "{status}\n{}", self.log());
        self.nothing_left().await;
        self.folder
    }

    /// Kills it without a chance to clean up, and asserts that no process is left.
    pub async fn kill(mut self) -> TempDir {
        self.process.kill().await.expect("it can be killed");
        self.nothing_left().await;
        self.folder
    }

    /// Starts an agent again on the folder a killed one has left.
    pub fn again(folder: TempDir) -> Start {
        Start {
            folder,
            arguments: Vec::new(),
            token: true,
            log: "debug",
            limit: None,
            programs: None,
        }
    }

    async fn nothing_left(&self) {
        until("no process left", async || {
            processes::naming(&self.state_dir())
                .is_empty()
                .then_some(())
        })
        .await;
    }
}
