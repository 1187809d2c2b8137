//! Several control processes on one PostgreSQL database, with hosts that they launch. The agents
//! reach them through a load balancer, the clients reach them directly.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use reqwest::StatusCode;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    Installation, Records, Server, balancer::balance, host_of, interrupt_start,
    kill_control_process, listed_sessions, prepare_projects, records, text,
};
use crate::{
    flows::system::history::{ProcessKind, Recorder},
    support::{
        dev::{BERTH, Dev, State, command_of},
        engine::TestEngine,
        fleet_agent::control_variables,
        postgres::PostgresDatabase,
        processes,
        random::Random,
        s3::S3Server,
        sockets::free_address,
        wait::until,
    },
};

/// The number of control processes.
const CONTROLS: usize = 3;

pub struct RegisteredInstallation {
    /// `None` only while it is started again. The secrets of all are in the directory of the first.
    controls: Vec<Option<Dev>>,
    /// The number of restarts of each.
    restarts: [usize; CONTROLS],
    addresses: [SocketAddr; CONTROLS],
    options: Vec<String>,
    variables: Vec<(&'static str, String)>,
    servers: watch::Sender<Vec<Server>>,
    engine: TestEngine,
    can_fill: bool,
    /// Has the recordings.
    _s3: S3Server,
    /// The logs of the control processes that were killed.
    log: String,
}

impl RegisteredInstallation {
    /// Starts control with up to `hosts` hosts, for `max_sessions` sessions. With an `older` build,
    /// the agents stay of that build, and each control process until it is killed.
    pub async fn start(
        hosts: usize,
        max_sessions: usize,
        older: Option<&Path>,
    ) -> RegisteredInstallation {
        let program = older.unwrap_or(Path::new(BERTH));
        let (s3, engine) = (S3Server::start().await, TestEngine::with_agents(program));
        engine.set_mode("restart");
        let servers = watch::channel(Vec::new()).0;
        let url = balance(servers.subscribe()).await;
        let hosts = hosts.to_string();
        let options = ["--fleet", "registered", "--agents", "0", "--public-url"];
        let options = options.into_iter().chain([url.as_str()]).chain([
            // On a busy machine, a host that is silent for three of them is not lost.
            "--heartbeat-seconds",
            "10",
            "--max-launched-hosts",
            &hosts,
            "--launch-seconds",
            "10",
        ]);
        let mut installation = RegisteredInstallation {
            controls: Vec::new(),
            restarts: [0; CONTROLS],
            addresses: [(); CONTROLS].map(|()| free_address()),
            options: engine.options(&options.collect::<Vec<_>>()),
            variables: s3.variables(),
            servers,
            engine,
            can_fill: false,
            _s3: s3,
            log: String::new(),
        };
        let database = State::with(Some(PostgresDatabase::required()));
        installation.add(program, database).await;
        prepare_projects(installation.first(), max_sessions).await;
        let credentials = installation.first().get("/credentials").await;
        installation.can_fill = credentials.status == StatusCode::OK;
        let secrets = control_variables(installation.first());
        installation.variables.extend(secrets);
        while installation.controls.len() < CONTROLS {
            let beside = installation.first().state_beside();
            installation.add(program, beside).await;
        }
        installation.publish();
        installation
    }

    /// Starts the next control process.
    async fn add(&mut self, program: &Path, state: State) {
        let control = self.run(self.controls.len(), program, state).await;
        self.controls.push(Some(control));
    }

    /// Starts the control process with this number, at its own address.
    async fn run(&self, number: usize, program: &Path, state: State) -> Dev {
        let command = self.command(number, program, &state);
        let mut control = Dev::run(state, command).await;
        control.base_url = format!("http://{}", self.addresses[number]);
        control
    }

    fn command(&self, number: usize, program: &Path, state: &State) -> Command {
        let address = self.addresses[number].to_string();
        let options = self.options.iter().map(String::as_str);
        let options: Vec<&str> = options.chain(["--listen", &address]).collect();
        let mut command = command_of(program, &state.path(), &options);
        command.envs(state.variables()).envs(self.variables.clone());
        command
    }

    /// Makes the processes that run known to clients and agents.
    fn publish(&self) {
        let controls = self.controls.iter().enumerate();
        let servers = controls.filter_map(|(number, control)| {
            let control = control.as_ref()?;
            Some(Server {
                base_url: control.base_url.clone(),
                api_key: control.api_key.clone(),
                directory: self.directory(),
                process: number + CONTROLS * self.restarts[number],
            })
        });
        self.servers.send_replace(servers.collect());
    }

    fn first(&self) -> &Dev {
        self.controls[0].as_ref().expect("it runs")
    }

    /// Returns the hosts that the database knows, with their machines. `None` if the state of one
    /// is about to change.
    async fn settled_hosts(&self) -> Option<BTreeMap<String, Option<String>>> {
        let query = "SELECT state, session_id, labels FROM hosts WHERE state <> 'gone'";
        let rows = self.first().rows(query).await;
        let hosts = rows.iter().map(|row| {
            let state = text(row, "state").expect("a state");
            let is_settled = ["ready", "leased"].contains(&state.as_str());
            is_settled.then(|| (machine_of(&text(row, "labels")), text(row, "session_id")))
        });
        hosts.collect()
    }
}

impl Installation for RegisteredInstallation {
    fn servers(&self) -> watch::Receiver<Vec<Server>> {
        self.servers.subscribe()
    }

    fn control(&self) -> &Dev {
        self.first()
    }

    fn directory(&self) -> PathBuf {
        self.engine.path("")
    }

    fn has_displays(&self) -> bool {
        false
    }

    fn can_fill(&self) -> bool {
        self.can_fill
    }

    fn log(&self) -> String {
        let running = self.controls.iter().flatten();
        let logs: String = running.map(Dev::log).collect();
        format!("{}{logs}", self.log)
    }

    async fn kill_control(&mut self, random: &mut Random, recorder: &Recorder) {
        let number = random.below(self.controls.len());
        let control = self.controls[number].take().expect("it runs");
        self.publish();
        let state = kill_control_process(control, recorder).await;
        self.log += &fs::read_to_string(state.log()).unwrap();
        let program = Path::new(BERTH);
        let command = self.command(number, program, &state);
        interrupt_start(command, random).await;
        self.controls[number] = Some(self.run(number, program, state).await);
        self.restarts[number] += 1;
        self.publish();
    }

    async fn assert_hosts_agree(&self) {
        let control = self.first();
        until("hosts that agree", async || {
            let hosts = self.settled_hosts().await?;
            let recorded: BTreeSet<String> = hosts.keys().cloned().collect();
            let launches = control.rows("SELECT id FROM host_launches").await;
            let launches = launches.iter().filter_map(|row| text(row, "id"));
            let agents = self.processes(ProcessKind::Agent).into_iter();
            let agents = agents.filter_map(|agent| host_of(&agent.command));
            let machines = self.engine.machines().into_iter();
            let machines = machines.filter_map(|machine| name(&machine));
            let sessions: BTreeSet<String> = hosts.values().flatten().cloned().collect();
            let agree = recorded == launches.collect()
                && recorded == agents.collect()
                && recorded == machines.collect()
                && sessions == listed_sessions(control).await;
            agree.then_some(())
        })
        .await;
    }

    async fn finish(mut self, recorder: &Recorder) -> Records {
        until("the end of the programs of clients", async || {
            let programs = self.processes(ProcessKind::ClientProcess);
            programs.is_empty().then_some(())
        })
        .await;
        // The first one last, because the others use its files.
        let mut state = None;
        while let Some(control) = self.controls.pop() {
            state = Some(control.expect("it runs").finish().await);
        }
        let state = state.expect("the first one");
        let hosts = state.rows("SELECT id, labels FROM hosts").await;
        let machine = |row| Some((text(row, "id")?, machine_of(&text(row, "labels"))));
        let machines = hosts.iter().filter_map(machine).collect();
        let records = records(&state, recorder, &machines).await;
        self.engine.kill_machines();
        until("no process of a machine", async || {
            let left = processes::naming(&self.directory());
            left.is_empty().then_some(())
        })
        .await;
        records
    }
}

/// Returns the machine of a launched host with these labels.
fn machine_of(labels: &Option<String>) -> String {
    let labels = labels.as_deref().unwrap_or_default();
    let labels: Value = serde_json::from_str(labels).expect("JSON");
    labels["launch_id"]
        .as_str()
        .expect("a launched host")
        .to_owned()
}

fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}
