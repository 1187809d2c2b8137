//! The processes under test: control with its local fleet. A further kind of process is another
//! [`ProcessKind`] that can be found and killed here; a further control process is another
//! [`Server`].

use std::{collections::BTreeSet, fs, path::PathBuf, process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use super::{
    checker::SessionRecord,
    history::{Kill, ProcessKind, Recorder, Tenancy},
};
use crate::support::{
    dev::{Dev, State, command},
    processes::{self, Process},
    wait::until,
};

/// The variable that names the state directory in programs of clients, by which they are found.
pub const CLIENT_PROCESS_VARIABLE: &str = "SYSTEM_TEST";

/// A control process that clients can reach.
#[derive(Clone)]
pub struct Server {
    pub base_url: String,
    pub api_key: String,
    pub state_dir: PathBuf,
}

pub struct Installation {
    /// `None` only while it is started again.
    control: Option<Dev>,
    options: Vec<String>,
    servers: watch::Sender<Vec<Server>>,
    /// The logs of the control processes that were killed.
    log: String,
}

impl Installation {
    /// Starts control with a local fleet of up to `hosts` hosts, for `max_sessions` sessions.
    pub async fn start(hosts: usize, max_sessions: usize) -> Installation {
        let hosts = hosts.to_string();
        let options = ["--max-browsers", &hosts, "--idle-hosts", &hosts];
        let options = options.into_iter().chain(["--stop-seconds", "120"]);
        let mut installation = Installation {
            control: None,
            options: options.map(str::to_owned).collect(),
            servers: watch::channel(Vec::new()).0,
            log: String::new(),
        };
        installation.run(State::new()).await;
        let limits = json!({"max_concurrent_sessions": max_sessions});
        let path = "/org/projects/default/limits";
        let changed = installation.control().patch(path, limits).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
        installation
    }

    async fn run(&mut self, state: State) {
        let control = Dev::start_in(state, &self.options()).await;
        let server = Server {
            base_url: control.base_url.clone(),
            api_key: control.api_key.clone(),
            state_dir: control.state_dir(),
        };
        self.control = Some(control);
        self.servers.send_replace(vec![server]);
    }

    fn options(&self) -> Vec<&str> {
        self.options.iter().map(String::as_str).collect()
    }

    pub fn control(&self) -> &Dev {
        self.control.as_ref().expect("it runs")
    }

    /// Returns the log of all control processes.
    pub fn log(&self) -> String {
        format!("{}{}", self.log, self.control().log())
    }

    /// Returns the control processes that clients can reach, whenever they change.
    pub fn servers(&self) -> watch::Receiver<Vec<Server>> {
        self.servers.subscribe()
    }

    /// Returns the running processes of a kind.
    pub fn processes(&self, kind: ProcessKind) -> Vec<Process> {
        let found = processes::naming(&self.control().state_dir()).into_iter();
        found
            .filter(|process| is_of_kind(&process.command, kind))
            .collect()
    }

    /// Kills a process and records that.
    pub async fn kill(&self, kind: ProcessKind, process: &Process, recorder: &Recorder) {
        let sent = recorder.now();
        // Fails if it has just exited by itself.
        let _ = kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGKILL);
        until("the end of a killed process", async || {
            (!processes::is_alive(process.pid)).then_some(())
        })
        .await;
        recorder.kill(Kill {
            kind,
            host: host_of(&process.command),
            sent,
            done: recorder.now(),
        });
    }

    /// Kills control and records that. Starts it again twice on its state directory; the first
    /// start is killed after `limit`, in the middle of the recovery or before any of it.
    pub async fn kill_control(&mut self, limit: Duration, recorder: &Recorder) {
        self.servers.send_replace(Vec::new());
        let sent = recorder.now();
        let state = self.control.take().expect("it runs").kill().await;
        recorder.kill(Kill {
            kind: ProcessKind::Control,
            host: None,
            sent,
            done: recorder.now(),
        });
        self.log += &fs::read_to_string(state.log()).unwrap();
        let mut command = command(&state.path(), &self.options());
        command.envs(state.variables());
        let mut start = tokio::process::Command::from(command);
        start.stdout(Stdio::null()).stderr(Stdio::null());
        let mut start = start.spawn().unwrap();
        let exited = timeout(limit, start.wait()).await;
        assert!(exited.is_err(), "control does not start: {exited:?}");
        start.kill().await.unwrap();
        self.run(state).await;
    }

    /// Waits until the database, the processes and the directories name the same hosts, and the
    /// hosts and the list the same sessions.
    pub async fn assert_hosts_agree(&self) {
        let control = self.control();
        until("hosts that agree", async || {
            let query = "SELECT id, state, session_id FROM hosts WHERE fleet = 'local'";
            let rows = control.rows(query).await;
            let text = |column: &str| -> Vec<Option<String>> {
                let values = rows.iter().map(|row| row.try_get("", column).unwrap());
                values.collect()
            };
            let states = text("state").into_iter().flatten();
            let is_settled = |state: String| ["ready", "leased"].contains(&state.as_str());
            if !states.into_iter().all(is_settled) {
                return None;
            }
            let recorded: BTreeSet<String> = text("id").into_iter().flatten().collect();
            let agents = self.processes(ProcessKind::Agent).into_iter();
            let agents = agents.filter_map(|agent| host_of(&agent.command));
            let entries = fs::read_dir(control.state_dir().join("hosts")).unwrap();
            let directories = entries.map(|entry| entry.unwrap().file_name());
            let directories = directories.filter_map(|name| name.into_string().ok());
            let sessions: BTreeSet<String> = text("session_id").into_iter().flatten().collect();
            let listed = control.get("/browsers?limit=100").await.body;
            let listed = listed.as_array().unwrap().iter();
            let listed = listed.filter_map(|browser| browser["session_id"].as_str());
            let agree = recorded == agents.collect()
                && recorded == directories.collect()
                && sessions == listed.map(str::to_owned).collect();
            agree.then_some(())
        })
        .await;
    }

    /// Stops control; asserts that no process and no directory of a host is left. Returns the
    /// records of all sessions.
    pub async fn finish(mut self, recorder: &Recorder) -> Vec<SessionRecord> {
        let state = self.control.take().expect("it runs").finish().await;
        let hosts = state
            .rows("SELECT id FROM hosts WHERE fleet = 'local'")
            .await;
        assert!(hosts.is_empty(), "{} hosts are recorded", hosts.len());
        let query = "SELECT id, name, state, end_reason, deleted_at, host_id, host_generation \
                     FROM browsers";
        let rows = state.rows(query).await.into_iter();
        rows.map(|row| {
            let text = |column: &str| row.try_get::<Option<String>>("", column).unwrap();
            let number = |column: &str| row.try_get::<Option<i64>>("", column).unwrap();
            SessionRecord {
                id: text("id").expect("an id"),
                name: text("name"),
                state: text("state").expect("a state"),
                end_reason: text("end_reason"),
                ended: number("deleted_at").map(|millis| recorder.time_of(millis)),
                tenancy: text("host_id").map(|host| Tenancy {
                    host,
                    generation: number("host_generation").map_or(0, i64::cast_unsigned),
                }),
            }
        })
        .collect()
    }
}

fn is_of_kind(command: &str, kind: ProcessKind) -> bool {
    let runs_chromium = command.contains("--user-data-dir=");
    match kind {
        ProcessKind::Control => command.contains(" dev "),
        ProcessKind::Agent => command.contains(" agent "),
        ProcessKind::Chromium => runs_chromium && !command.contains("--type="),
        ProcessKind::Display => command.contains("Xvfb "),
        ProcessKind::ChromiumHelper => {
            command.contains("--type=") && !command.contains("--type=renderer")
        }
        ProcessKind::Renderer => command.contains("--type=renderer"),
        ProcessKind::ScriptWorker => command.contains("berth-script"),
        ProcessKind::ClientProcess => command.starts_with("sleep "),
    }
}

/// Returns the host whose directory a command line names.
pub fn host_of(command: &str) -> Option<String> {
    let (_, after) = command.split_once("/hosts/")?;
    let end = after.find(['/', ' ']).unwrap_or(after.len());
    Some(after[..end].to_owned())
}
