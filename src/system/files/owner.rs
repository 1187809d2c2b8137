//! Changing the owner of directory trees.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, SFlag, fstat},
    unistd::{Gid, Uid, fchown, fchownat},
};

/// The deepest directory whose entries are changed. Each level takes a descriptor.
const MAX_DEPTH: usize = 128;

/// Gives a directory and everything in it to a user. Links are not followed, and a file that has
/// several names keeps its owner, because another name may be anywhere. Blocks.
///
/// # Errors
/// If the directory cannot be opened, or an owner cannot be changed. An entry that disappears
/// meanwhile is no error.
pub fn give_tree(directory: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    let opened = openat(AT_FDCWD, directory, directory_flags(), Mode::empty())?;
    Ok(give(opened, uid, gid, 0)?)
}

fn give(directory: OwnedFd, uid: Uid, gid: Gid, depth: usize) -> nix::Result<()> {
    if is_foreign(&fstat(&directory)?, uid, gid) {
        fchown(&directory, Some(uid), Some(gid))?;
    }
    if depth == MAX_DEPTH {
        return Ok(());
    }
    let mut entries = Dir::from_fd(directory)?;
    let mut subdirectories = Vec::new();
    let names: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_owned()))
        .filter(|name| ![c".", c".."].contains(&name.as_c_str()))
        .collect();
    for name in names {
        match give_entry(entries.as_fd(), &name, uid, gid) {
            Ok(true) => subdirectories.push(name),
            Ok(false) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    for name in subdirectories {
        match openat(
            entries.as_fd(),
            name.as_c_str(),
            directory_flags(),
            Mode::empty(),
        ) {
            Ok(subdirectory) => give(subdirectory, uid, gid, depth + 1)?,
            // It was removed or replaced meanwhile.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives an entry to the user, unless it is a directory. Returns whether it is one.
fn give_entry(directory: BorrowedFd<'_>, name: &CStr, uid: Uid, gid: Gid) -> nix::Result<bool> {
    // One handle, so that the entry that was examined is the one that changes.
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let entry = openat(directory, name, flags, Mode::empty())?;
    let found = fstat(&entry)?;
    if found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits() {
        return Ok(true);
    }
    if is_foreign(&found, uid, gid) && found.st_nlink == 1 {
        fchownat(&entry, c"", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)?;
    }
    Ok(false)
}

fn is_foreign(found: &FileStat, uid: Uid, gid: Gid) -> bool {
    (found.st_uid, found.st_gid) != (uid.as_raw(), gid.as_raw())
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
    };

    use nix::fcntl::{RenameFlags, renameat2};

    use super::*;

    #[test]
    fn tree_changes_its_owner_except_for_targets_of_links_and_files_with_several_names() {
        if !Uid::effective().is_root() {
            return;
        }
        let (uid, gid) = (Uid::from_raw(61_900), Gid::from_raw(61_901));
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("tree/a/b")).unwrap();
        for name in ["tree/a/b/file", "outside", "linked"] {
            fs::write(path(name), name).unwrap();
        }
        symlink(path("outside"), path("tree/link")).unwrap();
        fs::hard_link(path("linked"), path("tree/a/linked")).unwrap();
        give_tree(&path("tree"), uid, gid).unwrap();
        let owner = |name: &str| {
            let found = fs::symlink_metadata(path(name)).unwrap();
            (found.uid(), found.gid())
        };
        for name in ["tree", "tree/a", "tree/a/b", "tree/a/b/file", "tree/link"] {
            assert_eq!(owner(name), (61_900, 61_901), "{name}");
        }
        for name in ["outside", "linked", "tree/a/linked"] {
            assert_eq!(owner(name), (0, 0), "{name}");
        }
        let link = path("tree/link");
        assert!(give_tree(&link, uid, gid).is_err());
    }

    #[test]
    fn file_with_several_names_keeps_its_owner_when_exchanged_with_another_one() {
        const ROUNDS: usize = 20_000;
        if !Uid::effective().is_root() {
            return;
        }
        let (uid, gid) = (Uid::from_raw(61_900), Gid::from_raw(61_901));
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("tree")).unwrap();
        fs::write(path("outside"), "").unwrap();
        fs::hard_link(path("outside"), path("tree/linked")).unwrap();
        fs::write(path("tree/own"), "").unwrap();
        let own = fs::File::open(path("tree/own")).unwrap();
        let is_stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            let (first, second) = (path("tree/own"), path("tree/linked"));
            let is_stopped = &is_stopped;
            scope.spawn(move || {
                let flags = RenameFlags::RENAME_EXCHANGE;
                while !is_stopped.load(Relaxed) {
                    renameat2(AT_FDCWD, &first, AT_FDCWD, &second, flags).unwrap();
                }
            });
            for _ in 0..ROUNDS {
                fchown(&own, Some(Uid::from_raw(0)), Some(Gid::from_raw(0))).unwrap();
                give_tree(&path("tree"), uid, gid).unwrap();
                if fs::metadata(path("outside")).unwrap().uid() != 0 {
                    break;
                }
            }
            is_stopped.store(true, Relaxed);
        });
        assert_eq!(fs::metadata(path("outside")).unwrap().uid(), 0);
    }
}
