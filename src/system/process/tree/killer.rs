//! The thread that signals and kills process trees.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{marks::MarkCache, snapshot::ProcessSnapshot};
use crate::system::process::{
    cgroup::CgroupDirectory,
    session::{Leader, PidPin},
};

/// The time limit of a kill against a tree that keeps forking or that the kernel cannot end, and on
/// a machine where processes end so often that no scan is exact.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for killed processes to disappear before the next scan.
const RESCAN_DELAY: Duration = Duration::from_millis(2);

/// The scans in a row that have to find no process of a tree with a cgroup, if none of them is
/// exact. Only processes with the rights of the agent can leave the cgroup.
const CONFIRMING_SCANS: u32 = 8;

/// Requests for the killer thread. It is separate from the scanner thread so that kills do not
/// wait for status queries.
static KILLER: Mutex<Option<mpsc::Sender<KillRequest>>> = Mutex::new(None);

/// The effect of a [`KillRequest`].
pub(super) enum Action {
    /// Signals the tree and the cgroup once.
    Signal {
        signal: Signal,
        cgroup: Option<CgroupDirectory>,
    },
    /// Kills the tree, the cgroup, and all processes whose mark starts with `mark`, until none is
    /// left.
    Kill {
        mark: String,
        cgroup: Option<CgroupDirectory>,
    },
}

/// A leader whose pid, and therefore whose session id, cannot be reused.
pub(super) type PinnedLeader = (Arc<Leader>, PidPin);

/// A request to signal or kill a process tree, and its progress.
pub(super) struct KillRequest {
    leader: Option<PinnedLeader>,
    action: Action,
    requested_at: Instant,
    /// The sessions that belong to the tree.
    sessions: HashSet<i32>,
    /// The start time of the leader. Older processes cannot belong to the tree.
    since_ticks: Option<u64>,
    /// The number of scans in a row that found no process of the tree.
    empty_scans: u32,
    reply: oneshot::Sender<io::Result<bool>>,
}

/// Runs `action` on the killer thread. Returns `false` if processes survived for
/// [`KILL_TIMEOUT`].
pub(super) async fn run(leader: Option<PinnedLeader>, action: Action) -> io::Result<bool> {
    let (reply, outcome) = oneshot::channel();
    let session = leader.iter().map(|(leader, _)| leader.pid().cast_signed());
    let request = KillRequest {
        sessions: session.collect(),
        leader,
        action,
        requested_at: Instant::now(),
        since_ticks: None,
        empty_scans: 0,
        reply,
    };
    let thread_ended = || io::Error::other("the killer thread has ended");
    start()?.send(request).map_err(|_| thread_ended())?;
    outcome.await.map_err(|_| thread_ended())?
}

/// Returns whether stopped processes must be continued so that they can handle `signal`.
pub(super) fn needs_continue(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGHUP)
}

/// Returns the killer thread's queue. Starts the thread if the system has refused it so far.
///
/// # Errors
/// Fails if the system refuses.
#[expect(
    clippy::disallowed_methods,
    reason = "every caller waits for its request"
)]
pub(super) fn start() -> io::Result<mpsc::Sender<KillRequest>> {
    let mut started = KILLER.lock();
    if let Some(sender) = &*started {
        return Ok(sender.clone());
    }
    let (sender, requests) = mpsc::channel();
    let builder = thread::Builder::new().name("killer".to_owned());
    builder.spawn(move || serve(&requests))?;
    *started = Some(sender.clone());
    Ok(sender)
}

/// Serves all pending requests with each scan.
#[expect(clippy::disallowed_methods, reason = "runs on the killer thread")]
fn serve(requests: &mpsc::Receiver<KillRequest>) {
    let (mut pending, mut marks) = (Vec::new(), MarkCache::default());
    loop {
        if pending.is_empty() {
            marks.clear();
            match requests.recv() {
                Ok(request) => pending.push(request),
                Err(mpsc::RecvError) => return,
            }
        }
        pending.extend(requests.try_iter());
        let snapshot = ProcessSnapshot::take();
        if let Ok(snapshot) = &snapshot {
            marks.begin_scan(snapshot);
        }
        let mut unfinished = Vec::new();
        for mut request in pending {
            let outcome = match &snapshot {
                Ok(snapshot) => request.step(snapshot, &mut marks).map(Ok),
                Err(error) => Some(Err(io::Error::new(error.kind(), error.to_string()))),
            };
            match outcome {
                Some(outcome) => request.finish(outcome),
                None => unfinished.push(request),
            }
        }
        pending = unfinished;
        if !pending.is_empty() {
            thread::sleep(RESCAN_DELAY);
        }
    }
}

impl KillRequest {
    fn finish(self, outcome: io::Result<bool>) {
        let KillRequest { leader, reply, .. } = self;
        // Release the pin first: the caller may reap the leader as soon as it has the reply.
        drop(leader);
        let _ = reply.send(outcome);
    }

    /// Applies one snapshot. Returns the outcome once the request is finished.
    fn step(&mut self, snapshot: &ProcessSnapshot, marks: &mut MarkCache) -> Option<bool> {
        match &self.action {
            Action::Signal { signal, cgroup } => {
                let (signal, cgroup) = (*signal, cgroup.clone());
                self.signal_descendants(snapshot, signal, cgroup.as_ref());
                Some(true)
            }
            Action::Kill { mark, cgroup } => {
                let (mark, cgroup) = (mark.clone(), cgroup.clone());
                self.kill_step(snapshot, marks, &mark, cgroup.as_ref())
            }
        }
    }

    fn leader_pid(&self) -> Option<i32> {
        let leader = self.leader.as_ref();
        leader.map(|(leader, _)| leader.pid().cast_signed())
    }

    /// Signals the tree except for the leader's group, which has received the signal already.
    fn signal_descendants(
        &mut self,
        snapshot: &ProcessSnapshot,
        signal: Signal,
        cgroup: Option<&CgroupDirectory>,
    ) {
        let mut tree = snapshot.tree(HashSet::new(), &mut self.sessions);
        // A pid may have been reused between the snapshot and this read. Such a process is not
        // signalled, because it does not match its entry in the snapshot.
        tree.extend(cgroup.map(CgroupDirectory::pids).unwrap_or_default());
        let leader = self.leader_pid().and_then(|pid| snapshot.find(pid));
        let group = leader.map(|leader| leader.group);
        let processes = snapshot.processes.iter();
        for signalled in processes.filter(|process| Some(process.group) == group) {
            tree.remove(&signalled.pid);
        }
        snapshot.signal(&tree, signal);
        if needs_continue(signal) {
            snapshot.signal(&tree, Signal::SIGCONT);
        }
    }

    fn kill_step(
        &mut self,
        snapshot: &ProcessSnapshot,
        marks: &mut MarkCache,
        mark: &str,
        cgroup: Option<&CgroupDirectory>,
    ) -> Option<bool> {
        let leader = self.leader_pid();
        let since_ticks = *self.since_ticks.get_or_insert_with(|| {
            let leader = leader.and_then(|pid| snapshot.find(pid));
            leader.map_or(0, |leader| leader.start_ticks)
        });
        let marked = marks.find(snapshot, mark, since_ticks);
        // No process was missed if each that was listed was also read: the parent of one that was
        // not listed would have ended between its own listing and its reading. Neither was one
        // missed if none was started during the scan.
        let is_exact = !marked.has_unread
            && (!(snapshot.has_vanished || marked.has_ended) || snapshot.is_current());
        let tree = snapshot.tree(marked.pids, &mut self.sessions);
        let mut is_any_alive = snapshot.signal(&tree, Signal::SIGKILL);
        if let Some(cgroup) = cgroup.filter(|cgroup| cgroup.is_populated()) {
            is_any_alive = true;
            if let Err(error) = cgroup.kill() {
                tracing::warn!(%error, cgroup = %cgroup.path().display(), "cannot kill a cgroup");
            }
        }
        self.forget_ended_sessions(snapshot);
        self.empty_scans = match is_any_alive {
            true => 0,
            false => self.empty_scans + 1,
        };
        let is_confirmed = is_exact || cgroup.is_some() && self.empty_scans >= CONFIRMING_SCANS;
        if !is_any_alive && is_confirmed {
            return Some(true);
        }
        let is_timed_out = self.requested_at.elapsed() > KILL_TIMEOUT;
        if is_timed_out {
            tracing::warn!(
                ?KILL_TIMEOUT,
                is_any_alive,
                "cannot confirm that a process tree is dead"
            );
        }
        is_timed_out.then_some(false)
    }

    /// Removes sessions without living members, because their ids may be reused. The leader's
    /// session id stays valid while the leader is pinned.
    fn forget_ended_sessions(&mut self, snapshot: &ProcessSnapshot) {
        let alive = snapshot.live_sessions();
        let own = self.leader_pid();
        self.sessions
            .retain(|session| alive.contains(session) || Some(*session) == own);
    }
}
