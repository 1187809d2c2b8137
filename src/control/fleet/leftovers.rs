//! What a browser that did not end in order has left: processes that still use its folder, and the folder.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, getpid},
};
use tokio::task::spawn_blocking;

/// How long killed processes are waited for; the kernel ends them as soon as it gets to it.
const MAX_WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Kills every process that names `folder` or something in it on its command line, as all of a browser's processes do that keep data.
/// Only to be called on a folder that no running program of ours uses.
pub async fn end_processes(folder: &Path) -> io::Result<()> {
    let started = Instant::now();
    let mut told = false;
    loop {
        let looked_at = folder.to_owned();
        let found = spawn_blocking(move || users_of(&looked_at)).await;
        let found = found.map_err(io::Error::other)??;
        if found.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut told, true) {
            tracing::debug!(folder = %folder.display(), count = found.len(), "killing what still uses it");
        }
        for pid in &found {
            // Gone already is as good.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if started.elapsed() > MAX_WAIT {
            return Err(io::Error::other(format!(
                "{} processes do not die",
                found.len()
            )));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Removes a folder with everything in it; one that is not there is no error.
pub async fn remove_folder(folder: &Path) -> io::Result<()> {
    match tokio::fs::remove_dir_all(folder).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn users_of(folder: &Path) -> io::Result<Vec<Pid>> {
    let mut needle = folder.as_os_str().as_bytes().to_vec();
    needle.push(b'/');
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.map(Pid::from_raw) else {
            continue;
        };
        // A process that has ended meanwhile has no command line any more, a zombie an empty one.
        let Ok(mut command) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        // Arguments end with a NUL: one that is the folder itself then reads like one in it.
        for byte in command.iter_mut().filter(|byte| **byte == 0) {
            *byte = b'/';
        }
        if pid != getpid() && contains(&command, &needle) {
            users.push(pid);
        }
    }
    Ok(users)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_uses_the_folder_is_killed_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let user_of = |name: &str| {
            std::process::Command::new("tail")
                .args(["--follow=name", "--retry", "--quiet"])
                .arg(folder.path().join(name))
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut users = [user_of("brw_a"), user_of("brw_a/x")];
        let mut untouched = user_of("brw_ab");
        end_processes(&folder.path().join("brw_a")).await.unwrap();
        for user in &mut users {
            assert!(!user.wait().unwrap().success());
        }
        assert!(untouched.try_wait().unwrap().is_none());
        untouched.kill().unwrap();
        untouched.wait().unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        remove_folder(&folder.path().join("none")).await.unwrap();
    }
}
