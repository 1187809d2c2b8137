//! The machine's processes, read from /proc.

use std::{fs, path::Path};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::Command;

use super::wait::until;

/// The uid and gid of `nobody`.
pub const NOBODY: u32 = 65_534;

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
    living(|process| process.command.contains(name) || read(process.pid, "environ").contains(name))
}

/// Returns the members of a process group.
pub fn in_group(group: u32) -> Vec<Process> {
    living(|process| {
        let group_of = nix::unistd::getpgid(Some(Pid::from_raw(process.pid.cast_signed())));
        group_of.is_ok_and(|found| found.as_raw().cast_unsigned() == group)
    })
}

fn living(matches: impl Fn(&Process) -> bool) -> Vec<Process> {
    pids()
        .filter(|&pid| pid != std::process::id())
        .map(|pid| Process {
            pid,
            command: read(pid, "cmdline"),
        })
        .filter(|process| matches(process) && is_alive(process.pid))
        .collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Reads a file of a process, with spaces for NULs.
fn read(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    let name_end = stat.windows(2).rposition(|pair| pair == b") ");
    name_end.is_some_and(|at| !matches!(stat.get(at + 2), Some(b'Z' | b'X')))
}

/// Returns a field of `/proc/<pid>/status`, or nothing if the process has ended.
pub fn status_field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = status.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        Some(value.trim().to_owned())
    });
    field.unwrap_or_default()
}

/// Returns the user of a process.
pub fn uid(pid: u32) -> Option<u32> {
    status_field(pid, "Uid")
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Returns the living child processes of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    pids()
        .filter(|&pid| status_field(pid, "PPid") == parent && is_alive(pid))
        .collect()
}

/// Returns the living processes of a user.
pub fn of_user(user: u32) -> Vec<u32> {
    pids()
        .filter(|&pid| uid(pid) == Some(user) && is_alive(pid))
        .collect()
}

/// Returns a command that runs a program as `nobody`. Needs root.
pub fn command_as_nobody(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .env("PATH", "/usr/bin:/bin")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", program])
        .kill_on_drop(true);
    command
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process number"));
    kill(pid, signal).expect("the process is there");
}

/// Stops a process, and waits until none of its threads runs: a thread that has not seen the signal
/// yet may still read what it is sent.
pub async fn stop(pid: u32) {
    signal(pid, Signal::SIGSTOP);
    until("every thread to be stopped", async || {
        threads(pid)
            .all(|thread| status_field(thread, "State").starts_with('T'))
            .then_some(())
    })
    .await;
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
    let name_of = |thread| fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).ok();
    threads(pid)
        .filter_map(name_of)
        .filter(|found| found.trim_end() == name)
        .count()
}

/// Returns the ids of a process's threads.
pub fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns the number of processes that carry the mark of a spawned process.
pub fn marked(mark: &str) -> usize {
    let variable = format!("SPAWNED_PROCESS={mark}");
    pids()
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|found| found == variable.as_bytes())
        })
        .count()
}
