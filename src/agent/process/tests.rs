use std::{collections::HashSet, fs, os::unix::process::ExitStatusExt};

use nix::sys::signal::Signal;
use tokio::process::Command;

use super::*;
use crate::{
    agent::{sessions::MachineTaint, state_dir::StateDir},
    api::process::Variables,
    system::process::tree,
};

/// Longer than all waits for processes together.
const LONG: Duration = Duration::from_secs(60);

async fn processes(directory: &std::path::Path, shutdown: &Shutdown) -> Processes {
    let session = StateDir::new(directory).unwrap().session(1);
    session.prepare().unwrap();
    let machine = MachineTaint::open(&directory.join("tainted")).unwrap();
    let options = Options {
        max: 4,
        log_bytes: 1 << 10,
        exec_output_bytes: 1 << 10,
        exec_total_bytes: 1 << 20,
        state_dir: session.root().to_owned(),
        isolation: None,
    };
    let taints = Taints::load(&session, machine).unwrap();
    Processes::new(options, taints, shutdown).await.unwrap()
}

/// Returns the output of a program.
async fn output_of(processes: &Processes, command: &str, args: &[&str]) -> String {
    let launch = Launch {
        command: command.into(),
        args: args.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: Variables::default(),
        as_user: None,
        as_root: false,
        timeout_sec: None,
    };
    let execution = processes.exec(launch, None).await.unwrap();
    assert_eq!(execution.exit_code, 0);
    String::from_utf8(execution.stdout.data.to_vec()).unwrap()
}

fn own_pipes() -> HashSet<String> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let names = targets.filter_map(|target| target.into_os_string().into_string().ok());
    names.filter(|name| name.starts_with("pipe:")).collect()
}

#[tokio::test]
async fn programs_have_pipes_that_were_opened_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let shutdown = Shutdown::new();
    let processes = processes(directory.path(), &shutdown).await;
    let is_opened_ahead = async || {
        let pipes = own_pipes();
        let output = output_of(&processes, "readlink", &["/proc/self/fd/1"]).await;
        pipes.contains(output.trim_end())
    };
    assert!(!is_opened_ahead().await, "it is the first");
    let repeated = async { while !is_opened_ahead().await {} };
    let waited = time::timeout(LONG, repeated).await;
    waited.expect("a pipe that was opened ahead");
    shutdown.discard();
    assert!(shutdown.drain(LONG).await);
}

#[tokio::test]
async fn end_of_the_session_kills_processes_of_a_start_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let shutdown = Shutdown::new();
    let processes = processes(directory.path(), &shutdown).await;
    let starting = processes.inner.starts.token();
    shutdown.discard();
    let mut draining = Box::pin(shutdown.drain(LONG));
    let waited = time::timeout(Duration::from_millis(200), &mut draining).await;
    waited.expect_err("the start is in flight");
    let mut left = Command::new("sleep")
        .arg("600")
        .env(tree::MARK, processes.inner.run.new_mark())
        .spawn()
        .unwrap();
    drop(starting);
    assert!(draining.await);
    let waited = time::timeout(LONG, left.wait()).await;
    let status = waited.expect("its end").unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    assert!(!processes.have_survivors());
}

#[tokio::test]
async fn start_that_does_not_end_is_reported_as_survivor() {
    let directory = tempfile::tempdir().unwrap();
    let shutdown = Shutdown::new();
    let processes = processes(directory.path(), &shutdown).await;
    let _starting = processes.inner.starts.token();
    shutdown.discard();
    assert!(shutdown.drain(LONG).await);
    assert!(processes.have_survivors());
}
