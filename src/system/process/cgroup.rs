//! cgroups (v2) for client processes.
//!
//! A process cannot leave its cgroup by starting a session, losing its parents or clearing its
//! environment, so a cgroup finds everything that a client process started. Only a process that
//! may write to the agent's own cgroup can move itself out: one of root or, if the cgroup is
//! delegated to another user, of that user. The scan of `/proc` in [`tree`](super::tree) covers
//! that case, and systems on which no cgroup can be used.
//!
//! ```text
//! <cgroup of the agent>/              delegated: the agent may create children
//!   berth-<random>/                   RunCgroup: one run of the agent
//!     <number>/                       Cgroup: one client process with all descendants
//! ```
//!
//! No controllers are enabled, so the rule that inner cgroups hold no processes does not apply:
//! the agent and its own children stay where they are.
//!
//! A new process starts in its cgroup (`CLONE_INTO_CGROUP`). Where the kernel cannot do that, it
//! moves there between `fork` and `exec`, by writing `0` to `cgroup.procs`, which takes up to 15 ms
//! if no process was moved for some time: the kernel then waits for an RCU grace period. If the
//! kernel refuses both, the process runs without a cgroup.
//!
//! The kernel takes some 60 µs to create a cgroup, and 30 µs to remove one. So both are done by
//! [`RunCgroup::keep_up`], apart from the requests of clients. The kernel removes a cgroup only if
//! no process is in it: if one outlives the leader, the cgroup is kept, and removed with that of a
//! later process or when the agent stops.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File, OpenOptions},
    io, mem,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt, fs::DirBuilderExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};
use parking_lot::Mutex;
use tokio::task;
use uuid::Uuid;

/// The start of the name of a [`RunCgroup`]; a UUID follows.
const NAME_PREFIX: &str = "berth-";
/// The mode of a [`RunCgroup`]: other users cannot list the processes of clients.
const PRIVATE_DIRECTORY: u32 = 0o700;
/// The number of cgroups that are created ahead.
const SPARES: usize = 4;

/// The directory of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupDirectory(PathBuf);

impl CgroupDirectory {
    /// Returns a new directory for a run below the agent's own cgroup. Its name is not that of the
    /// run: any user can read it in `/proc/<pid>/cgroup`.
    ///
    /// # Errors
    /// Fails if the cgroup v2 hierarchy is not mounted or does not show the agent's cgroup.
    pub(super) fn new_for_run() -> io::Result<Self> {
        let cgroups = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read("/proc/self/mountinfo")?;
        let parent = own_directory(&cgroups, &mounts)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no usable cgroup v2 mount"))?;
        Ok(Self::in_directory(&parent))
    }

    /// Returns a new directory in `parent`, without creating it.
    pub(super) fn in_directory(parent: &Path) -> Self {
        CgroupDirectory(parent.join(format!("{NAME_PREFIX}{}", Uuid::new_v4())))
    }

    /// Returns the recorded directory `path` of a run, if it still exists.
    pub(super) fn recorded(path: &Path) -> Option<Self> {
        let name = path.file_name().and_then(OsStr::to_str)?;
        let is_of_run = name.strip_prefix(NAME_PREFIX)?.parse::<Uuid>().is_ok();
        (is_of_run && path.is_dir()).then(|| CgroupDirectory(path.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the directory, to start a process in it.
    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(open(&self.0, flags, Mode::empty())?)
    }

    /// Kills all processes in this cgroup and below, also those that fork at the same time.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1")
    }

    /// Returns whether there are certainly living processes in this cgroup or below.
    pub(super) fn is_populated(&self) -> bool {
        self.has_processes() == Some(true)
    }

    /// Returns whether there is certainly no living process in this cgroup or below.
    pub(super) fn is_empty(&self) -> bool {
        self.has_processes() == Some(false)
    }

    /// Returns `None` if the kernel does not say. A removed cgroup has no processes.
    fn has_processes(&self) -> Option<bool> {
        match fs::read_to_string(self.0.join("cgroup.events")) {
            Ok(events) => events.lines().find_map(|line| match line {
                "populated 0" => Some(false),
                "populated 1" => Some(true),
                _ => None,
            }),
            Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(false),
        }
    }

    /// Returns the processes in this cgroup and below.
    pub(super) fn pids(&self) -> HashSet<i32> {
        let procs = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let mut pids: HashSet<i32> = procs.lines().filter_map(|pid| pid.parse().ok()).collect();
        for child in self.children() {
            pids.extend(child.pids());
        }
        pids
    }

    /// Removes the cgroup and those below it, which its processes may have created. A removed
    /// cgroup is no error.
    ///
    /// # Errors
    /// Fails if processes are left in it.
    pub(super) fn remove(&self) -> io::Result<()> {
        // Most have none below them.
        if self.remove_childless().is_ok() {
            return Ok(());
        }
        for child in self.children() {
            child.remove()?;
        }
        self.remove_childless()
    }

    fn remove_childless(&self) -> io::Result<()> {
        match fs::remove_dir(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn children(&self) -> impl Iterator<Item = Self> + use<> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| CgroupDirectory(entry.path()))
    }

    /// Checks that processes can be moved into this cgroup and killed there.
    fn check(&self) -> io::Result<()> {
        if !self.0.join("cgroup.kill").exists() {
            return Err(io::Error::other("no cgroup.kill, which needs Linux 5.14"));
        }
        let kind = fs::read_to_string(self.0.join("cgroup.type"))?;
        if kind.trim() != "domain" {
            return Err(io::Error::other(format!("cgroup type is {}", kind.trim())));
        }
        // A move needs permission for the target and for the common ancestor.
        open_for_writing(&self.0.join("cgroup.procs"))?;
        if let Some(parent) = self.0.parent() {
            open_for_writing(&parent.join("cgroup.procs"))?;
        }
        Ok(())
    }
}

/// The cgroup of one run of the agent, which holds those of its client processes.
#[derive(Debug)]
pub(super) struct RunCgroup {
    directory: CgroupDirectory,
    /// The number of the next cgroup.
    next: AtomicU64,
    spares: Mutex<Vec<EmptyCgroup>>,
    /// Directories to remove. Processes may be left in them.
    unremoved: Mutex<Vec<CgroupDirectory>>,
    is_closed: Mutex<bool>,
}

/// A cgroup in which no process was started.
#[derive(Debug)]
struct EmptyCgroup {
    directory: CgroupDirectory,
    descriptor: OwnedFd,
}

impl RunCgroup {
    /// Creates the cgroup.
    ///
    /// # Errors
    /// Fails if the agent's own cgroup is not delegated to it, or the kernel is too old.
    pub(super) fn create(directory: CgroupDirectory) -> io::Result<Self> {
        DirBuilder::new()
            .mode(PRIVATE_DIRECTORY)
            .create(&directory.0)?;
        if let Err(error) = directory.check() {
            let _ = directory.remove();
            return Err(error);
        }
        Ok(RunCgroup {
            directory,
            next: AtomicU64::new(1),
            spares: Mutex::default(),
            unremoved: Mutex::default(),
            is_closed: Mutex::new(false),
        })
    }

    pub(super) fn directory(&self) -> &CgroupDirectory {
        &self.directory
    }

    /// Returns the cgroup of one process.
    ///
    /// # Errors
    /// Fails if the system does not allow another cgroup.
    pub(super) fn child(self: &Arc<Self>) -> io::Result<Cgroup> {
        let spare = self.spares.lock().pop();
        let EmptyCgroup {
            directory,
            descriptor,
        } = spare.map_or_else(|| self.create_empty(), Ok)?;
        Ok(Cgroup {
            directory,
            descriptor: Some(descriptor),
            run: self.clone(),
            is_removed: AtomicBool::new(false),
        })
    }

    fn create_empty(&self) -> io::Result<EmptyCgroup> {
        let number = self.next.fetch_add(1, Relaxed).to_string();
        let directory = CgroupDirectory(self.directory.0.join(number));
        fs::create_dir(&directory.0)?;
        let opened = directory.open().inspect_err(|_| {
            let _ = directory.remove();
        });
        opened.map(|descriptor| EmptyCgroup {
            directory,
            descriptor,
        })
    }

    /// Prevents that further cgroups are created ahead, so that this one can be removed.
    pub(super) fn close(&self) {
        *self.is_closed.lock() = true;
    }

    /// Removes cgroups that are not needed any more, and creates others ahead.
    pub(super) async fn keep_up(&self) {
        let mut unremoved = mem::take(&mut *self.unremoved.lock());
        while let Some(directory) = unremoved.pop() {
            if directory.remove().is_err() {
                self.unremoved.lock().push(directory);
            }
            task::yield_now().await;
        }
        while self.create_ahead() {
            task::yield_now().await;
        }
    }

    /// Creates a cgroup ahead, if one is missing. Returns whether it has.
    fn create_ahead(&self) -> bool {
        let is_closed = self.is_closed.lock();
        if *is_closed || self.spares.lock().len() >= SPARES {
            return false;
        }
        // The start that needs one reports the error.
        let created = self.create_empty();
        created.map(|spare| self.spares.lock().push(spare)).is_ok()
    }
}

/// The cgroup of one client process and everything it starts. Dropping it has it removed.
#[derive(Debug)]
pub struct Cgroup {
    directory: CgroupDirectory,
    /// `None` once a process was started in it.
    descriptor: Option<OwnedFd>,
    run: Arc<RunCgroup>,
    is_removed: AtomicBool,
}

impl Cgroup {
    pub(super) fn directory(&self) -> &CgroupDirectory {
        &self.directory
    }

    /// Returns the open directory, to start the first process in it.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Has the cgroup removed by [`RunCgroup::keep_up`]. This may be repeated.
    pub(super) fn remove(&self) {
        if !self.is_removed.swap(true, Relaxed) {
            self.run.unremoved.lock().push(self.directory.clone());
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

fn open_for_writing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Returns the directory of this process's cgroup, from `/proc/self/cgroup` and
/// `/proc/self/mountinfo`.
fn own_directory(cgroups: &str, mounts: &[u8]) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        // See proc_pid_mountinfo(5): optional fields end with a hyphen.
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        if *fields.get(separator + 1)? != b"cgroup2" {
            return None;
        }
        let (root, mount_point) = (unescape(fields.get(3)?), unescape(fields.get(4)?));
        // The mount may show only a part of the hierarchy. A root outside of the agent's cgroup
        // namespace begins with `/..` and never matches.
        let relative = Path::new(path).strip_prefix(Path::new(&root)).ok()?;
        Some(Path::new(&mount_point).join(relative))
    })
}

/// Decodes the octal escapes for white space and backslashes, such as `\040`.
fn unescape(field: &[u8]) -> OsString {
    let mut decoded = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if byte == b'\\' => {
                decoded.push(code);
                rest = &after[3..];
            }
            _ => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(decoded)
}

#[cfg(test)]
mod tests;
