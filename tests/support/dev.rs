//! Runs `berth dev` with its own state directory, on a free port. In a run of the tests that has a
//! PostgreSQL server, with a database there, else with SQLite.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use sea_orm::QueryResult;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout};

use super::postgres::PostgresDatabase;
use super::processes;
use super::requests::wrong_fields;
pub use super::state::State;
use super::wait::until;

/// The program under test.
pub const BERTH: &str = env!("CARGO_BIN_EXE_berth");

pub struct Dev {
    pub base_url: String,
    pub api_key: String,
    pub http: Client,
    child: Child,
    _stdout: BufReader<ChildStdout>,
    state: State,
}

impl Dev {
    pub async fn start() -> Dev {
        Dev::start_in(State::new(), &[]).await
    }

    pub async fn with(options: &[&str]) -> Dev {
        Dev::start_in(State::new(), options).await
    }

    pub async fn start_in(state: State, options: &[&str]) -> Dev {
        let mut command = command(&state.path(), options);
        command.envs(state.variables());
        Dev::run(state, command).await
    }

    /// Starts with a variable in the environment of the server.
    pub async fn start_with_variable(name: &str, value: &str) -> Dev {
        Dev::start_with_variables(State::new(), &[], vec![(name, value.to_owned())]).await
    }

    /// Starts with variables in the environment of the server.
    pub async fn start_with_variables(
        state: State,
        options: &[&str],
        variables: Vec<(&str, String)>,
    ) -> Dev {
        let mut command = command(&state.path(), options);
        command.envs(state.variables()).envs(variables);
        Dev::run(state, command).await
    }

    /// Starts a server on the same database, with another state directory.
    pub async fn beside(&self, options: &[&str], variables: Vec<(&str, String)>) -> Dev {
        Dev::start_with_variables(self.state_beside(), options, variables).await
    }

    /// Returns another state directory with the same database.
    pub fn state_beside(&self) -> State {
        self.state.beside()
    }

    /// Starts a server that may have this many open files, like its children.
    pub async fn with_open_files(limit: u32) -> Dev {
        let state = State::new();
        let mut shell = command_with_limit(&format!("-n {limit}"), &state.path());
        shell.envs(state.variables());
        Dev::run(state, shell).await
    }

    /// Starts with a pipe as standard error that is not read. Returns its other end.
    pub async fn with_unread_stderr() -> (Dev, ChildStderr) {
        let state = State::new();
        let mut command = command(&state.path(), &[]);
        command.envs(state.variables());
        let mut dev = Dev::spawn(state, command, Stdio::piped()).await;
        let stderr = dev.child.stderr.take().unwrap();
        (dev, stderr)
    }

    /// Runs the command of a server with the state directory.
    pub async fn run(state: State, command: Command) -> Dev {
        let log = fs::File::create(state.log()).unwrap();
        Dev::spawn(state, command, log.into()).await
    }

    async fn spawn(state: State, command: Command, stderr: Stdio) -> Dev {
        let mut child = tokio::process::Command::from(command)
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).await.unwrap();
        let Ok(announced) = serde_json::from_str::<BTreeMap<String, String>>(&line) else {
            let log = fs::read_to_string(state.log()).unwrap();
            panic!("berth dev did not start: {line}\n{log}");
        };
        Dev {
            base_url: announced["base_url"].clone(),
            api_key: announced["api_key"].clone(),
            http: Client::new(),
            child,
            _stdout: stdout,
            state,
        }
    }

    /// Returns a request with the API key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.api_key)
    }

    /// Returns a request without credentials.
    pub fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base_url))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::PATCH, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    /// Creates a headless browser.
    pub async fn browser(&self, mut options: Value) -> Value {
        options["headless"] = true.into();
        let answer = self.post("/browsers", options).await;
        assert_eq!(
            answer.status,
            StatusCode::CREATED,
            "{}\n{}",
            answer.body,
            self.log()
        );
        answer.body
    }

    pub fn state_dir(&self) -> PathBuf {
        self.state.path()
    }

    /// Returns the variables that select the server's database, for other commands.
    pub fn variables(&self) -> Option<(&'static str, String)> {
        self.state.variables()
    }

    /// Returns the server's database, if it is on PostgreSQL.
    pub fn postgres(&self) -> Option<&PostgresDatabase> {
        self.state.database.as_deref()
    }

    /// Makes the database reject updates of a browser to `state` until [`Dev::allow`].
    pub async fn refuse(&self, state: &str) {
        let condition = format!("NEW.state = '{state}'");
        self.refuse_change("UPDATE ON browsers", &condition).await;
    }

    /// Makes the database reject a change of rows that meet a condition until [`Dev::allow`].
    pub async fn refuse_change(&self, change: &str, condition: &str) {
        let statement = match self.postgres() {
            None => format!(
                "CREATE TRIGGER refuse BEFORE {change} WHEN {condition} \
                 BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            ),
            Some(_) => format!(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql \
                 AS $$ BEGIN RAISE EXCEPTION 'database or disk is full'; END $$; \
                 CREATE TRIGGER refuse BEFORE {change} \
                 FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
            ),
        };
        self.sql(&statement).await;
    }

    pub async fn allow(&self) {
        let statement = match self.postgres() {
            None => "DROP TRIGGER refuse",
            Some(_) => "DROP FUNCTION refuse CASCADE",
        };
        self.sql(statement).await;
    }

    /// Runs a statement on the server's database.
    pub async fn sql(&self, statement: &str) {
        self.state.sql(statement).await;
    }

    /// Returns the state of a browser's record.
    pub async fn recorded_state(&self, browser: &str) -> String {
        let query = format!("SELECT state FROM browsers WHERE id = '{browser}'");
        let rows = self.rows(&query).await;
        rows[0].try_get("", "state").unwrap()
    }

    /// Waits until the number of hosts in this state is `count`.
    pub async fn hosts_are(&self, state: &str, count: i64) {
        let query = format!("SELECT count(*) AS number FROM hosts WHERE state = '{state}'");
        until("hosts", async || {
            let rows = self.rows(&query).await;
            let number: i64 = rows[0].try_get("", "number").unwrap();
            (number == count).then_some(())
        })
        .await;
    }

    /// Returns the rows of a query on the server's database.
    pub async fn rows(&self, query: &str) -> Vec<QueryResult> {
        self.state.rows(query).await
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("it runs").cast_signed())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.state.log()).unwrap_or_default()
    }

    /// Returns all descendants that use the state directory, with their command lines.
    pub fn descendants(&self) -> Vec<(Pid, String)> {
        let found = processes::naming(&self.state_dir()).into_iter();
        found
            .filter(|process| Some(process.pid) != self.child.id())
            .map(|process| (Pid::from_raw(process.pid.cast_signed()), process.command))
            .collect()
    }

    /// Returns the descendants with `part` in their command line.
    pub fn descendants_with(&self, part: &str) -> Vec<Pid> {
        let found = self.descendants().into_iter();
        found
            .filter(|(_, command)| command.contains(part))
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Returns the only agent. A child that it has just forked has the same command line.
    pub async fn only_agent(&self) -> Pid {
        until("only one agent", async || {
            match self.descendants_with(" agent ")[..] {
                [agent] => Some(agent),
                _ => None,
            }
        })
        .await
    }

    /// Returns the directory of the host that runs the browser, or ran it last.
    pub fn host_dir(&self, browser: &str) -> PathBuf {
        let hosts = fs::read_dir(self.state_dir().join("hosts")).unwrap();
        let mut hosts = hosts.map(|host| host.unwrap().path());
        let found = hosts.find(|host| {
            fs::read_to_string(host.join("session")).is_ok_and(|session| session == browser)
        });
        found.expect("a host of the browser")
    }

    /// Sends SIGTERM; asserts that no process and no directory of a host is left.
    pub async fn finish(mut self) -> State {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        let status = self.child.wait().await.unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
        self.assert_nothing_left().await;
        let hosts = fs::read_dir(self.state_dir().join("hosts"));
        let remaining = hosts.map_or(0, |entries| entries.count());
        assert_eq!(remaining, 0, "directories of hosts are left");
        self.into_state()
    }

    /// Kills the server with SIGKILL; asserts that its descendants end too.
    pub async fn crash(mut self) -> State {
        self.child.kill().await.unwrap();
        self.assert_nothing_left().await;
        self.into_state()
    }

    /// Kills the server with SIGKILL, and does not wait for its descendants.
    pub async fn kill(mut self) -> State {
        self.child.kill().await.unwrap();
        self.into_state()
    }

    /// Kills the server with SIGABRT, for which the kernel may write a core file.
    pub async fn abort(mut self) -> (ExitStatus, State) {
        kill(self.pid(), Signal::SIGABRT).unwrap();
        let status = self.child.wait().await.unwrap();
        self.assert_nothing_left().await;
        (status, self.into_state())
    }

    async fn assert_nothing_left(&self) {
        let directory = self.state_dir();
        until("no process left", async || {
            processes::naming(&directory).is_empty().then_some(())
        })
        .await;
    }

    fn into_state(mut self) -> State {
        std::mem::replace(&mut self.state, State::with(None))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // For tests that failed; the others have awaited the exit.
        let _ = self.child.start_kill();
    }
}

/// Returns the command of `berth dev`, on a free port unless the options name one.
pub fn command(state_dir: &Path, options: &[&str]) -> Command {
    command_of(Path::new(BERTH), state_dir, options)
}

/// Returns the same command, with a limit of the shell, such as `-n 100`.
pub fn command_with_limit(limit: &str, state_dir: &Path) -> Command {
    let inner = command(state_dir, &[]);
    let mut shell = without_settings(Path::new("sh"));
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(inner.get_program());
    shell.args(inner.get_args());
    shell
}

/// Returns the same command of another build of the program.
pub fn command_of(program: &Path, state_dir: &Path, options: &[&str]) -> Command {
    let mut command = without_settings(program);
    command.args(["dev", "--state-dir"]);
    command.arg(state_dir).args(options);
    if !options.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command
}

/// Returns a command of the program, without Berth's settings in its environment.
pub fn berth(arguments: &[&str]) -> Command {
    let mut command = without_settings(Path::new(BERTH));
    command.args(arguments);
    command
}

/// Returns a command without Berth's settings in its environment.
fn without_settings(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    let is_setting = |name: &str| name.starts_with("BERTH_") || name.starts_with("AWS_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    command.env_remove("PULSE_SERVER");
    command
}

/// A response, read completely.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    /// The JSON body, or null if the body is empty.
    pub body: Value,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = match bytes.as_ref() {
            [] => Value::Null,
            json => serde_json::from_slice(json).unwrap(),
        };
        Answer {
            status,
            headers,
            body,
        }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the sorted names of the fields in an error's details.
    pub fn bad_fields(&self) -> Vec<&str> {
        wrong_fields(&self.body)
    }

    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status.as_u16(), self.body["code"].as_str()),
            (status, Some(code)),
            "{}",
            self.body
        );
        assert!(
            self.body["message"].is_string() && self.body["details"].is_array(),
            "{}",
            self.body
        );
        assert!(self.body.get("inner_error").is_some(), "{}", self.body);
    }
}
