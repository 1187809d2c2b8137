//! Shortages of the machine: of space on its disk, or of memory. `GET /health` and the log report
//! them.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::interval;

use crate::{
    shutdown::Shutdown,
    system::{files::space::FileSystemSpace, process::memory::MachineMemory},
};

/// The time between two checks for the log.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The parts of disk and memory, in percent, below which too little is free.
const MIN_FREE_PERCENT: u64 = 5;

/// A shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineProblem {
    Disk(Amount),
    Memory(Amount),
}

/// An amount, and the part of it that is free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    free: u64,
    total: u64,
}

impl Amount {
    fn is_low(self) -> bool {
        self.free.saturating_mul(100) < self.total.saturating_mul(MIN_FREE_PERCENT)
    }
}

impl fmt::Display for MachineProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, Amount { free, total }) = match self {
            Self::Disk(amount) => ("the disk of the state directory is nearly full", amount),
            Self::Memory(amount) => ("the memory is nearly used up", amount),
        };
        let [free, total] = [free, total].map(|bytes| bytes >> 20);
        write!(formatter, "{name}: {free} of {total} MiB are free")
    }
}

/// Returns the present shortages. An amount that cannot be read is left out.
pub(super) fn find(state_dir: &Path, memory: Option<MachineMemory>) -> Vec<MachineProblem> {
    let disk = FileSystemSpace::read(state_dir).ok().map(|space| Amount {
        free: space.available,
        total: space.total,
    });
    let memory = memory.map(|memory| Amount {
        free: memory.available,
        total: memory.total,
    });
    let is_low = |amount: &Amount| amount.is_low();
    let problems = [
        disk.filter(is_low).map(MachineProblem::Disk),
        memory.filter(is_low).map(MachineProblem::Memory),
    ];
    problems.into_iter().flatten().collect()
}

/// Logs each problem when it begins and when it ends, until shutdown.
pub(super) fn log_changes(state_dir: PathBuf, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        let mut checks = interval(CHECK_INTERVAL);
        let mut known = Vec::new();
        loop {
            tokio::select! {
                _ = checks.tick() => {
                    log_change(&mut known, find(&state_dir, MachineMemory::read().ok()));
                }
                () = stop.requested() => return,
            }
        }
    });
}

fn log_change(known: &mut Vec<MachineProblem>, found: Vec<MachineProblem>) {
    let is_same = |one: &MachineProblem, other: &MachineProblem| {
        std::mem::discriminant(one) == std::mem::discriminant(other)
    };
    for problem in &found {
        if !known.iter().any(|other| is_same(problem, other)) {
            tracing::warn!("{problem}");
        }
    }
    for problem in known.iter() {
        if !found.iter().any(|other| is_same(problem, other)) {
            tracing::info!("no longer: {problem}");
        }
    }
    *known = found;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_twentieth_is_low() {
        let is_low = |free, total| Amount { free, total }.is_low();
        assert!(is_low(4, 100) && is_low(0, 1));
        assert!(!is_low(5, 100) && !is_low(0, 0));
        let bytes = u64::MAX;
        assert!(!is_low(bytes, bytes));
    }

    #[test]
    fn problem_names_the_free_part() {
        let amount = Amount {
            free: 3 << 20,
            total: 2 << 30,
        };
        assert_eq!(
            MachineProblem::Disk(amount).to_string(),
            "the disk of the state directory is nearly full: 3 of 2048 MiB are free"
        );
        assert_eq!(
            MachineProblem::Memory(amount).to_string(),
            "the memory is nearly used up: 3 of 2048 MiB are free"
        );
    }

    #[test]
    fn memory_that_is_low_is_found() {
        let memory = |available| MachineMemory {
            total: 100,
            available,
        };
        let is_found = |memory| {
            let found = find(Path::new("/nonexistent"), Some(memory));
            found
                == [MachineProblem::Memory(Amount {
                    free: memory.available,
                    total: 100,
                })]
        };
        assert!(is_found(memory(4)));
        assert!(!is_found(memory(5)));
        assert_eq!(find(Path::new("/nonexistent"), None), []);
    }

    #[test]
    fn problem_is_known_until_it_ends() {
        let of = |free| MachineProblem::Disk(Amount { free, total: 100 });
        let mut known = Vec::new();
        log_change(&mut known, vec![of(1)]);
        log_change(&mut known, vec![of(2)]);
        assert_eq!(known, [of(2)]);
        log_change(&mut known, Vec::new());
        assert_eq!(known, []);
    }
}
