//! Searches for what is left of a session after its end.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::unistd::Uid;
use tokio::task::spawn_blocking;

use crate::{
    agent::Agent,
    api::session::{Remaining, RemainingKind, Taint, Terminated},
    system::{files::remove::remove_all, process::stat::ProcStat},
};

/// The directories in which any user can create files.
const SHARED_DIRECTORIES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run/lock"];

/// The result of the search.
pub(super) struct Found {
    pub(super) remaining: Vec<Remaining>,
    pub(super) tainted_by: Vec<Taint>,
}

/// Returns what is running in a session.
pub(super) fn running(agent: &Agent) -> Terminated {
    Terminated {
        chromium: agent.chromium.status().state.devtools().is_some(),
        processes: agent.processes.count(),
        devtools_clients: agent.cdp_clients.count(),
        watches: agent.watches.count(),
    }
}

/// Removes the directories of a session whose services have ended, and searches for what is left of
/// it.
pub(super) async fn inspect(agent: &Agent, has_ended: bool) -> Found {
    let mut remaining = Vec::new();
    if !has_ended {
        remaining.push(Remaining {
            kind: RemainingKind::Task,
            name: "the services did not end in time".to_owned(),
        });
    }
    if agent.processes.have_survivors() {
        remaining.push(Remaining {
            kind: RemainingKind::ClientProcess,
            name: "client processes survived SIGKILL".to_owned(),
        });
    }
    let directory = agent.config.session_dir.root().to_owned();
    let users = agent.own_users.clone();
    let searched = spawn_blocking(move || {
        let mut found = processes_of(&users);
        found.extend(files_of(&users));
        found.extend(remove(&directory));
        found
    });
    match searched.await {
        Ok(found) => remaining.extend(found),
        Err(panic) => remaining.push(Remaining {
            kind: RemainingKind::Task,
            name: format!("the search for what is left failed: {panic}"),
        }),
    }
    for found in &remaining {
        tracing::error!(kind = ?found.kind, name = found.name, "left of an ended session");
    }
    Found {
        remaining,
        tainted_by: agent.taints.list(),
    }
}

fn processes_of(users: &[Uid]) -> Vec<Remaining> {
    let left = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let owner = Uid::from_raw(entry.metadata().ok()?.uid());
        let is_left = users.contains(&owner) && !ProcStat::of(pid)?.has_ended();
        is_left.then(|| Remaining {
            kind: RemainingKind::Process,
            name: pid.to_string(),
        })
    };
    entries(Path::new("/proc")).filter_map(left).collect()
}

/// Removes the files of `users` in the directories of all users, and returns those that it cannot
/// remove.
fn files_of(users: &[Uid]) -> Vec<Remaining> {
    if users.is_empty() {
        return Vec::new();
    }
    let directories = SHARED_DIRECTORIES.into_iter().map(Path::new);
    let files = directories.flat_map(entries).filter_map(|entry| {
        let owner = Uid::from_raw(entry.metadata().ok()?.uid());
        users.contains(&owner).then(|| entry.path())
    });
    files.filter_map(|path: PathBuf| remove(&path)).collect()
}

fn entries(directory: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

/// Removes a file or a directory, and returns it if that fails.
fn remove(path: &Path) -> Option<Remaining> {
    let error: io::Error = remove_all(path).err()?;
    tracing::error!(path = %path.display(), %error, "cannot remove a part of an ended session");
    Some(Remaining {
        kind: RemainingKind::File,
        name: path.display().to_string(),
    })
}
