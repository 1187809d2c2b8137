//! The directories of a session that take the place of those of the machine.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{
    sys::statfs::{TMPFS_MAGIC, statfs},
    unistd::{Uid, chown},
};

use super::user::SessionUser;
use crate::{
    agent::{
        chromium,
        session_dir::{SessionDir, create_directory},
        settings::Config,
    },
    state_dir::{PRIVATE_DIRECTORY, set_mode},
    system::{
        files::{owner::give_tree, space::FileSystemSpace},
        process::{
            confinement::Confinement,
            mount_namespace::{MountPlan, Replacement},
        },
        x11::socket,
    },
};

/// The directories in which any user can create files, and their names in the session's directory.
/// Message queues are left out: only the kernel's namespace of queues could separate them.
const REPLACED: [(&str, &str); 3] = [
    ("/tmp", "tmp"),
    ("/var/tmp", "var-tmp"),
    ("/run/lock", "run-lock"),
];
/// The directory of shared memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// The permissions of a directory in which any user can create files.
const SHARED_DIRECTORY: u32 = 0o1777;
/// The permissions of the downloads, which Chromium's group shares.
const GROUP_DIRECTORY: u32 = 0o770;
const READABLE_FILE: u32 = 0o644;
const USER_DATABASE: [(&str, &str); 2] = [("/etc/passwd", "passwd"), ("/etc/group", "group")];

/// Creates the directories of the session, and plans their mounts.
pub(super) fn plan(config: &Config, user: &SessionUser) -> io::Result<MountPlan> {
    let session = &config.session_dir;
    let private = session.private();
    create_directory(&private, PRIVATE_DIRECTORY)?;
    create_for(user, user.home(), PRIVATE_DIRECTORY)?;
    set_mode(&session.downloads(), GROUP_DIRECTORY)?;
    let mut replaced: Vec<Replacement> = Vec::new();
    for (path, name) in REPLACED {
        let Some(target) = existing_directory(path) else {
            continue;
        };
        // One may lead to another.
        if replaced
            .iter()
            .any(|other| target.starts_with(&other.target))
        {
            continue;
        }
        let source = private.join(name);
        create_for(user, &source, SHARED_DIRECTORY)?;
        replaced.push(Replacement { source, target });
    }
    let root = fs::canonicalize(session.root())?;
    Ok(MountPlan {
        replaced,
        memory: shared_memory()?.into_iter().collect(),
        user: Confinement::new(user.credentials().clone(), &[&root]),
        own: vec![
            fs::canonicalize(session.downloads())?,
            user.home().to_owned(),
        ],
        kept: root,
        shown: shown(config)?,
        of_user: user_database(session, user)?,
    })
}

/// Creates a directory that belongs to the user. What another user of an earlier agent has left
/// there is given to this one.
fn create_for(user: &SessionUser, directory: &Path, mode: u32) -> io::Result<()> {
    let (uid, gid) = (user.credentials().uid, user.credentials().gid);
    create_directory(directory, PRIVATE_DIRECTORY)?;
    let owner = Uid::from_raw(fs::metadata(directory)?.uid());
    if owner != uid && !owner.is_root() {
        give_tree(directory, uid, gid)?;
    }
    chown(directory, Some(uid), Some(gid))?;
    set_mode(directory, mode)
}

/// Returns the path without links.
fn existing_directory(path: &str) -> Option<PathBuf> {
    fs::canonicalize(path).ok().filter(|path| path.is_dir())
}

/// Returns the directory of shared memory, with the size of that of the machine in bytes, or `None`
/// if that has no limit of its own.
fn shared_memory() -> io::Result<Option<(PathBuf, Option<u64>)>> {
    let Some(path) = existing_directory(SHARED_MEMORY) else {
        return Ok(None);
    };
    let is_in_memory = statfs(&path)?.filesystem_type() == TMPFS_MAGIC;
    let bytes = FileSystemSpace::read(&path)?.total;
    // The size of a disk is no measure for memory, and a file system without a limit reports 0.
    Ok(Some((
        path,
        Some(bytes).filter(|_| is_in_memory && bytes > 0),
    )))
}

/// Returns the paths that must stay visible: the sockets of displays, and what Chromium needs.
fn shown(config: &Config) -> io::Result<Vec<PathBuf>> {
    if !config.headless {
        socket::claim_directory()?;
    }
    let needed = chromium::needed_paths(config).into_iter();
    let paths = needed.chain([Path::new(socket::SOCKET_DIR)]);
    let session = fs::canonicalize(config.session_dir.root())?;
    let paths = paths.filter_map(|path| fs::canonicalize(path).ok());
    Ok(paths.filter(|path| *path != session).collect())
}

/// Writes the user database of the machine with the session's user.
fn user_database(session: &SessionDir, user: &SessionUser) -> io::Result<Vec<Replacement>> {
    let lines = [user.passwd_line(), user.group_line()];
    let mut files = Vec::new();
    for ((path, name), line) in USER_DATABASE.into_iter().zip(lines) {
        let Ok(target) = fs::canonicalize(path) else {
            continue;
        };
        let source = session.private().join(name);
        let mut content = line.into_bytes();
        content.extend(fs::read(&target)?);
        fs::write(&source, content)?;
        set_mode(&source, READABLE_FILE)?;
        files.push(Replacement { source, target });
    }
    Ok(files)
}
