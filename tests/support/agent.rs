//! Runs `berth agent` with its own state directory, on a free port.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
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

/// Runs the program in a user namespace that has all ids and permits no other one below it. Another
/// process has to write the maps; a second `exec` as root regains root's rights.
const WITHOUT_USER_NAMESPACES: &str = r#"
    own=$(readlink /proc/$$/ns/user)
    (until [ "$(readlink /proc/$$/ns/user)" != "$own" ]; do :; done
     for map in gid_map uid_map; do echo 0 0 4294967295 > /proc/$$/$map; done) &
    exec unshare --user sh -c 'until [ "$(id -u)" = 0 ]; do :; done
        exec sh -c "echo 0 > /proc/sys/user/max_user_namespaces && exec \"\$0\" \"\$@\"" "$0" "$@"
    ' "$0" "$@"
"#;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_berth");
pub const TOKEN: &str = "the-token-of-the-agent-under-test";

/// The options of an agent that is not started yet.
pub struct Start {
    directory: TempDir,
    program: PathBuf,
    arguments: Vec<OsString>,
    token: bool,
    log: &'static str,
    limit: Option<Limit>,
    programs: Option<PathBuf>,
    variables: Vec<(&'static str, String)>,
}

/// A limit that the operating system sets.
#[derive(Clone, Copy)]
enum Limit {
    OpenFiles(u32),
    InotifyWatches(u32),
    OwnFiles,
    Mounts,
    Replays(u32),
    SharedMemory(&'static str),
    UserNamespaces,
}

/// A running agent. Dropping it kills the process.
pub struct TestAgent {
    directory: TempDir,
    process: Child,
    pub base_url: String,
    pub http: reqwest::Client,
}

impl Start {
    /// Starts Chromium without a display, which is fastest.
    pub fn headless() -> Self {
        Self::on_screen().with(["--headless"])
    }

    /// Starts a program that exits at once in place of Chromium: for routes that need no browser.
    pub fn without_browser() -> Self {
        Self::headless().with(["--chromium", "/bin/true"])
    }

    /// Starts Chromium on an X server, as by default.
    pub fn on_screen() -> Self {
        Self {
            directory: tempfile::Builder::new()
                .prefix("berth-agent-")
                .tempdir()
                .expect("a temporary directory"),
            program: PROGRAM.into(),
            arguments: Vec::new(),
            token: true,
            log: "debug",
            limit: None,
            programs: None,
            variables: Vec::new(),
        }
    }

    /// Gives client processes a user and directories of their own. Needs root.
    pub fn isolated(self) -> Self {
        self.with(["--process-isolation", "required"])
    }

    /// Puts the state directory below this one instead of `/tmp`.
    pub fn with_directory_below(mut self, parent: &str) -> Self {
        let builder = tempfile::Builder::new()
            .prefix("berth-agent-")
            .tempdir_in(parent);
        self.directory = builder.expect("a temporary directory");
        self
    }

    /// Starts an agent with a screen and without a browser, and waits for the screen.
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

    /// Starts this program, which is berth under another name.
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Sets the log filter. The default is `debug`.
    pub fn logging(mut self, filter: &'static str) -> Self {
        self.log = filter;
        self
    }

    /// Sets the soft limit of open files, as a shell or a service manager does.
    pub fn with_soft_limit_of_open_files(mut self, limit: u32) -> Self {
        self.limit = Some(Limit::OpenFiles(limit));
        self
    }

    /// Runs the agent in its own user namespace, so that the limit applies to it alone.
    pub fn with_limit_of_inotify_watches(mut self, limit: u32) -> Self {
        self.limit = Some(Limit::InotifyWatches(limit));
        self
    }

    /// Mounts a separate file system of this size for recordings.
    pub fn with_room_for_replays(mut self, kib: u32) -> Self {
        self.limit = Some(Limit::Replays(kib));
        self
    }

    /// Mounts another `/dev/shm`, with these arguments of mount(8). Needs root.
    pub fn with_shared_memory(mut self, mount: &'static str) -> Self {
        self.limit = Some(Limit::SharedMemory(mount));
        self
    }

    /// Makes the kernel refuse new user namespaces. Needs root.
    pub fn without_user_namespaces(mut self) -> Self {
        self.limit = Some(Limit::UserNamespaces);
        self
    }

    /// Sets a variable in the environment of the agent.
    pub fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Sets `PATH` to this directory alone.
    pub fn with_programs_in(mut self, directory: &Path) -> Self {
        self.programs = Some(directory.to_owned());
        self
    }

    /// Drops root's rights over files, so that permissions apply to the agent.
    pub fn without_rights_over_files(mut self) -> Self {
        self.limit = Some(Limit::OwnFiles);
        self
    }

    /// Drops root's right to mount.
    pub fn without_right_to_mount(mut self) -> Self {
        self.limit = Some(Limit::Mounts);
        self
    }

    /// Sets the mode of the directory that contains the state directory.
    pub fn with_directory_mode(self, mode: u32) -> Self {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.directory.path(), mode).expect("it belongs to the test");
        self
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Returns the complete command. The caller decides about its output.
    pub fn command(&self) -> Command {
        let program = &self.program;
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
                let directory = self.state_dir().join("replays/1");
                let directory = directory.display();
                let script = format!(
                    "mkdir -p {directory} && mount -t tmpfs -o size={kib}k none {directory} && exec \"$0\" \"$@\""
                );
                unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
                unshare.arg(script).arg(program);
                unshare
            }
            Some(Limit::SharedMemory(mount)) => {
                let mut unshare = Command::new("unshare");
                let script = format!("mount {mount} /dev/shm && exec \"$0\" \"$@\"");
                unshare
                    .args(["--mount", "sh", "-c"])
                    .arg(script)
                    .arg(program);
                unshare
            }
            Some(Limit::UserNamespaces) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", WITHOUT_USER_NAMESPACES]).arg(program);
                shell
            }
            Some(Limit::Mounts) => {
                let mut setpriv = Command::new("setpriv");
                setpriv.args(["--inh-caps", "-all", "--bounding-set", "-sys_admin"]);
                setpriv.arg(program);
                setpriv
            }
            // Only root has these rights.
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
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        if let Some(programs) = &self.programs {
            command.env("PATH", programs);
        }
        command
    }

    /// Starts the agent and waits until it listens.
    pub async fn listening(self) -> TestAgent {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.directory.path().join("agent.log"))
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
            "the agent's first line",
            BufReader::new(stdout).read_line(&mut line),
        )
        .await
        .expect("standard output can be read");
        let announced: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let log = fs::read_to_string(self.directory.path().join("agent.log"));
            panic!(
                "the agent printed {line:?} and logged {}",
                log.unwrap_or_default()
            )
        });
        TestAgent {
            base_url: announced["base_url"]
                .as_str()
                .expect("a base URL")
                .to_owned(),
            directory: self.directory,
            process,
            http: reqwest::Client::new(),
        }
    }

    /// Starts the agent and waits until its Chromium answers.
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

    /// Returns the URL of a WebSocket route.
    pub fn ws_url(&self, path: &str) -> String {
        self.url(path).replacen("http", "ws", 1)
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Returns the directory of the first session.
    pub fn session_dir(&self) -> PathBuf {
        self.state_dir().join("sessions/1")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("agent.log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    /// Returns a request with the agent's token.
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

    /// Sends a request; returns the status and the JSON body. A body that is not JSON is a string.
    pub async fn answer(&self, request: RequestBuilder) -> (StatusCode, Value) {
        let response = in_time("an answer", request.send())
            .await
            .expect("the agent answers");
        let status = response.status();
        let text = in_time("a body", response.text()).await.expect("a body");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, body)
    }

    /// Sends a request, asserts success, and returns the body.
    pub async fn ok(&self, request: RequestBuilder) -> Value {
        let (status, body) = self.answer(request).await;
        assert!(status.is_success(), "{status}: {body}\n{}", self.log());
        body
    }

    /// Waits until Chromium answers and returns `/json/version`.
    pub async fn ready(&self) -> Value {
        self.ok(self.get("/json/version")).await
    }

    /// Polls `GET /chromium` until it matches.
    pub async fn chromium_when(
        &self,
        description: &str,
        matches: impl Fn(&Value) -> bool,
    ) -> Value {
        until(description, async || {
            let status = self.ok(self.get("/chromium")).await;
            matches(&status).then_some(status)
        })
        .await
    }

    /// Returns a numeric field of `GET /chromium` once it has a value.
    pub async fn chromium_number(&self, field: &str) -> u64 {
        let status = self
            .chromium_when("Chromium running", |status| status[field].is_u64())
            .await;
        status[field].as_u64().expect("it is a number")
    }

    /// Waits for the X server and returns its process id.
    pub async fn display_pid(&self) -> u32 {
        let pid = until("a display", async || {
            let health = self.ok(self.get("/health")).await;
            health["display"]["pid"].as_u64()
        });
        u32::try_from(pid.await).expect("a process")
    }

    /// Sends SIGTERM; asserts that the agent exits successfully and leaves no process.
    pub async fn stop(self) {
        self.stop_keeping().await;
    }

    /// Stops the agent like [`Self::stop`] and returns its directory.
    pub async fn stop_keeping(self) -> TempDir {
        processes::signal(self.pid(), Signal::SIGTERM);
        self.exits().await
    }

    /// Sends SIGUSR1, which has the agent replaced, or end when no session uses it.
    pub fn request_restart(&self) {
        processes::signal(self.pid(), Signal::SIGUSR1);
    }

    /// Waits until the agent exits by itself, asserts that it succeeds and leaves no process, and
    /// returns its directory.
    pub async fn exits(mut self) -> TempDir {
        let status = in_time("the agent's exit", self.process.wait()).await;
        let status = status.expect("it can be waited for");
        assert!(status.success(), "{status}\n{}", self.log());
        self.assert_no_process_left().await;
        self.directory
    }

    /// Kills the agent with SIGKILL, asserts that no process is left, and returns its directory.
    pub async fn kill(mut self) -> TempDir {
        self.process.kill().await.expect("it can be killed");
        self.assert_no_process_left().await;
        self.directory
    }

    /// Returns options to start another agent in the directory of a stopped one.
    pub fn again(directory: TempDir) -> Start {
        Start {
            directory,
            program: PROGRAM.into(),
            arguments: Vec::new(),
            token: true,
            log: "debug",
            limit: None,
            programs: None,
            variables: Vec::new(),
        }
    }

    async fn assert_no_process_left(&self) {
        until("no process left", async || {
            processes::naming(&self.state_dir())
                .is_empty()
                .then_some(())
        })
        .await;
    }
}
