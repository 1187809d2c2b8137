//! The processes under test. A further kind of process is another [`ProcessKind`] that can be found
//! here; a further control process is another [`Server`].
//!
//! | module | job |
//! |---|---|
//! | `local` | one control process with its local fleet |
//! | `registered` | several control processes with launched hosts |
//! | `balancer` | an address at which a control process answers |

mod balancer;
mod local;
mod registered;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::{Method, StatusCode};
use sea_orm::QueryResult;
use serde_json::json;
use tokio::{process::Command, sync::watch, time::timeout};

use super::{
    OTHER_MAX_SESSIONS,
    checker::SessionRecord,
    client::PROJECT_HEADER,
    history::{Kill, ProcessKind, Recorder, Tenancy, TestProject},
};
use crate::support::{
    dev::{Answer, Dev, State},
    processes::{self, Process},
    random::Random,
    wait::until,
};

pub use local::LocalInstallation;
pub use registered::RegisteredInstallation;

/// The variable that names the directory of the installation in programs of clients, by which they
/// are found.
pub const CLIENT_PROCESS_VARIABLE: &str = "SYSTEM_TEST";
/// The longest time after which the first start of control after a kill is killed, too.
const MAX_START_MILLIS: usize = 1000;

/// A control process that clients can reach.
#[derive(Clone)]
pub struct Server {
    pub base_url: String,
    pub api_key: String,
    /// The directory that all processes of the installation name, except for control.
    pub directory: PathBuf,
    /// The number of the process, which no other one of the run has.
    pub process: usize,
}

/// The records in the database after a run.
pub struct Records {
    pub sessions: Vec<SessionRecord>,
    /// The ids of the requests to fill a page that succeeded, in the audit log.
    pub audited_fills: BTreeSet<String>,
}

pub trait Installation {
    /// Returns the control processes that clients can reach, whenever they change.
    fn servers(&self) -> watch::Receiver<Vec<Server>>;

    /// Returns a control process that runs.
    fn control(&self) -> &Dev;

    /// Returns the directory that the command line or the environment of each process names.
    fn directory(&self) -> PathBuf;

    /// Returns whether sessions may have a display.
    fn has_displays(&self) -> bool;

    /// Returns whether all builds of the installation can fill pages.
    fn can_fill(&self) -> bool;

    /// Returns the log of all control processes.
    fn log(&self) -> String;

    /// Kills a random control process and records that. Starts it again twice; the first start is
    /// killed in the middle of the recovery or before any of it.
    async fn kill_control(&mut self, random: &mut Random, recorder: &Recorder);

    /// Waits until the database, the processes and the directories name the same hosts, and the
    /// hosts and the list the same sessions.
    async fn assert_hosts_agree(&self);

    /// Stops control; asserts that no process is left. Returns its records.
    async fn finish(self, recorder: &Recorder) -> Records;

    /// Returns the running processes of a kind.
    fn processes(&self, kind: ProcessKind) -> Vec<Process> {
        let found = processes::naming(&self.directory()).into_iter();
        found
            .filter(|process| is_of_kind(&process.command, kind))
            .collect()
    }
}

/// Waits until the API counts the browsers and the waiting clients of a pool as the database does,
/// and each browser has a host. Does nothing if the pool is deleted.
pub async fn assert_pool_agrees(control: &Dev, path: &str) {
    until("counts of the pool that agree", async || {
        let pool = control.get(path).await;
        if pool.status == StatusCode::NOT_FOUND {
            return Some(());
        }
        let id = pool.body["id"].as_str()?;
        let ids = async |table: &str, column: &str, condition: &str| -> Vec<String> {
            let query =
                format!("SELECT {column} FROM {table} WHERE pool_id = '{id}' AND {condition}");
            let rows = control.rows(&query).await;
            rows.iter().filter_map(|row| text(row, column)).collect()
        };
        let idle = ids("pool_browsers", "id", "state = 'idle'").await;
        let acquired = ids("browsers", "id", "state = 'active'").await;
        let waiting = ids("pool_waiters", "pool_id", "true").await;
        let hosts = ids("hosts", "session_id", "state = 'leased'").await;
        let has_host = |browser: &String| hosts.contains(browser);
        let agree = pool.body["available_count"] == idle.len()
            && pool.body["acquired_count"] == acquired.len()
            && pool.body["waiting_count"] == waiting.len()
            && waiting.is_empty()
            && idle.iter().chain(&acquired).all(has_host);
        agree.then_some(())
    })
    .await;
}

/// Kills a process and records that.
pub async fn kill_process(kind: ProcessKind, process: &Process, recorder: &Recorder) {
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

/// Kills a control process and records that. Returns its state directory.
async fn kill_control_process(control: Dev, recorder: &Recorder) -> State {
    let sent = recorder.now();
    let state = control.kill().await;
    recorder.kill(Kill {
        kind: ProcessKind::Control,
        host: None,
        sent,
        done: recorder.now(),
    });
    state
}

/// Starts control and kills it after a random time, in which it must not exit.
async fn interrupt_start(command: std::process::Command, random: &mut Random) {
    let limit = Duration::from_millis(random.below(MAX_START_MILLIS) as u64);
    let mut start = Command::from(command);
    start.stdout(Stdio::null()).stderr(Stdio::null());
    let mut start = start.spawn().unwrap();
    let exited = timeout(limit, start.wait()).await;
    assert!(exited.is_err(), "control does not start: {exited:?}");
    start.kill().await.unwrap();
}

/// Returns the records of a run. `directories` are the directories of hosts that are not named as
/// the hosts.
async fn records(
    state: &State,
    recorder: &Recorder,
    directories: &BTreeMap<String, String>,
) -> Records {
    let query = "SELECT b.id AS id, b.name AS name, p.name AS project, b.state AS state, \
                 end_reason, b.deleted_at AS deleted_at, host_id, host_generation \
                 FROM browsers b JOIN projects p ON p.id = b.project_id";
    let sessions = state.rows(query).await.into_iter();
    let sessions = sessions.map(|row| {
        let number = |column: &str| row.try_get::<Option<i64>>("", column).unwrap();
        let project = text(&row, "project").expect("a project");
        SessionRecord {
            id: text(&row, "id").expect("an id"),
            name: text(&row, "name"),
            project: TestProject::of_name(&project).expect("a known project"),
            state: text(&row, "state").expect("a state"),
            end_reason: text(&row, "end_reason"),
            ended: number("deleted_at").map(|millis| recorder.time_of(millis)),
            tenancy: text(&row, "host_id").map(|host| Tenancy {
                host: directories.get(&host).cloned().unwrap_or(host),
                generation: number("host_generation").map_or(0, i64::cast_unsigned),
            }),
        }
    });
    let sessions = sessions.collect();
    let query = "SELECT request_id FROM audit_logs \
                 WHERE action = 'fill_credentials' AND status = 200";
    let audited = state.rows(query).await;
    Records {
        sessions,
        audited_fills: audited
            .iter()
            .filter_map(|row| text(row, "request_id"))
            .collect(),
    }
}

/// Creates the other project, and sets the limits of sessions of both.
async fn prepare_projects(control: &Dev, max_sessions: usize) {
    let other = json!({"name": TestProject::Other.name()});
    let created = control.post("/org/projects", other).await;
    assert_eq!(created.status, 201, "{}", created.body);
    if std::env::var_os("CHAOS_MUTANT").is_some() {
        let body = "DELETE FROM totp_steps";
        match control.postgres() {
            None => for (n, e) in [("m1", "INSERT"), ("m2", "UPDATE")] {
                control.sql(&format!("CREATE TRIGGER {n} AFTER {e} ON totp_steps BEGIN {body}; END")).await;
            },
            Some(_) => control.sql(&format!("CREATE FUNCTION m() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$; CREATE TRIGGER m AFTER INSERT OR UPDATE ON totp_steps FOR EACH ROW EXECUTE FUNCTION m()")).await,
        }
    }
    for project in TestProject::ALL {
        let max_sessions = match project {
            TestProject::Default => max_sessions,
            TestProject::Other => OTHER_MAX_SESSIONS,
        };
        let limits = json!({"max_concurrent_sessions": max_sessions});
        let path = format!("/org/projects/{}/limits", project.name());
        let changed = control.patch(&path, limits).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
    }
}

/// Returns the ids of the sessions that control lists, of both projects.
async fn listed_sessions(control: &Dev) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for project in TestProject::ALL {
        let request = control.request(Method::GET, "/browsers?limit=100");
        let request = request.header(PROJECT_HEADER, project.name());
        let listed = Answer::of(request).await.body;
        let listed = listed.as_array().unwrap().iter();
        let found = listed.filter_map(|browser| browser["session_id"].as_str());
        ids.extend(found.map(str::to_owned));
    }
    ids
}

fn text(row: &QueryResult, column: &str) -> Option<String> {
    row.try_get("", column).unwrap()
}

fn is_of_kind(command: &str, kind: ProcessKind) -> bool {
    let runs_chromium = command.contains("--user-data-dir=");
    match kind {
        ProcessKind::Control => command.contains(" dev "),
        // A machine is a shell that starts it.
        ProcessKind::Agent => command.contains(" agent ") && !command.starts_with("sh "),
        ProcessKind::Chromium => runs_chromium && !command.contains("--type="),
        ProcessKind::Display => command.contains("Xvfb "),
        ProcessKind::ChromiumHelper => {
            command.contains("--type=") && !command.contains("--type=renderer")
        }
        ProcessKind::Renderer => command.contains("--type=renderer"),
        ProcessKind::ScriptWorker => command.contains("berth-script"),
        ProcessKind::ClientProcess => command.starts_with("sleep 600"),
    }
}

/// Returns the host whose directory a command line names: of a launched host, that of the machine.
pub fn host_of(command: &str) -> Option<String> {
    let mut places = ["/hosts/", "/machines/"].into_iter();
    let (_, after) = places.find_map(|place| command.split_once(place))?;
    let end = after.find(['/', ' ']).unwrap_or(after.len());
    Some(after[..end].to_owned())
}
