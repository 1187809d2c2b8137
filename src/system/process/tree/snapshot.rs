//! A snapshot of all processes in `/proc`, shared between callers.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, SysconfVar, getpgrp, getsid, sysconf},
};
use parking_lot::Mutex;

use crate::system::{
    process::stat::{ProcStat, fork_count},
    sync::job_thread::JobThread,
};

/// Takes snapshots. One takes milliseconds, or a second if there are very many processes.
static SCANNER: LazyLock<JobThread> = LazyLock::new(|| JobThread::start("processes"));
/// The newest snapshot that was taken for [`ProcessSnapshot::since`].
static LATEST: Mutex<Option<Arc<ProcessSnapshot>>> = Mutex::new(None);

/// Starts the thread that takes snapshots.
pub(super) fn start() {
    LazyLock::force(&SCANNER);
}

/// The resources that the processes of one session use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the session started, without processes that ended and were not waited for.
    pub cpu: Duration,
    pub resident_bytes: u64,
}

/// All processes of the system at one time.
#[derive(Debug)]
pub struct ProcessSnapshot {
    started_at: Instant,
    pub(super) processes: Vec<ProcStat>,
    /// Whether a process that was listed had ended before it was read. It may have forked since.
    pub(super) has_vanished: bool,
    /// The result of [`fork_count`] before the scan.
    forks: Option<u64>,
}

impl ProcessSnapshot {
    pub(super) fn take() -> io::Result<Self> {
        let started_at = Instant::now();
        let forks = fork_count();
        let mut has_vanished = false;
        let processes = fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| {
                let process = ProcStat::of(pid);
                has_vanished |= process.is_none();
                process
            })
            .collect();
        Ok(ProcessSnapshot {
            started_at,
            processes,
            has_vanished,
            forks,
        })
    }

    /// Returns a snapshot whose scan started at `since` or later. Concurrent callers share one.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub async fn since(since: Instant) -> io::Result<Arc<Self>> {
        let take = move || {
            let mut latest = LATEST.lock();
            match &*latest {
                Some(snapshot) if snapshot.started_at >= since => Ok(snapshot.clone()),
                _ => {
                    let snapshot = Arc::new(Self::take()?);
                    *latest = Some(snapshot.clone());
                    Ok(snapshot)
                }
            }
        };
        SCANNER.run(take, drop).await?
    }

    /// Returns whether any process of the session is alive.
    #[must_use]
    pub fn is_session_alive(&self, session: u32) -> bool {
        self.members(session).any(|process| !process.has_ended())
    }

    /// Returns what the processes of the session use together.
    #[must_use]
    pub fn usage(&self, session: u32) -> Usage {
        let (mut ticks, mut pages) = (0, 0);
        for process in self.members(session) {
            ticks += process.cpu_ticks;
            pages += process.resident_pages;
        }
        let per_second = system_constant(SysconfVar::CLK_TCK, 100);
        Usage {
            cpu: Duration::from_millis(ticks.saturating_mul(1000) / per_second),
            resident_bytes: pages.saturating_mul(system_constant(SysconfVar::PAGE_SIZE, 4096)),
        }
    }

    fn members(&self, session: u32) -> impl Iterator<Item = &ProcStat> {
        let session = session.cast_signed();
        self.processes
            .iter()
            .filter(move |process| process.session == session)
    }

    /// Returns whether no process has been started since the scan began, so that every process that
    /// is alive now is in the snapshot.
    pub(super) fn is_current(&self) -> bool {
        self.forks.is_some() && self.forks == fork_count()
    }

    pub(super) fn find(&self, pid: i32) -> Option<&ProcStat> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// Returns the sessions that have living members.
    pub(super) fn live_sessions(&self) -> HashSet<i32> {
        let alive = self.processes.iter().filter(|process| !process.has_ended());
        alive.map(|process| process.session).collect()
    }

    /// Returns `roots`, the members of `sessions`, and all their descendants. Sessions that these
    /// processes started belong to the tree and are added to `sessions`.
    pub(super) fn tree(&self, roots: HashSet<i32>, sessions: &mut HashSet<i32>) -> HashSet<i32> {
        let own = OwnIds::get();
        let mut tree = roots;
        sessions.remove(&own.session);
        loop {
            let before = (tree.len(), sessions.len());
            for process in &self.processes {
                if process.pid != own.pid
                    && (sessions.contains(&process.session) || tree.contains(&process.parent))
                {
                    tree.insert(process.pid);
                }
                if process.pid == process.session && tree.contains(&process.pid) {
                    sessions.insert(process.session);
                }
            }
            if (tree.len(), sessions.len()) == before {
                return tree;
            }
        }
    }

    /// Signals the living processes of `tree`. Returns whether there were any.
    ///
    /// A process group whose members all belong to the tree is signalled as a group: the kernel
    /// then reaches every member, even one that forks at the same time.
    pub(super) fn signal(&self, tree: &HashSet<i32>, signal: Signal) -> bool {
        let own = OwnIds::get();
        let mut groups: BTreeMap<i32, Vec<&ProcStat>> = BTreeMap::new();
        for process in self.processes.iter().filter(|process| !process.has_ended()) {
            groups.entry(process.group).or_default().push(process);
        }
        let mut is_any_alive = false;
        for (group, members) in groups {
            let in_tree = |process: &&&ProcStat| tree.contains(&process.pid);
            let targets: Vec<&ProcStat> = members.iter().filter(in_tree).copied().collect();
            if targets.is_empty() {
                continue;
            }
            is_any_alive = true;
            if targets.len() == members.len() && group != own.group && group > 1 {
                signal_group(group, &targets, signal);
            } else {
                for process in targets {
                    signal_one(process, signal);
                }
            }
        }
        is_any_alive
    }
}

/// The ids of this process, which no tree may include.
struct OwnIds {
    pid: i32,
    group: i32,
    session: i32,
}

impl OwnIds {
    fn get() -> Self {
        OwnIds {
            pid: Pid::this().as_raw(),
            group: getpgrp().as_raw(),
            session: getsid(None).map_or(0, Pid::as_raw),
        }
    }
}

fn system_constant(name: SysconfVar, default: u64) -> u64 {
    let value = sysconf(name).ok().flatten();
    value
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0)
        .unwrap_or(default)
}

/// Signals a group. To reach a stranger, all members would have to end and the kernel would have
/// to give out every pid once, between the check of a member and the signal.
fn signal_group(group: i32, members: &[&ProcStat], signal: Signal) {
    if members.iter().any(|member| member.is_unchanged()) {
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

fn signal_one(process: &ProcStat, signal: Signal) {
    if process.is_unchanged() {
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}
