//! The memory of the machine.

use std::{fs, io};

/// The memory of the machine in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineMemory {
    pub total: u64,
    /// The part that programs can use without swapping.
    pub available: u64,
}

impl MachineMemory {
    /// Reads the memory of the machine.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn read() -> io::Result<MachineMemory> {
        let text = fs::read_to_string("/proc/meminfo")?;
        parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn parse(text: &str) -> Option<MachineMemory> {
    Some(MachineMemory {
        total: bytes_of(text, "MemTotal:")?,
        available: bytes_of(text, "MemAvailable:")?,
    })
}

fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes() {
        let text = "MemFree:  1 kB\nMemTotal:       16384 kB\nMemAvailable: 4096 kB\n";
        let expected = MachineMemory {
            total: 16384 * 1024,
            available: 4096 * 1024,
        };
        assert_eq!(parse(text), Some(expected));
        for invalid in ["", "MemTotal: x kB", "MemTotal: 1 MB\nMemAvailable: 1 kB"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn memory_of_this_machine_is_read() {
        let memory = MachineMemory::read().unwrap();
        assert!(
            0 < memory.available && memory.available <= memory.total,
            "{memory:?}"
        );
    }
}
