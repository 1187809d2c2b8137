#![allow(unsafe_code, reason = "the test changes signal dispositions")]

use std::{fs, path::Path, time::Duration};

use nix::{
    libc,
    sys::wait::{Id, WaitPidFlag, waitid},
    unistd::Pid,
};
use tokio::{io::AsyncReadExt, time};

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a program without arguments.
pub(super) fn program(command: &str) -> Program {
    Program {
        command: command.to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        directory: WorkingDirectory::Preferred("/".into()),
        credentials: None,
        stdio: StdioMode::NoInput,
        output_pipes: None,
        cgroup: None,
        namespace: None,
        can_gain_rights: true,
    }
}

async fn start(command: &str, args: &[&str]) -> ProcessSession {
    let program = Program {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..program(command)
    };
    ProcessSession::start(program).await.unwrap()
}

#[tokio::test]
async fn program_ignores_no_signal_that_the_agent_ignores() {
    for number in [libc::SIGPIPE, libc::SIGRTMIN() + 5, libc::SIGRTMAX()] {
        // SAFETY: ignoring a signal runs no code of this process.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
    let ignored = |status: &str| {
        let line = status.lines().find(|line| line.starts_with("SigIgn:"));
        line.unwrap().to_owned()
    };
    let own = ignored(&fs::read_to_string("/proc/self/status").unwrap());
    assert_ne!(own, "SigIgn:\t0000000000000000");
    let session = start("cat", &["/proc/self/status"]).await;
    let Streams::Pipes { mut stdout, .. } = session.streams else {
        panic!("the program has no pipes");
    };
    let mut status = String::new();
    let read = stdout.read_to_string(&mut status);
    time::timeout(TEST_TIMEOUT, read).await.unwrap().unwrap();
    assert_eq!(ignored(&status), "SigIgn:\t0000000000000000");
}

#[tokio::test]
#[expect(clippy::zombie_processes, reason = "the leader reaps it")]
async fn exit_before_the_leader_is_watched_is_known() {
    let child = std::process::Command::new("false").spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let leader = Leader::of_child(pid).unwrap();
    assert!(leader.has_exited());
    leader.ended().await;
    for _ in 0..2 {
        assert_eq!(leader.exited().await.unwrap(), 1);
    }
    assert!(leader.reap() && leader.has_exited());
    leader.exited().await.expect_err("it is reaped");
}

#[tokio::test]
async fn dropped_leader_leaves_no_zombie() {
    let leaders: Vec<_> = futures::future::join_all((0..10).map(|_| start("sleep", &["1000"])))
        .await
        .into_iter()
        .map(|session| session.leader)
        .collect();
    let pids: Vec<u32> = leaders.iter().map(Leader::pid).collect();
    drop(leaders);
    let exists = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    let all_gone = async {
        while pids.iter().any(exists) {
            tokio::task::yield_now().await;
        }
    };
    time::timeout(TEST_TIMEOUT, all_gone).await.unwrap();
}
