//! `/proc/…/stat`: what the kernel tells of a process or a thread.

use std::{fs::File, io::Read, path::Path};

/// Longer than any: some fifty numbers and a name.
const LINE: usize = 2048;

#[derive(Debug, Clone, Copy)]
pub struct ProcStat {
    pub pid: i32,
    /// As `proc_pid_stat(5)` has it.
    pub state: char,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Ticks after the system's start; together with the number, nobody else's.
    pub started: u64,
    /// Ticks that it has computed, and those of its children that have ended.
    pub ticks: u64,
    pub resident_pages: u64,
}

impl ProcStat {
    /// `None` where there is no such process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Self::read(Path::new(&format!("/proc/{pid}/stat")))
    }

    #[must_use]
    pub fn read(file: &Path) -> Option<Self> {
        // All of it comes at once where there is room, and asking for its end costs as much again.
        let mut line = [0; LINE];
        let read = File::open(file).ok()?.read(&mut line).ok()?;
        Self::parse(&line[..read])
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        let pid = stat.split(|byte| *byte == b' ').next()?;
        // The name in parentheses may hold anything, text or not.
        let name_end = stat.windows(2).rposition(|pair| pair == b") ")?;
        let rest = std::str::from_utf8(&stat[name_end + 2..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Counted as in proc_pid_stat(5), where the state is the third field.
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<i64>().ok();
        let unsigned = |at: usize| number(at).and_then(|n| u64::try_from(n).ok());
        Some(ProcStat {
            pid: std::str::from_utf8(pid).ok()?.parse().ok()?,
            state: field(3)?.chars().next()?,
            parent: i32::try_from(number(4)?).ok()?,
            group: i32::try_from(number(5)?).ok()?,
            session: i32::try_from(number(6)?).ok()?,
            ticks: unsigned(14)? + unsigned(15)? + unsigned(16)? + unsigned(17)?,
            started: unsigned(22)?,
            resident_pages: unsigned(24)?,
        })
    }

    /// Whether this is still the process of its number, and in its group.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now.started == self.started && now.group == self.group)
    }

    /// It has ended and waits for its parent.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let mut line = b"7 (a) S \xff (b) R ".to_vec();
        line.extend(fields.join(" ").bytes());
        let stat = ProcStat::parse(&line).unwrap();
        assert_eq!((stat.pid, stat.state), (7, 'R'));
        assert_eq!((stat.parent, stat.group), (4, 5));
        assert_eq!((stat.session, stat.ticks), (6, 14 + 15 + 16 + 17));
        assert_eq!((stat.started, stat.resident_pages), (22, 24));
        assert!(ProcStat::parse(b"7 (cut) R 1 2").is_none());
    }

    #[test]
    fn this_process_is_told_of() {
        let stat = ProcStat::of(std::process::id().cast_signed()).unwrap();
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
        assert!(!stat.has_ended() && stat.resident_pages > 0);
    }
}
