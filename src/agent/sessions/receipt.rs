//! Searches for what is left of a session after its end.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::Uid;
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    agent::Agent,
    api::session::{Remaining, RemainingKind, Taint, Terminated},
    system::{
        files::{directory::DirectoryHandle, remove::remove_all},
        process::{child::wait_for_starts, stat, sysv_ipc},
    },
};

/// The directories in which any user can create files. The last one has the message queues.
const SHARED_DIRECTORIES: [&str; 5] = ["/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/dev/mqueue"];
/// The bit of a directory's mode by which any user can create files in it.
const WORLD_WRITABLE: u32 = 0o002;
/// The longest wait for programs that are being started.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The depth to which directories of other users are searched.
const MAX_DEPTH: usize = 32;

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
    // A start whose task has ended may be under way still. The kill of all client processes has
    // waited for those of clients.
    if !matches!(timeout(START_TIMEOUT, wait_for_starts()).await, Ok(Ok(()))) {
        remaining.push(Remaining {
            kind: RemainingKind::Task,
            name: "a program is still being started".to_owned(),
        });
    }
    let directory = agent.config.session_dir.root().to_owned();
    let users = agent.own_users.clone();
    let searched = spawn_blocking(move || {
        let mut found: Vec<_> = processes_of(&users).collect();
        found.extend(files_of(&users));
        found.extend(ipc_of(&users));
        found.extend(remaining_file(&directory, remove_all(&directory)));
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

fn processes_of(users: &[Uid]) -> impl Iterator<Item = Remaining> {
    let living = stat::living_of(users).into_iter();
    living.map(|pid| Remaining {
        kind: RemainingKind::Process,
        name: pid.to_string(),
    })
}

/// Removes the System V objects of `users`, and returns those that it cannot remove.
fn ipc_of(users: &[Uid]) -> impl Iterator<Item = Remaining> {
    let left = sysv_ipc::remove_of(users).into_iter();
    left.map(|name| Remaining {
        kind: RemainingKind::Ipc,
        name,
    })
}

/// Removes the files of `users` in the directories of all users, and returns those that it cannot
/// remove.
fn files_of(users: &[Uid]) -> Vec<Remaining> {
    if users.is_empty() {
        return Vec::new();
    }
    let directories = SHARED_DIRECTORIES
        .into_iter()
        .filter_map(|path| fs::canonicalize(path).ok());
    let opened = directories.filter_map(|path| DirectoryHandle::open_path(&path).ok());
    opened
        .flat_map(|directory| files_in(&directory, users, 0))
        .collect()
}

/// Removes the files of `users` in a directory, and in those below it in which any user can create
/// files. Other users may exchange these meanwhile, so links and paths are not followed.
fn files_in(directory: &DirectoryHandle, users: &[Uid], depth: usize) -> Vec<Remaining> {
    let mut remaining = Vec::new();
    for name in directory.names().unwrap_or_default() {
        let Ok(Some(entry)) = directory.entry(&name) else {
            continue;
        };
        let Ok(found) = entry.metadata() else {
            continue;
        };
        if users.contains(&Uid::from_raw(found.uid())) {
            let removed = directory.remove_all(&name);
            let path = directory.path().unwrap_or_default().join(&name);
            remaining.extend(remaining_file(&path, removed));
        } else if found.is_dir() && found.mode() & WORLD_WRITABLE != 0 && depth < MAX_DEPTH {
            let inner = directory.open(&name).ok();
            remaining.extend(
                inner
                    .into_iter()
                    .flat_map(|inner| files_in(&inner, users, depth + 1)),
            );
        }
    }
    remaining
}

fn entries(directory: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

/// Returns a file, or the first one left in a directory, whose removal has failed.
fn remaining_file(path: &Path, removed: io::Result<()>) -> Option<Remaining> {
    let error = removed.err()?;
    tracing::error!(path = %path.display(), %error, "cannot remove a part of an ended session");
    Some(Remaining {
        kind: RemainingKind::File,
        name: first_left(path).display().to_string(),
    })
}

/// Returns the first file or empty directory below `path`, or `path` itself.
fn first_left(path: &Path) -> PathBuf {
    let mut left = path.to_owned();
    for _ in 0..MAX_DEPTH {
        // Links are not followed.
        let is_directory = fs::symlink_metadata(&left).is_ok_and(|found| found.is_dir());
        match entries(&left).next().filter(|_| is_directory) {
            Some(entry) => left = entry.path(),
            None => break,
        }
    }
    left
}
