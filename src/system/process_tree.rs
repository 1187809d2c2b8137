//! All processes of the system as /proc shows them, and ending those that belong together.
//!
//! A session is closed under descent: whoever is in one has been started by somebody in it, or has begun it. So all sessions
//! that hold a descendant of a process belong to that process. A process that has begun a session and lost its parents is found by a
//! mark in its environment, which it has inherited.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, SysconfVar, sysconf},
};

use super::{job_thread::JobThread, session::Leader};

/// How long killing goes on against a tree that grows, or that the kernel does not let die.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// For the killed to be gone before the next look.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Looking takes milliseconds, and a second where there are very many processes.
static LOOKER: LazyLock<JobThread> = LazyLock::new(|| JobThread::start("processes"));
/// Not kept waiting by those who only look.
static KILLER: LazyLock<JobThread> = LazyLock::new(|| JobThread::start("killer"));
static LAST: Mutex<Option<Arc<Census>>> = Mutex::new(None);

#[derive(Debug, Clone)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// It has ended and waits for its parent.
    ended: bool,
    /// Ticks after the system's start; together with its number, nobody else's.
    started: u64,
    /// Ticks that it has computed, and those of its children that have ended.
    ticks: u64,
    resident_pages: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Counted as in proc_pid_stat(5), where the state is the third field.
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<i64>().ok();
        let unsigned = |at: usize| number(at).and_then(|n| u64::try_from(n).ok());
        Some(Process {
            pid,
            parent: i32::try_from(number(4)?).ok()?,
            group: i32::try_from(number(5)?).ok()?,
            session: i32::try_from(number(6)?).ok()?,
            ended: matches!(field(3)?, "Z" | "X"),
            ticks: unsigned(14)? + unsigned(15)? + unsigned(16)? + unsigned(17)?,
            started: unsigned(22)?,
            resident_pages: unsigned(24)?,
        })
    }

    fn has_mark(&self, mark: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(mark.as_bytes()))
    }
}

/// What the processes of a session take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Since the session began, as far as its processes still know.
    pub cpu: Duration,
    pub resident_bytes: u64,
}

/// All processes at one time.
#[derive(Debug)]
pub struct Census {
    begun: Instant,
    processes: Vec<Process>,
}

impl Census {
    fn take() -> io::Result<Self> {
        let begun = Instant::now();
        let processes = fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(Process::read)
            .collect();
        Ok(Census { begun, processes })
    }

    /// One that was not begun before `since`; who asks at about the same time shares one.
    pub async fn since(since: Instant) -> io::Result<Arc<Self>> {
        let take = move || {
            let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some(census) if census.begun >= since => Ok(census.clone()),
                _ => {
                    let census = Arc::new(Self::take()?);
                    *last = Some(census.clone());
                    Ok(census)
                }
            }
        };
        LOOKER.run(take, drop).await?
    }

    /// Whether anything of the session still lives.
    #[must_use]
    pub fn lives(&self, session: u32) -> bool {
        self.members(session).any(|process| !process.ended)
    }

    #[must_use]
    pub fn usage(&self, session: u32) -> Usage {
        let (mut ticks, mut pages) = (0, 0);
        for process in self.members(session) {
            ticks += process.ticks;
            pages += process.resident_pages;
        }
        let per_second = constant(SysconfVar::CLK_TCK, 100);
        Usage {
            cpu: Duration::from_millis(ticks.saturating_mul(1000) / per_second),
            resident_bytes: pages.saturating_mul(constant(SysconfVar::PAGE_SIZE, 4096)),
        }
    }

    fn members(&self, session: u32) -> impl Iterator<Item = &Process> {
        let session = session.cast_signed();
        self.processes
            .iter()
            .filter(move |process| process.session == session)
    }

    /// The sessions of all that descend from processes of these, and those sessions themselves.
    fn with_descendants(&self, mut sessions: HashSet<i32>) -> HashSet<i32> {
        let mut known: HashSet<i32> = HashSet::new();
        loop {
            let before = known.len();
            for process in &self.processes {
                if sessions.contains(&process.session) || known.contains(&process.parent) {
                    known.insert(process.pid);
                    // One without a session is a thread of the kernel's.
                    if process.session > 0 {
                        sessions.insert(process.session);
                    }
                }
            }
            if known.len() == before {
                return sessions;
            }
        }
    }

    /// The living processes of these sessions, by their groups.
    fn groups_of(&self, sessions: &HashSet<i32>) -> BTreeMap<i32, Vec<&Process>> {
        let mut groups: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
        for process in &self.processes {
            if sessions.contains(&process.session) && !process.ended {
                groups.entry(process.group).or_default().push(process);
            }
        }
        groups
    }

    fn marked(&self, mark: &str) -> HashSet<i32> {
        let own = Pid::this().as_raw();
        self.processes
            .iter()
            .filter(|process| process.pid != own && process.session > 0 && process.has_mark(mark))
            .map(|process| process.session)
            .collect()
    }
}

fn constant(name: SysconfVar, usual: u64) -> u64 {
    let value = sysconf(name).ok().flatten();
    value
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0)
        .unwrap_or(usual)
}

/// Signals the session of `leader` and all that descends from it.
pub async fn signal_tree(leader: Arc<Leader>, signal: Signal) -> io::Result<()> {
    // At once, whatever the rest takes.
    leader.signal(signal);
    let rest = move || {
        let Some(_pin) = leader.pin() else {
            return Ok(());
        };
        let (census, own) = (Census::take()?, leader.pid().cast_signed());
        let sessions = census.with_descendants(HashSet::from([own]));
        for (group, members) in census.groups_of(&sessions) {
            if group != own {
                signal_group(group, &members, signal);
            }
        }
        Ok(())
    };
    KILLER.run(rest, drop).await?
}

/// Kills the session of `leader`, all that descends from it, and all that bears `mark` (the beginning of a variable, `NAME=…`), until
/// nothing of that is left. `false` where something did not die in time.
pub async fn kill_tree(leader: Arc<Leader>, mark: String) -> io::Result<bool> {
    leader.signal(Signal::SIGKILL);
    let kill = move || {
        let pin = leader.pin();
        let session = pin.as_ref().map(|_| leader.pid().cast_signed());
        kill_all(session, &mark)
    };
    KILLER.run(kill, drop).await?
}

/// Kills all that bears `mark`, with its sessions and descendants.
pub async fn kill_marked(mark: String) -> io::Result<bool> {
    KILLER.run(move || kill_all(None, &mark), drop).await?
}

/// Signals whole groups: the kernel lets no member of a group slip away by forking while the group is being signalled.
fn kill_all(session: Option<i32>, mark: &str) -> io::Result<bool> {
    let begun = Instant::now();
    let (mut sessions, mut empty_looks) = (HashSet::from_iter(session), 0);
    loop {
        let census = Census::take()?;
        sessions.extend(census.marked(mark));
        let all = census.with_descendants(sessions);
        let groups = census.groups_of(&all);
        for (group, members) in &groups {
            signal_group(*group, members, Signal::SIGKILL);
        }
        // A process that has been forked behind our back shows at the second look.
        empty_looks = if groups.is_empty() {
            empty_looks + 1
        } else {
            0
        };
        if empty_looks == 2 {
            return Ok(true);
        }
        if begun.elapsed() > KILL_LIMIT {
            tracing::warn!(groups = groups.len(), "killed processes that do not end");
            return Ok(false);
        }
        // These sessions keep their numbers as long as they have members: until a look finds none.
        let alive = groups.values().flatten().map(|process| process.session);
        sessions = alive.chain(session).collect();
        std::thread::sleep(KILL_PAUSE);
    }
}

/// For the group's number to be somebody else's, all of the group would have to end, and all numbers be given out once, between the
/// look at a member and the signal.
fn signal_group(group: i32, members: &[&Process], signal: Signal) {
    let is_unchanged = |known: &&Process| {
        Process::read(known.pid)
            .is_some_and(|now| now.started == known.started && now.group == group)
    };
    if group > 1 && members.iter().any(is_unchanged) {
        // Gone already is as good.
        let _ = killpg(Pid::from_raw(group), signal);
    }
}
