//! What the process gives up before it runs a caller's code.

use std::{fs, os::fd::AsFd};

use cap_std::fs::Dir;
use nix::{
    fcntl::AtFlags,
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        stat::{Mode, umask},
    },
    unistd::{Gid, Uid, User, fchownat, setgroups, setresgid, setresuid},
};

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("there is no user {0:?} to run scripts as")]
    NoSuchUser(String),
    #[error("cannot {what}: {source}")]
    Step {
        what: &'static str,
        source: nix::Error,
    },
}

/// Open files beside the socket: directories and the one file at work.
const MAX_OPEN_FILES: u64 = 128;

/// Becomes `user`, where the process is root, and hands it the scratch directory.
pub fn become_user(user: &str, scratch: &Dir) -> Result<(), SandboxError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let found = User::from_name(user)
        .ok()
        .flatten()
        .ok_or_else(|| SandboxError::NoSuchUser(user.to_owned()))?;
    let (uid, gid): (Uid, Gid) = (found.uid, found.gid);
    let given = fchownat(scratch.as_fd(), ".", Some(uid), Some(gid), AtFlags::empty());
    step("give the scratch directory away", given)?;
    step("leave root's groups", setgroups(&[]))?;
    step("change the group", setresgid(gid, gid, gid))?;
    step("change the user", setresuid(uid, uid, uid))
}

/// Bounds memory, files and what the process may become. `heap_mb` is the engine's own bound, which is meant to be met first.
pub fn limit(heap_mb: u32, scratch_mb: u32) -> Result<(), SandboxError> {
    step("give up new privileges", prctl::set_no_new_privs())?;
    umask(Mode::from_bits_truncate(0o077));
    // Memory that the process may write to, beyond what it has: the engine's heap, as much again for its buffers, and room to report.
    let data = (in_use_kb() << 10) + ((u64::from(heap_mb) * 2 + 64) << 20);
    let limits = [
        (Resource::RLIMIT_DATA, data),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, MAX_OPEN_FILES),
        (Resource::RLIMIT_FSIZE, u64::from(scratch_mb) << 20),
    ];
    for (resource, limit) in limits {
        step("set a resource limit", setrlimit(resource, limit, limit))?;
    }
    Ok(())
}

/// What counts towards `RLIMIT_DATA` already.
fn in_use_kb() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmData:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

fn step(what: &'static str, result: nix::Result<()>) -> Result<(), SandboxError> {
    result.map_err(|source| SandboxError::Step { what, source })
}
