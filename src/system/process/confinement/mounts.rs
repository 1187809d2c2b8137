//! The mounts by which a child reaches paths below directories that its user cannot enter.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs::{self, Metadata},
    os::{
        fd::RawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    ptr,
};

use nix::{errno::Errno, libc};

use crate::system::process::session::Credentials;

/// The size of the file systems that hide closed directories: a few directories and files.
const HIDING_OPTIONS: &std::ffi::CStr = c"mode=0711,size=64k";
/// The room for `/proc/self/fd/` and a number.
const FD_PATH_BYTES: usize = 32;
const FD_PATH_PREFIX: &[u8] = b"/proc/self/fd/";

/// The mounts of a child, prepared before the fork, after which no memory may be allocated.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts {
    /// The directories that are hidden by empty file systems.
    hidden: Vec<CString>,
    shown: Vec<Shown>,
}

/// A path that is mounted at its own place below a hidden directory.
#[derive(Clone, Debug)]
struct Shown {
    path: CString,
    /// The directories between the hidden directory and the path, outermost first.
    parents: Vec<CString>,
    is_directory: bool,
}

impl Mounts {
    /// Plans the mounts that the user needs to reach `paths`.
    pub(super) fn plan(paths: &[&Path], credentials: &Credentials) -> Self {
        let mut by_hidden: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for path in paths {
            // Links are resolved: those below a hidden directory would be hidden, too.
            let Ok(path) = path.canonicalize() else {
                continue;
            };
            if let Some(closed) = closed_ancestor(&path, credentials) {
                by_hidden.entry(closed).or_default().push(path);
            }
        }
        let mut mounts = Mounts::default();
        for (hidden, paths) in by_hidden {
            mounts.shown.extend(
                outermost(paths)
                    .iter()
                    .filter_map(|path| Shown::new(path, &hidden)),
            );
            mounts.hidden.extend(to_c_string(&hidden));
        }
        mounts
    }

    /// Mounts in a new mount namespace, if there is anything to mount. It makes async-signal-safe
    /// calls only.
    pub(super) fn apply(&self) -> nix::Result<()> {
        const MAX_SHOWN: usize = 16;
        if self.hidden.is_empty() {
            return Ok(());
        }
        if self.shown.len() > MAX_SHOWN {
            return Err(Errno::E2BIG);
        }
        // SAFETY: the calls read strings that end with NUL and outlive them.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            // Mounts of the system appear here, too, but not the other way around.
            let flags = libc::MS_REC | libc::MS_SLAVE;
            check(libc::mount(
                ptr::null(),
                c"/".as_ptr(),
                ptr::null(),
                flags,
                ptr::null(),
            ))?;
            // Opened before they are hidden, and in the new namespace.
            let mut sources = [-1; MAX_SHOWN];
            for (source, shown) in sources.iter_mut().zip(&self.shown) {
                let flags = libc::O_PATH | libc::O_CLOEXEC;
                *source = check(libc::open(shown.path.as_ptr(), flags))?;
            }
            let file_system = c"tmpfs".as_ptr();
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            for hidden in &self.hidden {
                let options = HIDING_OPTIONS.as_ptr().cast();
                check(libc::mount(
                    file_system,
                    hidden.as_ptr(),
                    file_system,
                    flags,
                    options,
                ))?;
            }
            let mask = libc::umask(0);
            let shown = self.shown.iter().zip(sources);
            let mounted = shown
                .map(|(shown, source)| shown.mount(source))
                .find(Result::is_err);
            libc::umask(mask);
            mounted.unwrap_or(Ok(()))
        }
    }
}

impl Shown {
    fn new(path: &Path, hidden: &Path) -> Option<Self> {
        let mut parents: Vec<CString> = path
            .ancestors()
            .skip(1)
            .take_while(|parent| *parent != hidden)
            .filter_map(to_c_string)
            .collect();
        parents.reverse();
        Some(Shown {
            path: to_c_string(path)?,
            parents,
            is_directory: path.is_dir(),
        })
    }

    /// Creates the mount point below the hidden directory, and mounts the open `source` there.
    fn mount(&self, source: RawFd) -> nix::Result<()> {
        const DIRECTORY_MODE: libc::mode_t = 0o711;
        let exists_or = |result: libc::c_int| match check(result) {
            Err(Errno::EEXIST) => Ok(0),
            result => result,
        };
        let mut buffer = [0; FD_PATH_BYTES];
        // SAFETY: the calls read strings that end with NUL and outlive them.
        unsafe {
            for parent in &self.parents {
                exists_or(libc::mkdir(parent.as_ptr(), DIRECTORY_MODE))?;
            }
            if self.is_directory {
                exists_or(libc::mkdir(self.path.as_ptr(), DIRECTORY_MODE))?;
            } else {
                let flags = libc::O_CREAT | libc::O_CLOEXEC;
                libc::close(check(libc::open(self.path.as_ptr(), flags, 0))?);
            }
            let source = fd_path(source, &mut buffer).as_ptr().cast();
            let flags = libc::MS_BIND | libc::MS_REC;
            let (target, none) = (self.path.as_ptr(), ptr::null());
            check(libc::mount(source, target, none, flags, ptr::null())).map(drop)
        }
    }
}

/// Returns the outermost directory above `path` that the user cannot enter.
fn closed_ancestor(path: &Path, credentials: &Credentials) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
    ancestors.reverse();
    let closed = ancestors
        .into_iter()
        .find(|ancestor| fs::metadata(ancestor).is_ok_and(|found| !can_enter(&found, credentials)));
    closed.map(Path::to_owned)
}

fn can_enter(directory: &Metadata, credentials: &Credentials) -> bool {
    let in_group = |gid: u32| {
        credentials.gid.as_raw() == gid
            || credentials.groups.iter().any(|group| group.as_raw() == gid)
    };
    let right = match directory {
        _ if directory.uid() == credentials.uid.as_raw() => 0o100,
        _ if in_group(directory.gid()) => 0o010,
        _ => 0o001,
    };
    directory.mode() & right != 0
}

/// Leaves out the paths below others.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_unstable();
    paths.dedup_by(|path, outer| path.starts_with(outer));
    paths
}

fn to_c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn check(result: libc::c_int) -> nix::Result<libc::c_int> {
    Errno::result(result)
}

/// Writes the path of a descriptor to `buffer`, with a NUL at its end.
fn fd_path(descriptor: RawFd, buffer: &mut [u8; FD_PATH_BYTES]) -> &[u8] {
    let mut digits = [0; 10];
    let mut rest = descriptor.unsigned_abs();
    let mut count = 0;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        (rest, count) = (rest / 10, count + 1);
        if rest == 0 {
            break;
        }
    }
    let numbers = digits[..count].iter().rev();
    let bytes = FD_PATH_PREFIX.iter().chain(numbers);
    for (to, from) in buffer.iter_mut().zip(bytes) {
        *to = *from;
    }
    &buffer[..=FD_PATH_PREFIX.len() + count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_path_ends_with_nul() {
        let mut buffer = [0; FD_PATH_BYTES];
        assert_eq!(fd_path(7, &mut buffer), b"/proc/self/fd/7\0");
        let mut buffer = [0; FD_PATH_BYTES];
        assert_eq!(
            fd_path(i32::MAX, &mut buffer),
            b"/proc/self/fd/2147483647\0"
        );
    }

    #[test]
    fn paths_below_others_are_left_out() {
        let paths = ["/a/b", "/a", "/c/d", "/c/d/e", "/ab"].map(PathBuf::from);
        let left = outermost(paths.to_vec());
        assert_eq!(left, ["/a", "/ab", "/c/d"].map(PathBuf::from));
    }
}
