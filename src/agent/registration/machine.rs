//! The properties of the machine that control selects hosts by.

use std::{fs, io};

use serde_json::{Value, json};

use crate::{agent::settings::Config, api::viewport};

/// The flag with which Chromium runs in kiosk mode.
const KIOSK_FLAG: &str = "--kiosk";

/// Returns the capabilities of the host.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub(super) fn capabilities(config: &Config) -> io::Result<Value> {
    let memory = fs::read_to_string("/proc/meminfo")?;
    let memory_bytes = parse_memory(&memory).ok_or(io::ErrorKind::InvalidData)?;
    Ok(json!({
        "display": !config.headless,
        // The area has a limit, too, which is the same for all hosts.
        "max_viewport": {"width": viewport::SIDE.end(), "height": viewport::SIDE.end()},
        "kiosk_mode": config.chromium_flags.iter().any(|flag| flag == KIOSK_FLAG),
        "engine": "chromium",
        "memory_bytes": memory_bytes,
    }))
}

/// Returns the total memory in bytes.
fn parse_memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_total_in_bytes() {
        let text = "MemFree:  1 kB\nMemTotal:       16384 kB\n";
        assert_eq!(parse_memory(text), Some(16384 * 1024));
        for invalid in ["", "MemTotal: x kB", "MemTotal: 1 MB"] {
            assert_eq!(parse_memory(invalid), None, "{invalid}");
        }
    }
}
