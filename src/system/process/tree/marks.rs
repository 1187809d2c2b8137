//! The mark of a process tree: an environment variable that its processes inherit.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use nix::unistd::Pid;

use super::{MARK, snapshot::ProcessSnapshot};
use crate::system::process::stat::ProcStat;

/// A cache of the marks of processes, by pid and start time. A process never changes its mark.
#[derive(Default)]
pub(super) struct MarkCache(HashMap<(i32, u64), Vec<Vec<u8>>>);

/// The result of a search by mark.
pub(super) struct MarkedProcesses {
    pub(super) pids: HashSet<i32>,
    /// Whether the environment of every candidate could be read.
    pub(super) is_complete: bool,
}

impl MarkCache {
    /// Finds the living processes that started at `since_ticks` or later and whose mark starts
    /// with `prefix`.
    pub(super) fn find(
        &mut self,
        snapshot: &ProcessSnapshot,
        prefix: &str,
        since_ticks: u64,
    ) -> MarkedProcesses {
        let own = Pid::this().as_raw();
        let mut found = MarkedProcesses {
            pids: HashSet::new(),
            is_complete: true,
        };
        for process in &snapshot.processes {
            // Processes without a session are kernel threads.
            let is_candidate = process.session > 0 && process.start_ticks >= since_ticks;
            if process.pid == own || process.has_ended() || !is_candidate {
                continue;
            }
            match self.read(process, own) {
                Some(marks) if marks.iter().any(|m| m.starts_with(prefix.as_bytes())) => {
                    found.pids.insert(process.pid);
                }
                Some(_) => {}
                None => found.is_complete = false,
            }
        }
        found
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn read(&mut self, process: &ProcStat, own: i32) -> Option<Vec<Vec<u8>>> {
        let key = (process.pid, process.start_ticks);
        if let Some(marks) = self.0.get(&key) {
            return Some(marks.clone());
        }
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).ok()?;
        let variables = environment.split(|byte| *byte == 0);
        let marks: Vec<Vec<u8>> = variables
            .filter_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
            .map(<[u8]>::to_vec)
            .collect();
        // A child before its exec still has the agent's environment, and an exiting process has
        // none. Both results are temporary.
        if process.parent != own && !environment.is_empty() {
            self.0.insert(key, marks.clone());
        }
        Some(marks)
    }
}
