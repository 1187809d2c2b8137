//! The mark of a process tree: an environment variable that its processes inherit.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    thread,
    time::{Duration, Instant},
};

use nix::{errno::Errno, unistd::Pid};

use super::{MARK, MARK_BYTES, snapshot::ProcessSnapshot};
use crate::system::process::{MAX_PROGRAM_STRINGS, stat::ProcStat};

/// The most marks that are kept of a process. Programs receive one.
const MAX_MARKS: usize = 4;
/// The length of the variable with a mark: its name, `=` and the mark.
const VARIABLE_BYTES: usize = MARK.len() + 1 + MARK_BYTES;
/// The bytes that are read at once.
const CHUNK_BYTES: usize = 16 << 10;
/// The time that a search waits for processes in the middle of exec, which the file system may
/// delay.
const EXEC_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before such a process is read again.
const EXEC_RETRY_DELAY: Duration = Duration::from_millis(1);

type Mark = [u8; MARK_BYTES];

/// A process: its pid and start time.
type ProcessKey = (i32, u64);

/// The marks of processes, and the processes whose marks could not be read.
#[derive(Default)]
pub(super) struct MarkCache {
    marks: HashMap<ProcessKey, Vec<Mark>>,
    /// Processes of this scan, with whether they have ended.
    unread: HashSet<(ProcessKey, bool)>,
    /// The same of the scan before.
    unread_before: HashSet<(ProcessKey, bool)>,
}

/// The result of a search by mark.
#[derive(Default)]
pub(super) struct MarkedProcesses {
    pub(super) pids: HashSet<i32>,
    /// Whether a process is alive whose environment could be missing just for a moment: while it
    /// calls exec, the kernel replaces it.
    pub(super) has_unread: bool,
    /// Whether a process has ended since the last scan. It may have forked after it was listed.
    pub(super) has_ended: bool,
}

/// The result of reading the environment of a process.
enum Reading {
    Marks(Vec<Mark>),
    /// The environment is empty or not accessible.
    Nothing,
    Ended,
}

impl MarkCache {
    /// Begins a scan. Drops the marks of processes that are not in `snapshot`, which bounds the
    /// cache.
    pub(super) fn begin_scan(&mut self, snapshot: &ProcessSnapshot) {
        let listed: HashSet<ProcessKey> = snapshot.processes.iter().map(key).collect();
        self.marks.retain(|process, _| listed.contains(process));
        self.unread_before = std::mem::take(&mut self.unread);
    }

    /// Finds the living processes that started at `since_ticks` or later and whose mark starts
    /// with `prefix`.
    pub(super) fn find(
        &mut self,
        snapshot: &ProcessSnapshot,
        prefix: &str,
        since_ticks: u64,
    ) -> MarkedProcesses {
        let own = Pid::this().as_raw();
        let mut found = MarkedProcesses::default();
        for process in &snapshot.processes {
            let is_candidate = !process.is_kernel_thread && process.start_ticks >= since_ticks;
            if process.pid == own || !is_candidate {
                continue;
            }
            let is_marked = |marks: &Vec<Mark>| {
                let mut marks = marks.iter();
                marks.any(|mark| mark.starts_with(prefix.as_bytes()))
            };
            if process.has_ended() {
                let known = self.marks.get(&key(process));
                // The children of a process without the mark do not have it either.
                let is_unmarked = known.is_some_and(|marks| !is_marked(marks));
                found.has_ended |= !is_unmarked && self.is_newly_unread(process);
                continue;
            }
            match self.read(process, own) {
                Reading::Marks(marks) if is_marked(&marks) => {
                    found.pids.insert(process.pid);
                }
                Reading::Marks(_) => {}
                Reading::Nothing => found.has_unread |= self.is_newly_unread(process),
                Reading::Ended => found.has_ended = true,
            }
        }
        found
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn is_newly_unread(&mut self, process: &ProcStat) -> bool {
        let entry = (key(process), process.has_ended());
        self.unread.insert(entry);
        !self.unread_before.contains(&entry)
    }

    fn read(&mut self, process: &ProcStat, own: i32) -> Reading {
        if let Some(marks) = self.marks.get(&key(process)) {
            return Reading::Marks(marks.clone());
        }
        let environment = File::open(format!("/proc/{}/environ", process.pid));
        match environment.and_then(find_marks) {
            Ok(None) => Reading::Nothing,
            Ok(Some(marks)) => {
                // A child before its exec still has the agent's environment.
                if process.parent != own {
                    self.marks.insert(key(process), marks.clone());
                }
                Reading::Marks(marks)
            }
            Err(error) if has_ended(&error) => Reading::Ended,
            // A process that the agent may not read is in general one that it may not kill either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Reading::Marks(Vec::new())
            }
            Err(_) => Reading::Nothing,
        }
    }
}

fn key(process: &ProcStat) -> ProcessKey {
    (process.pid, process.start_ticks)
}

/// Returns whether a process has a mark that starts with `prefix`. One that is in the middle of
/// exec for [`EXEC_TIMEOUT`], or whose environment cannot be read, counts as marked, unless the
/// agent may not read it. Blocks while it reads the environments of all processes.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub(super) fn is_any_marked(prefix: &str) -> io::Result<bool> {
    let deadline = Instant::now() + EXEC_TIMEOUT;
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid| may_be_marked(pid, prefix, deadline)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[expect(
    clippy::disallowed_methods,
    reason = "runs on a thread for blocking work"
)]
fn may_be_marked(pid: i32, prefix: &str, deadline: Instant) -> bool {
    loop {
        let environment = File::open(format!("/proc/{pid}/environ"));
        match environment.and_then(find_marks) {
            Ok(Some(marks)) => {
                let mut marks = marks.iter();
                return marks.any(|mark| mark.starts_with(prefix.as_bytes()));
            }
            Ok(None) => {
                let process = ProcStat::of(pid);
                let replaced = process.filter(|now| now.is_in_exec || now.has_variables);
                let Some(process) = replaced else {
                    return false;
                };
                if Instant::now() > deadline {
                    return process.is_in_exec;
                }
                thread::sleep(EXEC_RETRY_DELAY);
            }
            Err(error) => {
                return error.kind() != io::ErrorKind::PermissionDenied && !has_ended(&error);
            }
        }
    }
}

/// Returns whether an error of a file in `/proc/<pid>` means that the process has ended.
fn has_ended(error: &io::Error) -> bool {
    let ended = [Errno::ENOENT, Errno::ESRCH];
    error
        .raw_os_error()
        .is_some_and(|code| ended.contains(&Errno::from_raw(code)))
}

/// Returns the marks in an environment, or `None` if it is empty. Reads at most
/// [`MAX_PROGRAM_STRINGS`], and retains no more of them than one variable.
fn find_marks(environment: impl Read) -> io::Result<Option<Vec<Mark>>> {
    let limited = environment.take(MAX_PROGRAM_STRINGS);
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
    Ok((!is_empty).then_some(marks))
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
                self.0.get() <= MAX_PROGRAM_STRINGS,
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
        find_marks(environment).unwrap().unwrap()
    }

    #[tokio::test]
    async fn process_with_a_mark_is_found_from_its_start_to_its_end() {
        // Some of them are in the middle of exec when the search reads them. Setting the user makes
        // the start wait until the memory of this process is replaced.
        let user = nix::unistd::getuid().as_raw();
        for _ in 0..32 {
            let prefix = format!("{}.", uuid::Uuid::new_v4());
            let mut command = tokio::process::Command::new("sleep");
            let mark = format!("{prefix}{}", uuid::Uuid::new_v4());
            let marked = command.arg("1000").env(MARK, mark).uid(user);
            let mut child = marked.kill_on_drop(true).spawn().unwrap();
            assert!(is_any_marked(&prefix).unwrap());
            child.kill().await.unwrap();
            assert!(!is_any_marked(&prefix).unwrap());
        }
    }

    #[test]
    fn search_of_an_endless_environment_stops_at_the_limit() {
        let read = Cell::new(0);
        let first = variable(&"m".repeat(MARK_BYTES));
        let marks = find_marks(first.as_slice().chain(Endless(&read))).unwrap();
        assert_eq!(marks.map(|marks| marks.len()), Some(1));
        assert!(read.get() <= MAX_PROGRAM_STRINGS, "{}", read.get());
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
        assert_eq!(find_marks(io::empty()).unwrap(), None);
    }
}
