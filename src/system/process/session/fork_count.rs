//! Whether anything was started but programs of clients.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use crate::system::process::stat::last_pid;

/// The time in which the kernel hardly gives all pids, even if there are few. For a program that
/// takes longer, a scan of all processes makes no difference.
const PID_REUSE: Duration = Duration::from_secs(1);

/// The number of forks for programs of clients, with those in progress.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// The number of them that succeeded.
static FORKED: AtomicU64 = AtomicU64::new(0);

/// Counts a fork for a program of a client.
pub(super) fn count_fork<T, E>(fork: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    STARTED.fetch_add(1, SeqCst);
    let forked = fork();
    match forked {
        Ok(_) => FORKED.fetch_add(1, SeqCst),
        Err(_) => STARTED.fetch_sub(1, SeqCst),
    };
    forked
}

/// The forks before a program was started.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForkCount {
    counted_at: Instant,
    /// Each fork advances it by at least one.
    last_pid: u32,
    /// The forks for programs of clients until then, and further ones that are in progress.
    of_clients: u64,
}

impl ForkCount {
    /// Returns `None` if the system does not provide it.
    pub(super) fn now() -> Option<Self> {
        let counted_at = Instant::now();
        // A fork in between counts as one of something else, never the other way round.
        let last_pid = last_pid()?;
        Some(ForkCount {
            counted_at,
            last_pid,
            of_clients: STARTED.load(SeqCst),
        })
    }

    /// Whether it is certain that nothing was forked since but the first processes of programs of
    /// clients.
    pub(super) fn only_clients_forked_since(self) -> bool {
        // In this order for the same reason.
        let of_clients = FORKED.load(SeqCst);
        last_pid().is_some_and(|last_pid| self.is_explained_by(of_clients, last_pid))
            && self.counted_at.elapsed() < PID_REUSE
    }

    /// Whether all pids that were given since are those of clients.
    fn is_explained_by(self, of_clients: u64, last_pid: u32) -> bool {
        let pids = last_pid.checked_sub(self.last_pid).map(u64::from);
        pids.is_some() && pids == of_clients.checked_sub(self.of_clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_of_another_process_is_noticed_beside_programs_of_clients() {
        let before = ForkCount {
            counted_at: Instant::now(),
            last_pid: 100,
            of_clients: 7,
        };
        for (of_clients, last_pid, expected) in [
            (7, 100, true),
            (9, 102, true),
            (7, 101, false),
            (9, 103, false),
            // In progress: forked and not counted yet, or before and not since.
            (8, 102, false),
            (6, 100, false),
            // The kernel has started again from the lowest pid.
            (6, 99, false),
            (9, 50, false),
        ] {
            let is_explained = before.is_explained_by(of_clients, last_pid);
            assert_eq!(is_explained, expected, "{of_clients} until {last_pid}");
        }
    }

    #[test]
    fn failed_forks_are_not_counted() {
        for (forked, expected) in [(Ok(()), 1), (Err(()), 0)] {
            let counts = || (STARTED.load(SeqCst), FORKED.load(SeqCst));
            let before = counts();
            assert_eq!(count_fork(|| forked), forked);
            assert_eq!(counts(), (before.0 + expected, before.1 + expected));
        }
    }
}
