//! What a crash leaves behind, and how it is put out of the way before the next start.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;

use crate::system::{
    files::remove::remove_all, process::child::signal_group, process::stat::ProcStat,
};

/// What a running Chromium has in its profile for itself alone. The first three are its own guard against two of it on one profile: the agent's
/// claim of the folder is the stronger one, and a lock that names another host (a restored archive, a renamed machine) would stop Chromium for ever.
pub const OF_THE_PROCESS: [&str; 4] = [
    "SingletonLock",
    "SingletonCookie",
    "SingletonSocket",
    "DevToolsActivePort",
];

/// Files Chromium must be able to parse, below the profile folder.
const PREFERENCES: [&str; 3] = [
    "Local State",
    "Default/Preferences",
    "Default/Secure Preferences",
];

/// Removes the marks of a Chromium that did not end in order.
pub fn clear_profile(user_data: &Path) -> io::Result<()> {
    for name in OF_THE_PROCESS {
        remove_all(&user_data.join(name))?;
    }
    Ok(())
}

/// Moves preference files that do not parse aside; Chromium then begins with its defaults. Returns those moved.
pub fn set_torn_preferences_aside(user_data: &Path) -> Vec<PathBuf> {
    let torn = |path: &PathBuf| {
        path.symlink_metadata().is_ok()
            && !fs::read(path).is_ok_and(|content| {
                serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&content)
                    .is_ok()
            })
    };
    PREFERENCES
        .iter()
        .map(|name| user_data.join(name))
        .filter(torn)
        .filter(|path| {
            let aside = path.with_extension("torn");
            let _ = remove_all(&aside);
            fs::rename(path, aside).is_ok()
        })
        .collect()
}

/// Kills what an earlier agent on this folder has left running, should the kernel not have done so already.
pub fn kill_recorded(record: &Path) -> io::Result<()> {
    let Ok(content) = fs::read_to_string(record) else {
        return Ok(());
    };
    let mut words = content.split_whitespace();
    if let (Some(pid), Some(boot), Some(started)) = (
        words.next().and_then(|word| word.parse().ok()),
        words.next(),
        words.next(),
    ) && boot == boot_id()
        && started == started_at(pid).unwrap_or_default()
    {
        tracing::warn!(pid, "killed a process that an earlier agent left");
        signal_group(pid, Signal::SIGKILL);
    }
    remove_all(record)
}

/// Notes a child for [`kill_recorded`]: its number, and what tells it from a later process of the same number.
pub fn record(record: &Path, pid: u32) -> io::Result<()> {
    let started = started_at(pid).unwrap_or_default();
    fs::write(record, format!("{pid} {} {started}\n", boot_id()))
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The kernel's start time of a process, in ticks since boot.
fn started_at(pid: u32) -> Option<String> {
    let stat = ProcStat::of(i32::try_from(pid).ok()?)?;
    Some(stat.start_ticks.to_string())
}
