//! Stopping a process group and all its descendants for a moment.
//!
//! A guard process continues the group even if this process is killed meanwhile.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::system::process::stat::ProcStat;

/// Time for all processes to stop. A process inside a system call stops at its end.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two scans of `/proc`.
const SCAN_DELAY: Duration = Duration::from_millis(2);

/// A stopped process group with its descendants. They continue when this is dropped and when this
/// process dies.
#[derive(Debug)]
pub struct FrozenGroup {
    leader: i32,
    stopped: BTreeSet<i32>,
    /// Continues the group at the end of its standard input, which also comes when this process
    /// dies.
    guard: Child,
}

#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("not all processes stopped within {} s", FREEZE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the process has ended")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl FrozenGroup {
    /// Stops the group of `leader` and all descendants. Blocks until all of them are stopped.
    ///
    /// # Errors
    /// Fails if they do not stop within [`FREEZE_TIMEOUT`]; they continue then.
    #[expect(clippy::disallowed_methods, reason = "documented as blocking")]
    pub fn freeze(leader: u32) -> Result<Self, FreezeError> {
        let leader = i32::try_from(leader).map_err(io::Error::other)?;
        let mut frozen = FrozenGroup {
            leader,
            stopped: BTreeSet::new(),
            guard: start_guard(leader)?,
        };
        let started_at = Instant::now();
        loop {
            let tree = tree(leader)?;
            if !tree.iter().any(|process| process.pid == leader) {
                return Err(FreezeError::Ended);
            }
            for process in &tree {
                // Newly forked processes have not received the signal yet.
                if !process.is_stopped && kill(Pid::from_raw(process.pid), Signal::SIGSTOP).is_ok()
                {
                    frozen.stopped.insert(process.pid);
                }
            }
            // A stopped parent forks no more, so the loop ends.
            if tree.iter().all(|process| process.is_stopped) {
                return Ok(frozen);
            }
            if started_at.elapsed() > FREEZE_TIMEOUT {
                return Err(FreezeError::Timeout);
            }
            thread::sleep(SCAN_DELAY);
        }
    }
}

impl Drop for FrozenGroup {
    #[expect(clippy::disallowed_methods, reason = "the guard ends at once")]
    fn drop(&mut self) {
        for &pid in &self.stopped {
            // The pid is not reused: a stopped process keeps it, and one that was killed stays a
            // zombie as long as its parent is stopped.
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
        let _ = nix::sys::signal::killpg(Pid::from_raw(self.leader), Signal::SIGCONT);
        // The guard ends at the end of its input.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Starts the guard. It outlives this process for as long as it takes to send a signal.
fn start_guard(leader: i32) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", "read -r _; kill -CONT -\"$1\"", "thaw"])
        .arg(leader.to_string())
        .env_clear()
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    is_stopped: bool,
}

/// Returns the living members of a group and all their living descendants.
fn tree(leader: i32) -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Some(stat) = ProcStat::of(pid).filter(|stat| !stat.has_ended()) else {
            continue;
        };
        all.push(Process {
            pid,
            parent: stat.parent,
            group: stat.group,
            is_stopped: all_threads_stopped(pid),
        });
    }
    let mut members: BTreeSet<i32> = all
        .iter()
        .filter(|process| process.group == leader || process.pid == leader)
        .map(|process| process.pid)
        .collect();
    loop {
        let before = members.len();
        for process in &all {
            if members.contains(&process.parent) {
                members.insert(process.pid);
            }
        }
        if members.len() == before {
            break;
        }
    }
    all.retain(|process| members.contains(&process.pid));
    Ok(all)
}

fn all_threads_stopped(pid: i32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        // A thread that no longer exists counts as stopped.
        ProcStat::read(&thread.path().join("stat"))
            .is_none_or(|stat| stat.has_ended() || matches!(stat.state, 'T' | 't'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell and its child in their own group, both in an endless loop.
    struct Group(Child);

    impl Group {
        fn start() -> Self {
            let child = Command::new("/bin/sh")
                .args(["-c", "while :; do :; done & while :; do :; done"])
                .process_group(0)
                .spawn()
                .unwrap();
            let group = Group(child);
            wait_until(|| tree(group.leader()).unwrap().len() == 2);
            group
        }

        fn leader(&self) -> i32 {
            self.0.id().cast_signed()
        }

        fn stopped(&self) -> usize {
            let tree = tree(self.leader()).unwrap();
            tree.iter().filter(|process| process.is_stopped).count()
        }
    }

    impl Drop for Group {
        #[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
        fn drop(&mut self) {
            let _ = nix::sys::signal::killpg(Pid::from_raw(self.leader()), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let started_at = Instant::now();
        while !condition() {
            assert!(started_at.elapsed() < Duration::from_secs(60), "timed out");
            thread::yield_now();
        }
    }

    #[test]
    fn group_stops_completely_and_continues_on_drop() {
        let group = Group::start();
        let frozen = FrozenGroup::freeze(group.0.id()).unwrap();
        assert_eq!(group.stopped(), 2);
        drop(frozen);
        wait_until(|| group.stopped() == 0);
    }

    #[test]
    fn group_continues_when_the_freezing_process_is_killed() {
        let group = Group::start();
        let mut frozen = FrozenGroup::freeze(group.0.id()).unwrap();
        // The kernel closes the pipe when the process dies.
        drop(frozen.guard.stdin.take());
        wait_until(|| group.stopped() == 0);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
    fn freeze_fails_for_an_ended_process() {
        let mut child = Command::new("/bin/true").process_group(0).spawn().unwrap();
        child.wait().unwrap();
        let frozen = FrozenGroup::freeze(child.id());
        assert!(matches!(frozen, Err(FreezeError::Ended)), "{frozen:?}");
    }
}
