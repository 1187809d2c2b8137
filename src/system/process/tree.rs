//! All processes of the system as /proc shows them, and ending those that belong together.
//!
//! A session that a descendant of a process has begun belongs to that process, with all that is in it: nobody enters a session from
//! outside. A process that has begun a session and lost its parents is found by a mark in its environment, which it has inherited. One that
//! has dropped the mark as well cannot be told from others.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    sync::{
        Arc, LazyLock,
        mpsc::{self},
    },
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, SysconfVar, getpgrp, getsid, sysconf},
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::system::{
    process::session::{Leader, Pin},
    process::stat::ProcStat,
    sync::job_thread::JobThread,
};

/// The variable that is the mark of a tree.
pub const MARK: &str = "SPAWNED_PROCESS";

/// How long killing goes on against a tree that grows, or that the kernel does not let die.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// For the killed to be gone before the next look.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Looking takes milliseconds, and a second where there are very many processes.
static LOOKER: LazyLock<JobThread> = LazyLock::new(|| JobThread::start("processes"));
/// How sure it must be that nothing is left, and what the looks that find nothing contribute: the first of all, later ones, and those during
/// which processes came or went that could not be looked at. One that forks, leaves its session and exits, again and again, slips through few.
const SURE: u32 = 8;
const FIRST_QUIET_LOOK: u32 = 8;
const QUIET_LOOK: u32 = 4;
const RESTLESS_LOOK: u32 = 1;

/// Not kept waiting by those who only look.
static KILLER: LazyLock<mpsc::Sender<Task>> = LazyLock::new(start_killer);
static LAST: Mutex<Option<Arc<Census>>> = Mutex::new(None);

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
    processes: Vec<ProcStat>,
    /// All of them could be looked at.
    is_quiet: bool,
}

impl Census {
    fn take() -> io::Result<Self> {
        let begun = Instant::now();
        let mut is_quiet = true;
        let processes = fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| {
                let process = ProcStat::of(pid);
                is_quiet &= process.is_some();
                process
            })
            .collect();
        Ok(Census {
            begun,
            processes,
            is_quiet,
        })
    }

    /// One that was not begun before `since`; who asks at about the same time shares one.
    pub async fn since(since: Instant) -> io::Result<Arc<Self>> {
        let take = move || {
            let mut last = LAST.lock();
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
        self.members(session).any(|process| !process.has_ended())
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

    fn members(&self, session: u32) -> impl Iterator<Item = &ProcStat> {
        let session = session.cast_signed();
        self.processes
            .iter()
            .filter(move |process| process.session == session)
    }

    fn find(&self, pid: i32) -> Option<&ProcStat> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// Those of `known`, the members of these sessions, all that descend from them, and the sessions that those have begun, which are added.
    fn tree(&self, mut known: HashSet<i32>, sessions: &mut HashSet<i32>) -> HashSet<i32> {
        let own = Own::new();
        sessions.remove(&own.session);
        loop {
            let before = (known.len(), sessions.len());
            for process in &self.processes {
                if process.pid != own.pid
                    && (sessions.contains(&process.session) || known.contains(&process.parent))
                {
                    known.insert(process.pid);
                }
                if process.pid == process.session && known.contains(&process.pid) {
                    sessions.insert(process.session);
                }
            }
            if (known.len(), sessions.len()) == before {
                return known;
            }
        }
    }

    /// Signals the living ones of `tree`, whole groups where all of a group belongs to it: the kernel lets no member of a group slip away by
    /// forking while the group is being signalled. Returns whether there were any.
    fn signal(&self, tree: &HashSet<i32>, signal: Signal) -> bool {
        let own = Own::new();
        let mut groups: BTreeMap<i32, Vec<&ProcStat>> = BTreeMap::new();
        for process in self.processes.iter().filter(|process| !process.has_ended()) {
            groups.entry(process.group).or_default().push(process);
        }
        let mut any = false;
        for (group, members) in groups {
            let is_ours = |process: &&&ProcStat| tree.contains(&process.pid);
            let ours: Vec<&ProcStat> = members.iter().filter(is_ours).copied().collect();
            if ours.is_empty() {
                continue;
            }
            any = true;
            if ours.len() == members.len() && group != own.group && group > 1 {
                signal_group(group, &ours, signal);
            } else {
                for process in ours {
                    signal_one(process, signal);
                }
            }
        }
        any
    }
}

/// What nobody's tree may take along.
struct Own {
    pid: i32,
    group: i32,
    session: i32,
}

impl Own {
    fn new() -> Self {
        Own {
            pid: Pid::this().as_raw(),
            group: getpgrp().as_raw(),
            session: getsid(None).map_or(0, Pid::as_raw),
        }
    }
}

/// The marks of processes, each read once: a program inherits its mark.
#[derive(Default)]
struct Marks(HashMap<(i32, u64), Vec<Vec<u8>>>);

impl Marks {
    /// The living ones that were started at `since` or later and whose mark begins like this, and whether all could be asked.
    fn of(&mut self, census: &Census, mark: &str, since: u64) -> (HashSet<i32>, bool) {
        let own = Pid::this().as_raw();
        let (mut marked, mut all_told) = (HashSet::new(), true);
        for process in &census.processes {
            // One without a session is a thread of the kernel's.
            let is_candidate = process.session > 0 && process.started >= since;
            if process.pid == own || process.has_ended() || !is_candidate {
                continue;
            }
            match self.read(process, own) {
                Some(marks) if marks.iter().any(|m| m.starts_with(mark.as_bytes())) => {
                    marked.insert(process.pid);
                }
                Some(_) => {}
                None => all_told = false,
            }
        }
        (marked, all_told)
    }

    fn read(&mut self, process: &ProcStat, own: i32) -> Option<Vec<Vec<u8>>> {
        let key = (process.pid, process.started);
        if let Some(known) = self.0.get(&key) {
            return Some(known.clone());
        }
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).ok()?;
        let variables = environment.split(|byte| *byte == 0);
        let marks: Vec<Vec<u8>> = variables
            .filter_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
            .map(<[u8]>::to_vec)
            .collect();
        // One that we have just started still has our environment, and one that is at its end has none.
        if process.parent != own && !environment.is_empty() {
            self.0.insert(key, marks.clone());
        }
        Some(marks)
    }
}

fn constant(name: SysconfVar, usual: u64) -> u64 {
    let value = sysconf(name).ok().flatten();
    value
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0)
        .unwrap_or(usual)
}

/// Signals the session of `leader` and all that descends from it. What is stopped goes on, so that it can do what the signal asks of it.
pub async fn signal_tree(leader: Arc<Leader>, signal: Signal) -> io::Result<()> {
    // At once, whatever the rest takes.
    leader.signal(signal);
    if goes_on(signal) {
        leader.signal(Signal::SIGCONT);
    }
    let Some(pin) = Leader::pin(&leader) else {
        return Ok(());
    };
    let wish = Wish::Signal(signal);
    run(Some((leader, pin)), wish).await.map(|_| ())
}

fn goes_on(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGHUP)
}

/// Kills the session of `leader`, all that descends from it, and all whose [`MARK`] begins with `mark`, until nothing of that is left. `false`
/// where something did not die in time.
pub async fn kill_tree(leader: Arc<Leader>, mark: String) -> io::Result<bool> {
    let pinned = Leader::pin(&leader).map(|pin| (leader.clone(), pin));
    // First it is seen who descends from whom: that is lost with the parents.
    let killed = run(pinned, Wish::Kill { mark }).await;
    if killed.is_err() {
        leader.signal(Signal::SIGKILL);
    }
    killed
}

/// Kills all whose [`MARK`] begins with `mark`, and what descends from that.
pub async fn kill_marked(mark: String) -> io::Result<bool> {
    run(None, Wish::Kill { mark }).await
}

enum Wish {
    Signal(Signal),
    Kill { mark: String },
}

/// Somebody's wish, on its way.
struct Task {
    /// Pinned, so that its number is still its session's.
    leader: Option<(Arc<Leader>, Pin)>,
    wish: Wish,
    begun: Instant,
    sessions: HashSet<i32>,
    /// When the leader was started: nothing that is older can be of its tree.
    since: Option<u64>,
    looks: u32,
    sureness: u32,
    done: oneshot::Sender<io::Result<bool>>,
}

async fn run(leader: Option<(Arc<Leader>, Pin)>, wish: Wish) -> io::Result<bool> {
    let (done, answer) = oneshot::channel();
    let session = leader.iter().map(|(leader, _)| leader.pid().cast_signed());
    let task = Task {
        sessions: session.collect(),
        leader,
        wish,
        begun: Instant::now(),
        since: None,
        looks: 0,
        sureness: 0,
        done,
    };
    let gone = || io::Error::other("a thread of ours is gone");
    KILLER.send(task).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

fn start_killer() -> mpsc::Sender<Task> {
    let (sender, tasks) = mpsc::channel();
    std::thread::Builder::new()
        .name("killer".to_owned())
        .spawn(move || serve(&tasks))
        .expect("a thread starts");
    sender
}

/// Each look serves all who wait.
fn serve(tasks: &mpsc::Receiver<Task>) {
    let (mut waiting, mut marks) = (Vec::new(), Marks::default());
    loop {
        if waiting.is_empty() {
            marks.0.clear();
            match tasks.recv() {
                Ok(task) => waiting.push(task),
                Err(mpsc::RecvError) => return,
            }
        }
        while let Ok(task) = tasks.try_recv() {
            waiting.push(task);
        }
        let census = Census::take();
        let mut rest = Vec::new();
        for mut task in waiting {
            let outcome = match &census {
                Ok(census) => task.step(census, &mut marks).map(Ok),
                Err(error) => Some(Err(io::Error::new(error.kind(), error.to_string()))),
            };
            match outcome {
                Some(outcome) => task.finish(outcome),
                None => rest.push(task),
            }
        }
        waiting = rest;
        if !waiting.is_empty() {
            std::thread::sleep(KILL_PAUSE);
        }
    }
}

impl Task {
    fn finish(self, outcome: io::Result<bool>) {
        let Task { leader, done, .. } = self;
        // Who hears the answer may want to reap it.
        drop(leader);
        let _ = done.send(outcome);
    }

    /// The outcome, once there is one.
    fn step(&mut self, census: &Census, marks: &mut Marks) -> Option<bool> {
        let leader = self.leader.as_ref().map(|(leader, _)| leader.pid());
        match &self.wish {
            Wish::Signal(signal) => {
                let mut tree = census.tree(HashSet::new(), &mut self.sessions);
                // It and its group have got it already.
                let own = leader.and_then(|pid| census.find(pid.cast_signed()));
                let group = own.map(|leader| leader.group);
                let members = census.processes.iter();
                for had in members.filter(|process| Some(process.group) == group) {
                    tree.remove(&had.pid);
                }
                census.signal(&tree, *signal);
                if goes_on(*signal) {
                    census.signal(&tree, Signal::SIGCONT);
                }
                Some(true)
            }
            Wish::Kill { mark } => {
                if self.since.is_none() {
                    let own = leader.and_then(|pid| census.find(pid.cast_signed()));
                    self.since = Some(own.map_or(0, |leader| leader.started));
                }
                let (marked, all_told) = marks.of(census, mark, self.since.unwrap_or_default());
                let tree = census.tree(marked, &mut self.sessions);
                let any = census.signal(&tree, Signal::SIGKILL);
                self.keep_sessions(census);
                // It may have left a child on its way.
                let mut others = census.processes.iter().filter(|process| {
                    tree.contains(&process.pid) && leader != Some(process.pid.cast_unsigned())
                });
                let is_quiet = census.is_quiet && all_told && others.next().is_none();
                self.looks += 1;
                self.sureness = match (any, is_quiet) {
                    (true, _) => 0,
                    (false, true) if self.looks == 1 => FIRST_QUIET_LOOK,
                    (false, true) => self.sureness + QUIET_LOOK,
                    (false, false) => self.sureness + RESTLESS_LOOK,
                };
                if self.sureness >= SURE {
                    return Some(true);
                }
                let is_over = self.begun.elapsed() > KILL_LIMIT;
                if is_over {
                    tracing::warn!("killed processes that do not end");
                }
                is_over.then_some(false)
            }
        }
    }

    /// A session keeps its number as long as it has members: until a look finds none.
    fn keep_sessions(&mut self, census: &Census) {
        let alive = census
            .processes
            .iter()
            .filter(|process| !process.has_ended());
        let alive: HashSet<i32> = alive.map(|process| process.session).collect();
        let own = self.leader.as_ref();
        let own = own.map(|(leader, _)| leader.pid().cast_signed());
        self.sessions
            .retain(|session| alive.contains(session) || Some(*session) == own);
    }
}

/// For the group's number to be somebody else's, all of the group would have to end, and all numbers be given out once, between the
/// look at a member and the signal.
fn signal_group(group: i32, members: &[&ProcStat], signal: Signal) {
    if members.iter().any(|known| known.is_unchanged()) {
        // Gone already is as good.
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

fn signal_one(process: &ProcStat, signal: Signal) {
    if process.is_unchanged() {
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}
