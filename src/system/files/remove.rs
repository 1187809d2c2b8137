//! Removal of files and directories despite restrictive permissions.
//!
//! Every directory is opened relative to the descriptor of the one above it, never through a
//! symbolic link and never across a mount point, so that no program can lead a removal out of its
//! tree. An entry that cannot be removed does not keep its siblings.

use std::{
    ffi::{CStr, CString, OsStr},
    fmt::{self, Display},
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat},
    sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, fstatat},
    unistd::{UnlinkatFlags, unlinkat},
};
use uuid::Uuid;

/// The deepest level at which a directory is emptied. Deeper ones are moved to the top of the tree
/// first, because each level needs two descriptors.
const MAX_DEPTH: usize = 64;

/// Removes a file, or a directory with its content even if the permissions of its directories
/// forbid it. Succeeds if there is nothing at `path`.
///
/// # Errors
/// If something could not be removed. Everything else is removed nevertheless.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = CString::new(name.as_bytes())?;
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = match open(parent, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        parent => parent?,
    };
    loop {
        let mut removal = Removal::default();
        removal.remove_entry(parent.as_fd(), &name, None);
        // The next pass removes the directories that this one has moved.
        if !removal.has_moved {
            let failure = removal.failure;
            return failure.map_or(Ok(()), |failure| Err(failure.into()));
        }
    }
}

/// Removes a file. Succeeds if there is nothing at `path`.
///
/// # Errors
/// Fails if it cannot be removed, or is a directory.
pub fn remove_file_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes like [`remove_all`], but only logs a failure: what remains costs disk space, but does
/// not prevent anything else.
pub fn remove_or_warn(path: &Path) {
    if let Err(error) = remove_all(path) {
        tracing::warn!(path = %path.display(), %error, "temporary file not removed");
    }
}

/// A pass over a tree.
#[derive(Default)]
struct Removal {
    /// The path of the current entry, relative to the parent of the removed one.
    path: PathBuf,
    depth: usize,
    /// Whether a deep directory was moved to the top of the tree.
    has_moved: bool,
    failure: Option<Failure>,
}

/// The entries that were not removed.
struct Failure {
    count: usize,
    /// The path and the error of the first one.
    first: PathBuf,
    error: Errno,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            count,
            first,
            error,
        } = self;
        write!(f, "{}: {}", first.display(), error.desc())?;
        match count {
            1 => Ok(()),
            _ => write!(f, " (and {} more)", count - 1),
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        io::Error::new(io::Error::from(failure.error).kind(), failure.to_string())
    }
}

impl Removal {
    /// Removes the entry `name` of `parent` with its content. `top` is the top directory of the
    /// tree, or `None` for the top directory itself.
    fn remove_entry(&mut self, parent: BorrowedFd<'_>, name: &CStr, top: Option<BorrowedFd<'_>>) {
        self.path.push(OsStr::from_bytes(name.to_bytes()));
        match self.try_remove(parent, name, top) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => self.add_failure(error),
        }
        self.path.pop();
    }

    fn try_remove(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        top: Option<BorrowedFd<'_>>,
    ) -> nix::Result<()> {
        if !is_directory(parent, name)? {
            return unlinkat(parent, name, UnlinkatFlags::NoRemoveDir);
        }
        let directory = open_directory(parent, name)?;
        // Opened before, because a directory can only be moved with write access to it.
        if let Some(top) = top
            && self.depth == MAX_DEPTH
        {
            // A random name, so that no program can occupy it.
            renameat(parent, name, top, Uuid::new_v4().to_string().as_str())?;
            self.has_moved = true;
            return Ok(());
        }
        self.depth += 1;
        let cleared = self.clear(directory, top);
        self.depth -= 1;
        cleared?;
        unlinkat(parent, name, UnlinkatFlags::RemoveDir)
    }

    /// Removes the content of a directory.
    fn clear(&mut self, directory: OwnedFd, top: Option<BorrowedFd<'_>>) -> nix::Result<()> {
        let own = directory.try_clone().map_err(to_errno)?;
        let top = top.unwrap_or(own.as_fd());
        for entry in Dir::from_fd(directory)?.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.remove_entry(own.as_fd(), name, Some(top));
            }
        }
        Ok(())
    }

    fn add_failure(&mut self, error: Errno) {
        let path = &self.path;
        let failure = self.failure.get_or_insert_with(|| Failure {
            count: 0,
            first: path.clone(),
            error,
        });
        failure.count += 1;
    }
}

fn to_errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Returns whether the entry is a directory, and not a link to one.
fn is_directory(parent: BorrowedFd<'_>, name: &CStr) -> nix::Result<bool> {
    let found = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

/// Opens a directory for reading and gives its owner all access to it.
fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> nix::Result<OwnedFd> {
    let directory = match open_beneath(parent, name) {
        Err(Errno::EACCES) => {
            // Does not follow a link that has replaced the directory meanwhile.
            fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            open_beneath(parent, name)?
        }
        directory => directory?,
    };
    let mode = fstat(&directory)?.st_mode;
    if mode & Mode::S_IRWXU.bits() != Mode::S_IRWXU.bits() {
        // Fails for the directory of another user, whose entries may be removable all the same.
        let _ = fchmod(&directory, Mode::S_IRWXU);
    }
    Ok(directory)
}

/// Opens a directory that is neither a link nor a mount point.
fn open_beneath(parent: BorrowedFd<'_>, name: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_NO_XDEV);
    match openat2(parent, name, how) {
        // Unknown to the kernel, or refused by a container's filter: a file system that is mounted
        // here is recognised by its device.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let directory = openat(parent, name, flags, Mode::empty())?;
            match fstat(&directory)?.st_dev == fstat(parent)?.st_dev {
                true => Ok(directory),
                false => Err(Errno::EXDEV),
            }
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, chown, symlink},
        thread,
    };

    use nix::{
        sys::stat::mkdirat,
        unistd::{Gid, Uid, setfsgid, setfsuid},
    };

    use super::*;

    const UNPRIVILEGED: u32 = 65_534;

    /// Gives a file or directory to the user of [`without_privileges`].
    fn disown(path: &Path) {
        if Uid::effective().is_root() {
            chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
    }

    /// Runs `action` in a thread without root's exemption from permissions.
    fn without_privileges<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> T {
        let running = thread::spawn(move || {
            setfsgid(Gid::from_raw(UNPRIVILEGED));
            setfsuid(Uid::from_raw(UNPRIVILEGED));
            action()
        });
        running.join().unwrap()
    }

    fn count(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn directories_without_permissions_are_removed_by_their_owner() {
        for mode in [0o500, 0o300, 0o000] {
            let directory = tempfile::tempdir().unwrap();
            disown(directory.path());
            let all = directory.path().join("all");
            let inner = all.join("a/b");
            fs::create_dir_all(&inner).unwrap();
            fs::write(inner.join("file"), "").unwrap();
            for path in [inner.clone(), all.join("a"), all.clone()] {
                disown(&path);
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
            let (plain_removal, removed) =
                without_privileges(move || (fs::remove_dir_all(&all), remove_all(&all)));
            plain_removal.unwrap_err();
            removed.unwrap();
            assert_eq!(count(directory.path()), 0, "{mode:o}");
        }
    }

    #[test]
    fn entry_that_cannot_be_removed_does_not_keep_its_siblings() {
        if !Uid::effective().is_root() {
            // Only root can create a directory that its own user cannot remove.
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let all = directory.path().join("all");
        for name in ["a", "b/foreign", "c"] {
            fs::create_dir_all(all.join(name)).unwrap();
            fs::write(all.join(name).join("file"), "").unwrap();
        }
        for path in ["", "a", "a/file", "b", "c", "c/file"] {
            disown(&all.join(path));
        }
        disown(directory.path());
        let tree = all.clone();
        let error = without_privileges(move || remove_all(&tree)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let expected = "all/b/foreign/file: Permission denied (and 3 more)";
        assert_eq!(error.to_string(), expected);
        assert_eq!(count(&all), 1);
        assert!(all.join("b/foreign/file").exists());
        remove_all(&all).unwrap();
        assert!(!all.exists());
    }

    #[test]
    fn tree_of_any_depth_is_removed() {
        const DEPTH: usize = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let all = directory.path().join("all");
        fs::create_dir(&all).unwrap();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut innermost = open(&all, flags, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            mkdirat(&innermost, "d", Mode::S_IRWXU).unwrap();
            innermost = openat(&innermost, "d", flags, Mode::empty()).unwrap();
        }
        remove_all(&all).unwrap();
        assert_eq!(count(directory.path()), 0);
    }

    #[test]
    fn removal_accepts_missing_path_and_keeps_targets_of_links() {
        let directory = tempfile::tempdir().unwrap();
        remove_all(&directory.path().join("missing")).unwrap();
        remove_all(&directory.path().join("missing/either")).unwrap();
        let target = directory.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("file"), "").unwrap();
        let link = directory.path().join("link");
        symlink(&target, &link).unwrap();
        remove_all(&link).unwrap();
        assert!(!link.is_symlink());
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        symlink(&target, tree.join("link")).unwrap();
        symlink(target.join("file"), tree.join("link-to-file")).unwrap();
        remove_all(&tree).unwrap();
        assert!(target.join("file").exists() && !tree.exists());
    }
}
