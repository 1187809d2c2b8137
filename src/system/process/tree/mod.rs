//! Process trees: finding, signalling and killing everything that a client process started.
//!
//! A tree consists of four kinds of processes:
//!
//! - members of the leader's session, and all descendants;
//! - members of every session that a descendant started (no process can join a session from
//!   outside);
//! - processes with the tree's [`MARK`] in their environment, which they inherit. The mark
//!   finds those that started another session and lost their parents. Only kills search for it;
//! - members of the leader's cgroup, if it has one.
//!
//! Without a cgroup, a process that left its session, lost its parents and cleared its
//! environment cannot be attributed to a tree.
//!
//! ```text
//! kill_tree ──▶ killer thread ──▶ snapshot of /proc ──▶ SIGKILL to the tree ──┐
//!                    ▲                                                       │ repeat until
//!                    └───────────────────────────────────────────────────────┘ confirmed dead
//!                                                                              or 5 s passed
//! ```
//!
//! `snapshot` reads `/proc`, `marks` reads environments, `killer` owns pending requests.

mod killer;
mod marks;
mod snapshot;

pub use snapshot::{ProcessSnapshot, Usage};

use std::{io, sync::Arc};

use nix::sys::signal::Signal;
use tokio::task::spawn_blocking;

use self::killer::{Action, needs_continue};
use crate::system::process::{cgroup::CgroupDirectory, session::Leader};

/// The environment variable that holds the mark of a tree.
pub const MARK: &str = "SPAWNED_PROCESS";
/// The length of every mark: two UUIDs, separated by a dot.
pub(super) const MARK_BYTES: usize = 2 * uuid::fmt::Hyphenated::LENGTH + 1;

/// Starts the threads that find and kill processes, while the system has room for them: processes
/// of a client may use it up later.
///
/// # Errors
/// Fails if the system refuses.
pub fn start_threads() -> io::Result<()> {
    snapshot::start();
    killer::start().map(drop)
}

/// Returns whether a process has a [`MARK`] that starts with `prefix`, or may have one because its
/// environment cannot be read. Waits a few seconds for processes that are in the middle of exec.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub(super) async fn is_any_marked(prefix: String) -> io::Result<bool> {
    let searched = spawn_blocking(move || marks::is_any_marked(&prefix)).await;
    searched.map_err(io::Error::other)?
}

/// Signals the session and the cgroup of `leader` and all descendants. SIGTERM and SIGHUP also
/// continue stopped processes, which could not handle the signal otherwise.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub async fn signal_tree(leader: Arc<Leader>, signal: Signal) -> io::Result<()> {
    // The group gets the signal at once, however long the scan takes.
    leader.signal(signal);
    if needs_continue(signal) {
        leader.signal(Signal::SIGCONT);
    }
    let Some(pin) = Leader::pin(&leader) else {
        return Ok(());
    };
    let cgroup = leader.cgroup();
    let action = Action::Signal { signal, cgroup };
    let signalled = killer::run(Some((leader, pin)), action).await;
    signalled.map(|_| ())
}

/// Kills the session and the cgroup of `leader`, all descendants, and all processes whose [`MARK`]
/// starts with `mark`, until none is left. Returns `false` if some survived for five seconds.
///
/// # Errors
/// Fails if `/proc` cannot be read; the leader's group and cgroup are killed even then.
pub async fn kill_tree(leader: Arc<Leader>, mark: String) -> io::Result<bool> {
    // A scan takes longer than most programs.
    if leader.has_left_nothing() {
        return Ok(true);
    }
    let pinned = Leader::pin(&leader).map(|pin| (leader.clone(), pin));
    // The scan comes before the first signal: descendants cannot be found once their parents are
    // dead.
    let cgroup = leader.cgroup();
    let killed = killer::run(pinned, Action::Kill { mark, cgroup }).await;
    if killed.is_err() {
        leader.signal(Signal::SIGKILL);
        if let Some(cgroup) = leader.cgroup() {
            let _ = cgroup.kill();
        }
    }
    killed
}

/// Kills all processes whose [`MARK`] starts with `mark`, their descendants, and all processes in
/// `cgroup`. Returns `false` if some survived for five seconds.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub(super) async fn kill_marked(mark: String, cgroup: Option<CgroupDirectory>) -> io::Result<bool> {
    killer::run(None, Action::Kill { mark, cgroup }).await
}
