//! Traces of a crash, which are cleared before the next start: orphaned processes, locks of the
//! profile, and torn files.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;

use crate::system::{
    files::{
        directory::{DirectoryHandle, descriptor_path},
        remove::remove_all,
    },
    process::child::signal_group,
    process::stat::ProcStat,
    profile::PROCESS_FILES,
};

/// The files below the profile that Chromium must be able to parse.
const PREFERENCES: [&str; 3] = [
    "Local State",
    "Default/Preferences",
    "Default/Secure Preferences",
];

/// Removes the process files of a Chromium that has crashed. The agent's lock of the state
/// directory is stronger than Chromium's, and a lock that names another host (a restored archive, a
/// renamed machine) would stop Chromium from ever starting.
pub(super) fn clear_process_files(user_data: &Path) -> io::Result<()> {
    for name in PROCESS_FILES {
        remove_all(&user_data.join(name))?;
    }
    Ok(())
}

/// Moves preference files that do not parse aside, so that Chromium starts with its defaults.
/// Returns their paths. The profile belongs to Chromium's user, so no link in it is followed.
pub(super) fn set_torn_preferences_aside(user_data: &Path) -> Vec<PathBuf> {
    PREFERENCES
        .iter()
        .map(Path::new)
        .filter(|name| set_aside_if_torn(user_data, name).unwrap_or(false))
        .map(|name| user_data.join(name))
        .collect()
}

/// Returns whether the file was moved aside.
fn set_aside_if_torn(user_data: &Path, path: &Path) -> io::Result<bool> {
    let mut directory = DirectoryHandle::open_path(user_data)?;
    for name in path.parent().into_iter().flatten() {
        directory = directory.open(name)?;
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let Some(entry) = directory.entry(name)? else {
        return Ok(false);
    };
    if !entry.metadata()?.is_file() || is_json_object(&entry) {
        return Ok(false);
    }
    let aside = path.with_extension("torn");
    let aside = aside.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let _ = directory.remove_all(aside);
    directory.rename(name, &directory, aside)?;
    Ok(true)
}

fn is_json_object(entry: &File) -> bool {
    fs::read(descriptor_path(entry)).is_ok_and(|content| {
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&content).is_ok()
    })
}

/// Kills the recorded process of an earlier agent, unless it has ended.
pub(super) fn kill_recorded(record: &Path) -> io::Result<()> {
    let Ok(content) = fs::read_to_string(record) else {
        return Ok(());
    };
    let mut fields = content.split_whitespace();
    if let (Some(pid), Some(boot), Some(start_time)) = (
        fields.next().and_then(|field| field.parse().ok()),
        fields.next(),
        fields.next(),
    ) && boot == boot_id()
        && start_time == start_time_of(pid).unwrap_or_default()
    {
        tracing::warn!(pid, "killed an orphan of an earlier agent");
        signal_group(pid, Signal::SIGKILL);
    }
    remove_all(record)
}

/// Records a child for [`kill_recorded`]: its process id, and the boot id and start time that
/// distinguish it from a later process with the same id.
pub(super) fn record(record: &Path, pid: u32) -> io::Result<()> {
    let start_time = start_time_of(pid).unwrap_or_default();
    fs::write(record, format!("{pid} {} {start_time}\n", boot_id()))
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the start time of a process, in clock ticks since boot.
fn start_time_of(pid: u32) -> Option<String> {
    let stat = ProcStat::of(i32::try_from(pid).ok()?)?;
    Some(stat.start_ticks.to_string())
}
