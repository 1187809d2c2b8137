//! Mount namespaces in which some directories are replaced. They exist as long as a descriptor of
//! them, or a process in them, and need no process of their own. Nothing that is mounted in them
//! appears outside.
//!
//! ```text
//! namespace of the agent ──copy──▶ shared: directories replaced ──copy──▶ user: closed directories
//!                                                                        hidden, files replaced
//! ```

#![allow(
    unsafe_code,
    reason = "between fork and exec only system calls are allowed"
)]

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs, io, iter,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
    thread,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat},
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::stat::{Mode, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::{confinement::Confinement, handover::PassedDescriptor};

/// The mode of the directories that lead to a shown path.
const PASSABLE: Mode = Mode::from_bits_truncate(0o711);

/// A mount namespace. Clones share it.
#[derive(Clone, Debug)]
pub struct MountNamespace(Arc<OwnedFd>);

impl MountNamespace {
    /// Moves the calling process, which must not share its directory with another one, into the
    /// namespace. This makes async-signal-safe calls only.
    ///
    /// # Errors
    /// If the process lacks the rights.
    pub fn enter(&self) -> nix::Result<()> {
        setns(self.0.as_fd(), CloneFlags::CLONE_NEWNS)
    }

    /// Makes a command start in the namespace. The caller must have the rights to enter it.
    pub fn enter_at_start(&self, command: &mut Command) {
        let namespace = self.clone();
        // SAFETY: `enter` makes async-signal-safe calls only and does not allocate.
        unsafe { command.pre_exec(move || Ok(namespace.enter()?)) };
    }

    /// Returns the descriptor that keeps it.
    #[must_use]
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        self.0.clone()
    }

    /// Returns the namespace of the calling thread.
    fn current() -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let opened = open("/proc/thread-self/ns/mnt", flags, Mode::empty())?;
        Ok(opened.into())
    }
}

impl From<OwnedFd> for MountNamespace {
    /// Takes a descriptor of a namespace.
    fn from(descriptor: OwnedFd) -> Self {
        MountNamespace(Arc::new(descriptor))
    }
}

/// A file or directory that is mounted over another one.
#[derive(Clone, Debug)]
pub struct Replacement {
    pub source: PathBuf,
    /// The path without links.
    pub target: PathBuf,
}

/// The mounts of the namespaces. Paths have no links.
#[derive(Clone, Debug)]
pub struct MountPlan {
    /// The directories that are replaced by others.
    pub replaced: Vec<Replacement>,
    /// The directories that are replaced by file systems in memory, and their size in bytes. `None`
    /// is that of the kernel: half of the machine's memory.
    pub memory: Vec<(PathBuf, Option<u64>)>,
    /// The directory that stays where it is, even below a replaced directory. Privileged programs
    /// trust it, so that it is not one of the session's own mounts.
    pub kept: PathBuf,
    /// The directories in it that become mounts of their own.
    pub own: Vec<PathBuf>,
    /// The paths that stay visible if they are below a replaced directory.
    pub shown: Vec<PathBuf>,
    /// The user of the second namespace, and what that user must reach.
    pub user: Confinement,
    /// The files that are replaced in the second namespace alone.
    pub of_user: Vec<Replacement>,
}

/// Two mount namespaces: one for all users, and one for the processes of a single user.
#[derive(Debug)]
pub struct MountNamespaces {
    pub shared: MountNamespace,
    pub user: MountNamespace,
    /// The root directory of the shared namespace, which only allows lookups (`O_PATH`).
    pub root: OwnedFd,
    /// The numbers of the mounts that only these namespaces have, as in [`mount_of`].
    pub own_mounts: HashSet<u64>,
}

impl MountNamespaces {
    /// Creates the namespaces. Blocks for some milliseconds.
    ///
    /// # Errors
    /// If the system permits none, or something cannot be mounted.
    pub fn create(plan: MountPlan) -> io::Result<Self> {
        // A thread can leave the namespace of its process, but not return to share it.
        let builder = thread::Builder::new().name("mounts".to_owned());
        let created = builder.spawn(move || plan.mount())?.join();
        created.map_err(|_| io::Error::other("the mounts panicked"))?
    }
}

/// Mount namespaces for the next program of this process.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedNamespaces {
    shared: PassedDescriptor,
    user: PassedDescriptor,
    root: PassedDescriptor,
    own_mounts: HashSet<u64>,
}

impl MountNamespaces {
    /// Takes over the namespaces of the program before.
    #[must_use]
    pub fn adopt(passed: PassedNamespaces) -> Self {
        MountNamespaces {
            shared: passed.shared.into_inner().into(),
            user: passed.user.into_inner().into(),
            root: passed.root.into_inner(),
            own_mounts: passed.own_mounts,
        }
    }

    /// Returns the namespaces for the next program.
    ///
    /// # Errors
    /// If a descriptor cannot be passed on.
    pub fn pass(&self) -> io::Result<PassedNamespaces> {
        let copy = |descriptor: &OwnedFd| PassedDescriptor::new(descriptor.try_clone()?);
        Ok(PassedNamespaces {
            shared: copy(&self.shared.0)?,
            user: copy(&self.user.0)?,
            root: copy(&self.root)?,
            own_mounts: self.own_mounts.clone(),
        })
    }
}

impl MountPlan {
    /// Moves the calling thread into new namespaces and mounts everything there.
    fn mount(&self) -> io::Result<MountNamespaces> {
        unshare_mounts()?;
        let opened = Sources::open(self)?;
        for (replaced, source) in self.replaced.iter().zip(&opened.replaced) {
            bind(source, &replaced.target)?;
            restrict(&replaced.target)?;
        }
        for (target, bytes) in &self.memory {
            mount_memory(target, *bytes)?;
        }
        for (path, source) in self.visible().zip(&opened.visible) {
            match self.replaced_above(path) {
                // What is in the kept directory is visible with it.
                Some(replaced) if !self.own.contains(path) => show(source, path, replaced)?,
                None if self.shown.contains(path) => {}
                _ => bind(source, path)?,
            }
        }
        for path in iter::once(&self.kept).chain(&self.own) {
            restrict(path)?;
        }
        let shared = MountNamespace::current()?;
        let root = open_path(Path::new("/"))?;
        let mut own_mounts = self.own_mounts()?;
        unshare_mounts()?;
        self.user.mount()?;
        for replaced in &self.of_user {
            bind(&open_path(&replaced.source)?, &replaced.target)?;
        }
        // The copies have numbers of their own.
        own_mounts.extend(self.own_mounts()?);
        let user = MountNamespace::current()?;
        // As each process will.
        shared.enter()?;
        Ok(MountNamespaces {
            shared,
            user,
            root,
            own_mounts,
        })
    }

    /// Returns the numbers of the mounts that replace directories, and of those of `own`, in the
    /// namespace of the calling thread.
    fn own_mounts(&self) -> io::Result<HashSet<u64>> {
        let replaced = self.replaced.iter().map(|replaced| &replaced.target);
        let memory = self.memory.iter().map(|(target, _)| target);
        let paths = replaced.chain(memory).chain(&self.own);
        paths
            .map(|path| mount_of(open_path(path)?.as_fd()))
            .collect()
    }

    /// Returns the paths that stay visible, the outermost first.
    fn visible(&self) -> impl Iterator<Item = &PathBuf> {
        let session = iter::once(&self.kept).chain(&self.own);
        session.chain(&self.shown)
    }

    /// Returns the replaced directory that a path is below.
    fn replaced_above(&self, path: &Path) -> Option<&Path> {
        let replaced = self.replaced.iter().map(|replaced| &replaced.target);
        let memory = self.memory.iter().map(|(target, _)| target);
        let mut targets = replaced.chain(memory).map(PathBuf::as_path);
        targets.find(|target| path.starts_with(target))
    }
}

/// The sources of the mounts, opened before anything hides them.
struct Sources {
    replaced: Vec<OwnedFd>,
    /// The sources of `own` and `shown`.
    visible: Vec<OwnedFd>,
}

impl Sources {
    fn open(plan: &MountPlan) -> io::Result<Self> {
        let replaced = plan.replaced.iter().map(|mount| open_path(&mount.source));
        let visible = plan.visible().map(|path| open_path(path));
        Ok(Sources {
            replaced: replaced.collect::<io::Result<_>>()?,
            visible: visible.collect::<io::Result<_>>()?,
        })
    }
}

/// Returns the number of the mount that an open file is on. No two mounts of the system have the
/// same number at the same time.
///
/// # Errors
/// If the kernel does not report it.
pub fn mount_of(file: BorrowedFd<'_>) -> io::Result<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::Error::other("the kernel reports no mounts of files"))
}

/// Moves the calling thread into a copy of its mount namespace. Mounts of the system appear there,
/// too, but not the other way around.
fn unshare_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| at(path, errno))
}

fn bind(source: &OwnedFd, target: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    let source = descriptor_path(source);
    mount(Some(&source), target, None::<&str>, flags, None::<&str>)
        .map_err(|errno| at(target, errno))
}

/// Makes set-user-ID programs and devices on the mount at `path` ineffective: file routes create
/// files there as root, which other users of the session may run.
fn restrict(path: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>).map_err(|errno| at(path, errno))
}

fn mount_memory(target: &Path, bytes: Option<u64>) -> io::Result<()> {
    let size = bytes.map(|bytes| format!(",size={bytes}"));
    let options = format!("mode=1777{}", size.unwrap_or_default());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let kind = Some("tmpfs");
    mount(kind, target, kind, flags, Some(options.as_str())).map_err(|errno| at(target, errno))
}

/// Mounts `source` at `path`, which is below `replaced`. The mount point is created there without
/// following links, which a user of an earlier agent may have left.
fn show(source: &OwnedFd, path: &Path, replaced: &Path) -> io::Result<()> {
    let is_directory = fs::metadata(descriptor_path(source))?.is_dir();
    let relative = path.strip_prefix(replaced).unwrap_or(path);
    let names: Vec<&OsStr> = relative
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((last, parents)) = names.split_last() else {
        return Ok(());
    };
    let mut directory = open_path(replaced)?;
    for name in parents {
        directory = directory_in(&directory, name)?;
    }
    let target = match is_directory {
        true => directory_in(&directory, last)?,
        false => file_in(&directory, last)?,
    };
    bind(source, &descriptor_path(&target))
}

/// Opens a directory, which is created in place of anything else.
fn directory_in(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = openat(parent, name, flags, Mode::empty());
    match opened {
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)?;
        }
        Err(Errno::ENOENT) => {}
        opened => return Ok(opened?),
    }
    mkdirat(parent, name, PASSABLE)?;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Opens an empty file, which is created in place of any other one.
fn file_in(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn descriptor_path(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn at(path: &Path, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
