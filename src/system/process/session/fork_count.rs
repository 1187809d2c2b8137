//! Whether anything was started on the machine but programs of clients.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::system::process::stat::fork_count;

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

/// The number of forks at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForkCount {
    of_machine: u64,
    /// The part of them for programs of clients, and further ones that are in progress.
    of_clients: u64,
}

impl ForkCount {
    /// Returns `None` if the system does not provide it.
    pub(super) fn now() -> Option<Self> {
        // A fork in between counts as one of something else, never the other way round.
        let of_machine = fork_count()?;
        Some(ForkCount {
            of_machine,
            of_clients: STARTED.load(SeqCst),
        })
    }

    /// Whether it is certain that nothing was forked since but the first processes of programs of
    /// clients.
    pub(super) fn only_clients_forked_since(self) -> bool {
        // In this order for the same reason.
        let of_clients = FORKED.load(SeqCst);
        fork_count().is_some_and(|of_machine| self.is_explained_by(of_clients, of_machine))
    }

    /// Whether all forks of the machine since are those of clients.
    fn is_explained_by(self, of_clients: u64, of_machine: u64) -> bool {
        let of_clients = of_clients.checked_sub(self.of_clients);
        of_clients.is_some() && of_clients == of_machine.checked_sub(self.of_machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_of_another_process_is_noticed_beside_programs_of_clients() {
        let before = ForkCount {
            of_machine: 100,
            of_clients: 7,
        };
        for (of_clients, of_machine, expected) in [
            (7, 100, true),
            (9, 102, true),
            (7, 101, false),
            (9, 103, false),
            // In progress: forked and not counted yet, or before and not since.
            (8, 102, false),
            (6, 100, false),
            // No counts of this machine.
            (6, 99, false),
            (9, 50, false),
        ] {
            let is_explained = before.is_explained_by(of_clients, of_machine);
            assert_eq!(is_explained, expected, "{of_clients} of {of_machine}");
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
