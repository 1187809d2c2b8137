//! `/proc/<pid>/stat`, the kernel's data about one process or thread, the number of forks in
//! `/proc/stat`, and the last pid in `/proc/loadavg`.

use std::{
    fs::{self, DirEntry, File},
    io::Read,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::LazyLock,
};

use nix::unistd::Uid;

/// The flag of kernel threads, `PF_KTHREAD` in the kernel's `sched.h`.
const KERNEL_THREAD: i64 = 0x0020_0000;
/// The flags of processes that end, `PF_EXITING`, and of those that have executed no program since
/// their fork, `PF_FORKNOEXEC`.
const EXITING: i64 = 0x4;
const NOT_EXECUTED: i64 = 0x40;
/// Longer than any line, which has about fifty numbers and a name.
const MAX_LINE: usize = 2048;

/// Returns the number of processes and threads that were started since the machine was booted.
pub(super) fn fork_count() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let count = stat
        .lines()
        .find_map(|line| line.strip_prefix("processes "));
    count?.parse().ok()
}

/// Returns the pid that was given last to a process or a thread of this PID namespace. The kernel
/// gives them in ascending order, until it starts again from the lowest free one.
pub(super) fn last_pid() -> Option<u32> {
    static AVERAGES: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/loadavg").ok());
    let mut line = [0; MAX_LINE];
    let length = AVERAGES.as_ref()?.read_at(&mut line, 0).ok()?;
    let line = str::from_utf8(&line[..length]).ok()?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The fields of one `stat` line that are used here.
#[derive(Debug, Clone, Copy)]
pub struct ProcStat {
    pub pid: i32,
    /// The state letter of `proc_pid_stat(5)`.
    pub state: char,
    pub parent: i32,
    pub group: i32,
    /// 0 if its leader is outside the PID namespace, as after `docker exec`.
    pub session: i32,
    pub is_kernel_thread: bool,
    /// Whether it ends or has ended, and has executed no program since its fork.
    pub ends_unexecuted: bool,
    /// Whether exec has removed its last program, and its environment, and has not set up the next
    /// one yet. Never if the agent may not read the addresses of its memory.
    pub is_in_exec: bool,
    /// Whether its environment has variables. Never if the agent may not read those addresses.
    pub has_variables: bool,
    /// Start time in clock ticks since boot. Together with the pid it identifies a process.
    pub start_ticks: u64,
    /// CPU time in clock ticks, including that of reaped children.
    pub cpu_ticks: u64,
    pub resident_pages: u64,
}

impl ProcStat {
    /// Reads the entry of a process. Returns `None` if there is no such process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Self::read(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// Reads a `stat` file of a process or a thread.
    #[must_use]
    pub fn read(file: &Path) -> Option<Self> {
        // One read returns the complete line. Reading until end-of-file would cost a second call.
        let mut line = [0; MAX_LINE];
        let read = File::open(file).ok()?.read(&mut line).ok()?;
        Self::parse(&line[..read])
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        let pid = stat.split(|byte| *byte == b' ').next()?;
        // The name in parentheses may contain any bytes, including parentheses.
        let name_end = stat.windows(2).rposition(|pair| pair == b") ")?;
        let rest = std::str::from_utf8(&stat[name_end + 2..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc_pid_stat(5), where the state is the third field.
        let field = |number: usize| fields.get(number - 3).copied();
        let signed = |number: usize| field(number)?.parse::<i64>().ok();
        let unsigned = |number: usize| signed(number).and_then(|n| u64::try_from(n).ok());
        let flags = signed(9)?;
        let (is_kernel_thread, is_exiting) = (flags & KERNEL_THREAD != 0, flags & EXITING != 0);
        // Exec sets this start of the code after the environment. Programs may choose any number.
        let has_code = field(26)? != "0";
        Some(ProcStat {
            pid: std::str::from_utf8(pid).ok()?.parse().ok()?,
            state: field(3)?.chars().next()?,
            parent: i32::try_from(signed(4)?).ok()?,
            group: i32::try_from(signed(5)?).ok()?,
            session: i32::try_from(signed(6)?).ok()?,
            is_kernel_thread,
            ends_unexecuted: is_exiting && flags & NOT_EXECUTED != 0,
            is_in_exec: !has_code && !is_kernel_thread && !is_exiting,
            has_variables: field(50)? != field(51)?,
            cpu_ticks: unsigned(14)? + unsigned(15)? + unsigned(16)? + unsigned(17)?,
            start_ticks: unsigned(22)?,
            resident_pages: unsigned(24)?,
        })
    }

    /// Returns whether the pid still belongs to the same process, in the same process group.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        Self::of(self.pid)
            .is_some_and(|now| now.start_ticks == self.start_ticks && now.group == self.group)
    }

    /// Returns whether the process is a zombie or dead.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Returns the ids of the living processes of users. Zombies are not among them.
#[must_use]
pub fn living_of(users: &[Uid]) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let living = |entry: DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let owner = Uid::from_raw(entry.metadata().ok()?.uid());
        (users.contains(&owner) && !ProcStat::of(pid)?.has_ended()).then_some(pid)
    };
    entries.filter_map(living).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_accepts_a_name_that_looks_like_fields() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let mut line = b"7 (a) S \xff (b) R ".to_vec();
        line.extend(fields.join(" ").bytes());
        let stat = ProcStat::parse(&line).unwrap();
        assert_eq!((stat.pid, stat.state), (7, 'R'));
        assert_eq!((stat.parent, stat.group), (4, 5));
        assert_eq!((stat.session, stat.cpu_ticks), (6, 14 + 15 + 16 + 17));
        assert_eq!((stat.start_ticks, stat.resident_pages), (22, 24));
        assert!(!stat.is_kernel_thread);
        assert!(ProcStat::parse(b"7 (cut) R 1 2").is_none());
    }

    fn stat(flags: u32) -> ProcStat {
        let line = format!("7 (name) S 0 0 0 0 -1 {flags} {}", "0 ".repeat(43));
        ProcStat::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn process_that_ends_on_the_program_of_its_parent_is_recognised() {
        assert!(stat(0x0040_0044).ends_unexecuted);
        assert!(!stat(0x0040_0040).ends_unexecuted);
        assert!(!stat(0x0040_0004).ends_unexecuted);
    }

    #[test]
    fn process_without_code_is_in_exec_unless_it_never_has_code() {
        assert!(stat(0x0040_0000).is_in_exec);
        let (kernel_thread, exiting) = (0x0420_8060, 0x0040_0004);
        assert!(!stat(kernel_thread).is_in_exec && !stat(exiting).is_in_exec);
    }

    #[test]
    fn program_without_code_of_its_own_is_parsed() {
        // The kernel's start of the code is the greatest number then.
        let line = format!(
            "7 (a) S {}{} {}",
            "0 ".repeat(22),
            u64::MAX,
            "9 ".repeat(26)
        );
        let stat = ProcStat::parse(line.as_bytes()).unwrap();
        assert!(!stat.is_in_exec && !stat.has_variables);
    }

    #[test]
    fn kernel_thread_differs_from_a_process_whose_session_is_not_visible() {
        // Flags of a kworker and of a shell.
        assert!(stat(0x0420_8060).is_kernel_thread);
        assert!(!stat(0x0040_0000).is_kernel_thread);
    }

    #[test]
    fn own_process_is_found() {
        let stat = ProcStat::of(std::process::id().cast_signed()).unwrap();
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
        assert!(!stat.has_ended() && stat.resident_pages > 0);
        assert!(!stat.is_in_exec && stat.has_variables);
    }
}
