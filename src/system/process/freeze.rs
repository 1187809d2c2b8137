//! Stopping a process group with all its descendants for a moment, and letting them go on whatever happens.

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

/// For all of them to stop: one in the middle of a system call does so at its end.
const DEADLINE: Duration = Duration::from_secs(5);
/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(2);

/// Processes that do not run. They go on when this is dropped, and also when this process dies.
#[derive(Debug)]
pub struct Frozen {
    leader: i32,
    stopped: BTreeSet<i32>,
    /// Waits for the end of its standard input, which comes with our end too, and lets the group go on.
    guard: Child,
}

#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("not all processes stopped within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error("the process has ended")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Frozen {
    /// Stops the group of `leader` and all that descends from it. Blocks until each of them has stopped and no new one has come.
    ///
    /// # Errors
    /// Where they do not stop; they then go on.
    pub fn freeze(leader: u32) -> Result<Self, FreezeError> {
        let leader = i32::try_from(leader).map_err(io::Error::other)?;
        let mut frozen = Frozen {
            leader,
            stopped: BTreeSet::new(),
            guard: guard(leader)?,
        };
        let begun = Instant::now();
        loop {
            let tree = tree(leader)?;
            if !tree.iter().any(|process| process.pid == leader) {
                return Err(FreezeError::Ended);
            }
            for process in &tree {
                // One that was just started by another has not been told yet.
                if !process.is_stopped && kill(Pid::from_raw(process.pid), Signal::SIGSTOP).is_ok()
                {
                    frozen.stopped.insert(process.pid);
                }
            }
            // A parent that is stopped makes no more children, so that the looks come to an end.
            if tree.iter().all(|process| process.is_stopped) {
                return Ok(frozen);
            }
            if begun.elapsed() > DEADLINE {
                return Err(FreezeError::Deadline);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for &pid in &self.stopped {
            // A stopped process keeps its number; one that was killed meanwhile may be reaped by its stopped parent only later.
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
        let _ = nix::sys::signal::killpg(Pid::from_raw(self.leader), Signal::SIGCONT);
        // It ends by itself once its input does; nothing is left of it then.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Outlives us on purpose, but only for as long as it takes to send a signal.
fn guard(leader: i32) -> io::Result<Child> {
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
    is_stopped: bool,
}

/// The members of a group and all their descendants that live.
fn tree(leader: i32) -> io::Result<Vec<Process>> {
    struct Found {
        pid: i32,
        parent: i32,
        group: i32,
        is_stopped: bool,
    }
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Some(stat) = ProcStat::of(pid).filter(|stat| !stat.has_ended()) else {
            continue;
        };
        all.push(Found {
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
    Ok(all
        .into_iter()
        .filter(|process| members.contains(&process.pid))
        .map(|process| Process {
            pid: process.pid,
            is_stopped: process.is_stopped,
        })
        .collect())
}

fn all_threads_stopped(pid: i32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        // A thread that has gone is as good as one that has stopped.
        ProcStat::read(&thread.path().join("stat"))
            .is_none_or(|stat| stat.has_ended() || matches!(stat.state, 'T' | 't'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell with a child, both of a group of their own, that count for ever.
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
        fn drop(&mut self) {
            let _ = nix::sys::signal::killpg(Pid::from_raw(self.leader()), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain");
            thread::yield_now();
        }
    }

    #[test]
    fn a_group_stops_as_a_whole_and_goes_on() {
        let group = Group::start();
        let frozen = Frozen::freeze(group.0.id()).unwrap();
        assert_eq!(group.stopped(), 2);
        drop(frozen);
        wait_until(|| group.stopped() == 0);
    }

    #[test]
    fn a_group_goes_on_when_whoever_froze_it_is_killed() {
        let group = Group::start();
        let mut frozen = Frozen::freeze(group.0.id()).unwrap();
        // All that the kernel does for us then.
        drop(frozen.guard.stdin.take());
        wait_until(|| group.stopped() == 0);
    }

    #[test]
    fn what_has_ended_is_not_frozen() {
        let mut child = Command::new("/bin/true").process_group(0).spawn().unwrap();
        child.wait().unwrap();
        let frozen = Frozen::freeze(child.id());
        assert!(matches!(frozen, Err(FreezeError::Ended)), "{frozen:?}");
    }
}
