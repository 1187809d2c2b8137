//! The machine's processes, read from /proc.

use std::{fs, path::Path};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

/// Returns the processes whose command line or initial environment names the directory.
/// Zombies are not included.
pub fn naming(directory: &Path) -> Vec<Process> {
    let name = directory
        .to_str()
        .expect("test directories have plain names");
    fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid: &u32| pid != std::process::id())
        .filter_map(|pid| {
            let read = |file: &str| {
                let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let command = read("cmdline");
            let names = command.contains(name) || read("environ").contains(name);
            (names && is_alive(pid)).then_some(Process { pid, command })
        })
        .collect()
}

pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    let name_end = stat.windows(2).rposition(|pair| pair == b") ");
    name_end.is_some_and(|at| !matches!(stat.get(at + 2), Some(b'Z' | b'X')))
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process number"));
    kill(pid, signal).expect("the process is there");
}

/// Resident memory in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS:")
}

/// Resident anonymous and shared memory in KiB: without pages of files, which the system can drop.
pub fn anonymous_kib(pid: u32) -> u64 {
    memory_kib(pid, "RssAnon:") + memory_kib(pid, "RssShmem:")
}

/// The growth of a process's peak resident memory.
pub struct PeakMemory {
    pid: u32,
    before_kib: u64,
}

impl PeakMemory {
    pub fn of(pid: u32) -> Self {
        // Resets the peak (`man 5 proc`).
        fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("it may be reset");
        let before_kib = resident_kib(pid);
        Self { pid, before_kib }
    }

    pub fn grown_kib(&self) -> u64 {
        memory_kib(self.pid, "VmHWM:").saturating_sub(self.before_kib)
    }
}

fn memory_kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .expect("the kernel reports it")
}

/// Returns the number of the process's threads with this name.
pub fn threads_named(pid: u32, name: &str) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    threads
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok())
        .filter(|found| found.trim_end() == name)
        .count()
}

/// Returns the number of processes that carry the mark of a spawned process.
pub fn marked(mark: &str) -> usize {
    let variable = format!("SPAWNED_PROCESS={mark}");
    let pids = fs::read_dir("/proc").expect("/proc is there").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|found| found == variable.as_bytes())
        })
        .count()
}
