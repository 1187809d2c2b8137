//! Many clients of one installation, whose processes are killed at random. Afterwards the clients'
//! own history, the database, the hosts and the processes have to agree.
//!
//! | module | job |
//! |---|---|
//! | `client` | creates, uses, fills and ends sessions at random |
//! | `logins` | the logins that sessions are filled with, and the site that receives them |
//! | `observe` | reads from inside a session where it runs and which markers it has |
//! | `killer` | kills random processes |
//! | `installation` | the processes under test, and their records |
//! | `history` | the calls and kills of a run |
//! | `checker` | finds contradictions in a history |

mod checker;
mod client;
mod history;
mod installation;
mod killer;
mod logins;
mod observe;
mod postgres;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::join_all;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use self::{
    checker::{Rules, Run, Violation},
    client::{Client, POOL},
    history::{DeliveredValue, Operation, Outcome, Recorder, TestProject},
    installation::{Installation, LocalInstallation, assert_pool_agrees},
    killer::Killer,
    logins::LoginPages,
};
use crate::support::random::{Random, setting};

/// The number of clients, unless the variable sets it.
const CLIENTS: usize = 6;
const CLIENTS_VARIABLE: &str = "BERTH_TEST_SYSTEM_CLIENTS";
/// The length of a run in seconds, unless the variable sets it.
const SECONDS: u64 = 10;
const SECONDS_VARIABLE: &str = "BERTH_TEST_SYSTEM_SECONDS";
/// The default seed of the generators.
const SEED: u64 = 4;
const SEED_VARIABLE: &str = "BERTH_TEST_SYSTEM_SEED";
/// The bounds of the limit of sessions. Twice as many clients compete for them, or more.
const MIN_SESSIONS: usize = 2;
const MAX_SESSIONS: usize = 7;
/// The limit of sessions of the other project, in which a client is alone.
const OTHER_MAX_SESSIONS: usize = 1;
/// The restarts of an agent before control gives it up.
const AGENT_RESTARTS: usize = 8;

#[tokio::test]
async fn clients_database_hosts_and_processes_agree_after_random_kills() {
    let max_sessions = max_sessions();
    let hosts = max_sessions + OTHER_MAX_SESSIONS + 1;
    let installation = LocalInstallation::start(hosts, max_sessions).await;
    let rules = Rules {
        max_sessions,
        other_max_sessions: OTHER_MAX_SESSIONS,
        sessions_end_with_control: true,
        agent_restarts: AGENT_RESTARTS,
    };
    run(installation, rules).await;
}

fn max_sessions() -> usize {
    let clients = setting(CLIENTS_VARIABLE, CLIENTS);
    (clients / 2).clamp(MIN_SESSIONS, MAX_SESSIONS)
}

/// Runs clients and the killer, and checks what remains.
async fn run(mut installation: impl Installation, rules: Rules) {
    let clients = setting(CLIENTS_VARIABLE, CLIENTS);
    let seconds = setting(SECONDS_VARIABLE, SECONDS);
    let seed = setting(SEED_VARIABLE, SEED);
    println!("{SEED_VARIABLE}={seed} {CLIENTS_VARIABLE}={clients} {SECONDS_VARIABLE}={seconds}");
    let recorder = Recorder::new();
    let logins = LoginPages::serve().await;
    let new_client = |number, project| {
        let random = Random::new(seed, number);
        let identity = (number, project);
        Client::new(
            identity,
            random,
            recorder.clone(),
            &installation,
            logins.clone(),
        )
    };
    let stop = CancellationToken::new();
    let sharing = (0..clients).map(|number| new_client(number, TestProject::Default));
    let of_other_project = new_client(clients + 2, TestProject::Other);
    let running: Vec<_> = sharing
        .chain([of_other_project])
        .map(|client| tokio::spawn(client.run(stop.clone())))
        .collect();
    let mut auditor = new_client(clients, TestProject::Default);
    let mut other_auditor = new_client(clients + 3, TestProject::Other);
    let killer = Killer::new(Random::new(seed, clients + 1), recorder.clone(), rules);
    let time_is_over = CancellationToken::new();
    let timer = async {
        let mut ticks = interval(Duration::from_secs(seconds));
        ticks.tick().await;
        ticks.tick().await;
        time_is_over.cancel();
    };
    tokio::join!(timer, killer.run(&mut installation, &time_is_over));
    stop.cancel();
    for client in join_all(running).await {
        client.expect("a client that did not panic");
    }
    if installation.can_fill() {
        other_auditor.fill_at_last().await;
    }
    if !rules.sessions_end_with_control {
        auditor.end_all().await;
        other_auditor.end_all().await;
    }
    assert_pool_agrees(installation.control(), POOL).await;
    auditor.empty_pool().await;
    installation.assert_hosts_agree().await;
    auditor.list().await;
    other_auditor.list().await;

    let stopped = recorder.now();
    let log = installation.log();
    let servers = installation.servers().borrow().clone();
    let records = installation.finish(&recorder).await;
    let run = Run {
        calls: recorder.calls(),
        kills: recorder.kills(),
        stopped,
        stopped_processes: servers.iter().map(|server| server.process).collect(),
        deliveries: logins.deliveries(recorder.started_at()),
        records: records.sessions,
        audited_fills: records.audited_fills,
        rules,
    };
    print_figures(&run);
    let violations = checker::check(&run);
    assert!(violations.is_empty(), "{}", describe(&violations, &log));
}

fn print_figures(run: &Run) {
    let mut calls: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for call in &run.calls {
        let operation = match call.operation {
            Operation::Create { .. } => "create",
            Operation::Find { .. } => "find",
            Operation::Use { .. } => "use",
            Operation::Observe { .. } => "observe",
            Operation::Fill { .. } => "fill",
            Operation::List => "list",
            Operation::Delete { .. } => "delete",
        };
        let outcome = match call.outcome {
            Outcome::Session(_) | Outcome::Done | Outcome::Observed(_) | Outcome::Listed(_) => {
                "done"
            }
            Outcome::NotFound => "not found",
            Outcome::Refused(_) => "refused",
            Outcome::Unknown => "unknown",
            Outcome::NoResponse => "no response",
        };
        *calls.entry((operation, outcome)).or_default() += 1;
    }
    let mut kills: BTreeMap<String, usize> = BTreeMap::new();
    for kill in &run.kills {
        *kills.entry(format!("{:?}", kill.kind)).or_default() += 1;
    }
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &run.records {
        let reason = record.end_reason.as_deref().unwrap_or("none");
        *ends.entry(reason).or_default() += 1;
    }
    let tenancies = run.records.iter().filter_map(|it| it.tenancy.as_ref());
    let recycled = tenancies.filter(|tenancy| tenancy.generation > 1).count();
    println!(
        "after {:?}: {} sessions, {recycled} of them on a host that had one before, ended: {ends:?}",
        run.stopped,
        run.records.len()
    );
    let mut values: BTreeMap<&str, usize> = BTreeMap::new();
    for delivery in &run.deliveries {
        let value = match delivery.value {
            DeliveredValue::UserName => "user names",
            DeliveredValue::Password => "passwords",
            DeliveredValue::Code(_) => "codes",
        };
        *values.entry(value).or_default() += 1;
    }
    println!("calls: {calls:?}");
    println!("values in pages: {values:?}");
    println!("kills: {kills:?}");
}

/// Returns the violations, and the lines of the log about their sessions and hosts.
fn describe(violations: &[Violation], log: &str) -> String {
    let mut text: String = violations.iter().map(|it| format!("{it}\n")).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names: BTreeSet<String> = text
        .split(|c| !is_name(c))
        .filter(|word| word.starts_with("brw_") || word.starts_with("host_"))
        .map(str::to_owned)
        .collect();
    for line in log.lines() {
        if names.iter().any(|name| line.contains(name.as_str())) {
            text += line;
            text += "\n";
        }
    }
    text
}
