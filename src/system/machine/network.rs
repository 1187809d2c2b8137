//! The network interfaces of the machine, which systemd-networkd configures.

use std::{fs, io, path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

const INTERFACES: &str = "/sys/class/net";
/// The longest time in which a command ends.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Takes all interfaces of devices down. Their addresses are removed.
///
/// # Errors
/// Fails without `CAP_NET_ADMIN` or systemd-networkd.
pub async fn disable() -> io::Result<()> {
    set("down").await
}

/// Takes them up, which requests new addresses.
///
/// # Errors
/// Fails without `CAP_NET_ADMIN` or systemd-networkd.
pub async fn enable() -> io::Result<()> {
    set("up").await
}

async fn set(state: &str) -> io::Result<()> {
    let interfaces = of_devices(Path::new(INTERFACES))?;
    if interfaces.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("networkctl");
    command
        .arg(state)
        .args(interfaces)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(TIMEOUT, command.output()).await??;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "networkctl {state}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// Returns the names of the interfaces that belong to a device.
fn of_devices(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.path().join("device").exists() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_without_a_device_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["lo", "eth1/device", "eth0/device", "docker0"] {
            fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        assert_eq!(of_devices(directory.path()).unwrap(), ["eth0", "eth1"]);
    }
}
