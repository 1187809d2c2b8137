//! The installation of one control process with its local fleet.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use tokio::sync::watch;

use super::{
    Installation, Records, Server, host_of, interrupt_start, kill_control_process, listed_sessions,
    prepare_projects, records, text,
};
use crate::{
    flows::system::history::{ProcessKind, Recorder},
    support::{
        dev::{Dev, State, command},
        random::Random,
        wait::until,
    },
};

pub struct LocalInstallation {
    /// `None` only while it is started again.
    control: Option<Dev>,
    options: Vec<String>,
    /// The number of processes that were started.
    started: usize,
    servers: watch::Sender<Vec<Server>>,
    /// The logs of the control processes that were killed.
    log: String,
}

impl LocalInstallation {
    /// Starts control with up to `hosts` hosts, for `max_sessions` sessions.
    pub async fn start(hosts: usize, max_sessions: usize) -> LocalInstallation {
        let hosts = hosts.to_string();
        let options = ["--max-browsers", &hosts, "--idle-hosts", &hosts];
        let options = options.into_iter().chain(["--stop-seconds", "120"]);
        let mut installation = LocalInstallation {
            control: None,
            options: options.map(str::to_owned).collect(),
            started: 0,
            servers: watch::channel(Vec::new()).0,
            log: String::new(),
        };
        installation.run(State::new()).await;
        prepare_projects(installation.control(), max_sessions).await;
        installation
    }

    async fn run(&mut self, state: State) {
        let control = Dev::start_in(state, &self.options()).await;
        self.started += 1;
        let server = Server {
            process: self.started,
            base_url: control.base_url.clone(),
            api_key: control.api_key.clone(),
            directory: control.state_dir(),
        };
        self.control = Some(control);
        self.servers.send_replace(vec![server]);
    }

    fn options(&self) -> Vec<&str> {
        self.options.iter().map(String::as_str).collect()
    }
}

impl Installation for LocalInstallation {
    fn servers(&self) -> watch::Receiver<Vec<Server>> {
        self.servers.subscribe()
    }

    fn control(&self) -> &Dev {
        self.control.as_ref().expect("it runs")
    }

    fn directory(&self) -> PathBuf {
        self.control().state_dir()
    }

    fn has_displays(&self) -> bool {
        true
    }

    fn can_fill(&self) -> bool {
        true
    }

    fn log(&self) -> String {
        format!("{}{}", self.log, self.control().log())
    }

    async fn kill_control(&mut self, random: &mut Random, recorder: &Recorder) {
        self.servers.send_replace(Vec::new());
        let control = self.control.take().expect("it runs");
        let state = kill_control_process(control, recorder).await;
        self.log += &fs::read_to_string(state.log()).unwrap();
        let mut command = command(&state.path(), &self.options());
        command.envs(state.variables());
        interrupt_start(command, random).await;
        self.run(state).await;
    }

    async fn assert_hosts_agree(&self) {
        let control = self.control();
        until("hosts that agree", async || {
            let query = "SELECT id, state, session_id FROM hosts WHERE fleet = 'local'";
            let rows = control.rows(query).await;
            let all = |column: &str| -> Vec<String> {
                rows.iter().filter_map(|row| text(row, column)).collect()
            };
            let is_settled = |state: &String| ["ready", "leased"].contains(&state.as_str());
            if !all("state").iter().all(is_settled) {
                return None;
            }
            let recorded: BTreeSet<String> = all("id").into_iter().collect();
            let agents = self.processes(ProcessKind::Agent).into_iter();
            let agents = agents.filter_map(|agent| host_of(&agent.command));
            let entries = fs::read_dir(control.state_dir().join("hosts")).unwrap();
            let directories = entries.map(|entry| entry.unwrap().file_name());
            let directories = directories.filter_map(|name| name.into_string().ok());
            let sessions: BTreeSet<String> = all("session_id").into_iter().collect();
            let agree = recorded == agents.collect()
                && recorded == directories.collect()
                && sessions == listed_sessions(control).await;
            agree.then_some(())
        })
        .await;
    }

    async fn finish(mut self, recorder: &Recorder) -> Records {
        // Asserts that no process and no directory of a host is left.
        let state = self.control.take().expect("it runs").finish().await;
        let hosts = state
            .rows("SELECT id FROM hosts WHERE fleet = 'local'")
            .await;
        assert!(hosts.is_empty(), "{} hosts are recorded", hosts.len());
        records(&state, recorder, &BTreeMap::new()).await
    }
}
