//! The mark of a process tree: an environment variable that its processes inherit.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, BufRead, BufReader, Read},
};

use nix::unistd::Pid;

use super::{MARK, MARK_BYTES, snapshot::ProcessSnapshot};
use crate::system::process::stat::ProcStat;

/// The most bytes that are read of an environment: the kernel's limit on the arguments and the
/// environment of a program together. A process can declare any part of its memory its environment,
/// so that the file is as long as it likes.
const MAX_ENVIRONMENT_BYTES: u64 = 6 << 20;
/// The most marks that are kept of a process. Programs receive one.
const MAX_MARKS: usize = 4;
/// The length of the variable with a mark: its name, `=` and the mark.
const VARIABLE_BYTES: usize = MARK.len() + 1 + MARK_BYTES;
/// The bytes that are read at once.
const CHUNK_BYTES: usize = 16 << 10;

type Mark = [u8; MARK_BYTES];

/// A cache of the marks of processes, by pid and start time.
#[derive(Default)]
pub(super) struct MarkCache(HashMap<(i32, u64), Vec<Mark>>);

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

    /// Removes the processes that are not in `snapshot`, which bounds the cache.
    pub(super) fn retain(&mut self, snapshot: &ProcessSnapshot) {
        let listed: HashSet<(i32, u64)> = snapshot.processes.iter().map(key).collect();
        self.0.retain(|process, _| listed.contains(process));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn read(&mut self, process: &ProcStat, own: i32) -> Option<Vec<Mark>> {
        if let Some(marks) = self.0.get(&key(process)) {
            return Some(marks.clone());
        }
        let environment = File::open(format!("/proc/{}/environ", process.pid)).ok()?;
        let (marks, is_empty) = find_marks(environment).ok()?;
        // A child before its exec still has the agent's environment, and an exiting process has
        // none. Both results are temporary.
        if process.parent != own && !is_empty {
            self.0.insert(key(process), marks.clone());
        }
        Some(marks)
    }
}

fn key(process: &ProcStat) -> (i32, u64) {
    (process.pid, process.start_ticks)
}

/// Returns the marks in an environment, and whether the environment is empty. Reads at most
/// [`MAX_ENVIRONMENT_BYTES`], and retains no more of them than one variable.
fn find_marks(environment: impl Read) -> io::Result<(Vec<Mark>, bool)> {
    let limited = environment.take(MAX_ENVIRONMENT_BYTES);
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, limited);
    let (mut marks, mut is_empty) = (Vec::new(), true);
    let mut variable = Vec::with_capacity(VARIABLE_BYTES + 1);
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        is_empty = false;
        let end = chunk.iter().position(|byte| *byte == 0);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        // The additional byte distinguishes a longer variable.
        let room = VARIABLE_BYTES + 1 - variable.len();
        variable.extend_from_slice(&part[..part.len().min(room)]);
        let consumed = part.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_some() {
            marks.extend(mark_in(&variable));
            variable.clear();
        }
        if marks.len() == MAX_MARKS {
            break;
        }
    }
    Ok((marks, is_empty))
}

/// Returns the value of a variable that has the name and the length of a mark.
fn mark_in(variable: &[u8]) -> Option<Mark> {
    let value = variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?;
    value.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// An endless environment that counts the bytes read from it.
    struct Endless<'a>(&'a Cell<u64>);

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(
                self.0.get() <= MAX_ENVIRONMENT_BYTES,
                "reads beyond the limit"
            );
            buffer.fill(b'x');
            self.0.set(self.0.get() + buffer.len() as u64);
            Ok(buffer.len())
        }
    }

    fn variable(mark: &str) -> Vec<u8> {
        format!("{MARK}={mark}\0").into_bytes()
    }

    fn marks(environment: &[u8]) -> Vec<Mark> {
        find_marks(environment).unwrap().0
    }

    #[test]
    fn search_of_an_endless_environment_stops_at_the_limit() {
        let read = Cell::new(0);
        let first = variable(&"m".repeat(MARK_BYTES));
        let (marks, is_empty) = find_marks(first.as_slice().chain(Endless(&read))).unwrap();
        assert_eq!((marks.len(), is_empty), (1, false));
        assert!(read.get() <= MAX_ENVIRONMENT_BYTES, "{}", read.get());
    }

    #[test]
    fn search_finds_a_mark_behind_long_variables_and_across_chunks() {
        let mark = variable(&"m".repeat(MARK_BYTES));
        for before in CHUNK_BYTES - mark.len()..=CHUNK_BYTES {
            let mut environment = vec![b'x'; before];
            environment.push(0);
            environment.extend(&mark);
            assert_eq!(marks(&environment), [[b'm'; MARK_BYTES]], "{before}");
        }
    }

    #[test]
    fn mark_has_one_length_and_marks_are_bounded() {
        for length in [0, MARK_BYTES - 1, MARK_BYTES + 1, 10 * CHUNK_BYTES] {
            assert!(marks(&variable(&"m".repeat(length))).is_empty(), "{length}");
        }
        let many = variable(&"m".repeat(MARK_BYTES)).repeat(MAX_MARKS + 1);
        assert_eq!(marks(&many).len(), MAX_MARKS);
        assert!(find_marks(io::empty()).unwrap().1);
    }
}
