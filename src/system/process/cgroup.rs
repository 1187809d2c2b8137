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
//!     <process id>/                   Cgroup: one client process with all descendants
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
//! The kernel removes a cgroup only if no process is in it. The directory of a client process is
//! removed when its leader is reaped. If other processes are still in it, it is kept until they
//! have ended, and removed when a later cgroup is created or when the agent stops.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt, fs::DirBuilderExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};
use parking_lot::Mutex;
use uuid::Uuid;

/// The start of the name of a [`RunCgroup`]; a UUID follows.
const NAME_PREFIX: &str = "berth-";
/// The mode of a [`RunCgroup`]: other users cannot list the processes of clients.
const PRIVATE_DIRECTORY: u32 = 0o700;

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
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
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
    /// Directories that could not be removed because processes were left in them.
    unremoved: Mutex<Vec<CgroupDirectory>>,
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
            unremoved: Mutex::default(),
        })
    }

    pub(super) fn directory(&self) -> &CgroupDirectory {
        &self.directory
    }

    /// Creates the cgroup of one process, and removes those whose processes have ended since.
    ///
    /// # Errors
    /// Fails if the system does not allow another cgroup.
    pub(super) fn create_child(self: &Arc<Self>, process: &str) -> io::Result<Cgroup> {
        self.unremoved
            .lock()
            .retain(|directory| directory.remove().is_err());
        let directory = CgroupDirectory(self.directory.0.join(process));
        fs::create_dir(&directory.0)?;
        Ok(Cgroup {
            directory,
            run: self.clone(),
            is_removed: AtomicBool::new(false),
        })
    }
}

/// The cgroup of one client process and everything it starts.
#[derive(Debug)]
pub struct Cgroup {
    directory: CgroupDirectory,
    run: Arc<RunCgroup>,
    is_removed: AtomicBool,
}

impl Cgroup {
    pub(super) fn directory(&self) -> &CgroupDirectory {
        &self.directory
    }

    /// Removes the cgroup, now or once the processes in it have ended. This may be repeated.
    pub(super) fn remove(&self) {
        if self.is_removed.load(Ordering::Relaxed) {
            return;
        }
        match self.directory.remove() {
            Ok(()) => self.is_removed.store(true, Ordering::Relaxed),
            Err(_) => {
                let mut unremoved = self.run.unremoved.lock();
                if !unremoved.contains(&self.directory) {
                    unremoved.push(self.directory.clone());
                }
            }
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
mod tests {
    use std::{
        process::{Child, Command},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    fn directory_of(cgroups: &str, mounts: &str) -> Option<PathBuf> {
        own_directory(cgroups, mounts.as_bytes())
    }

    #[test]
    fn own_directory_is_below_the_mount_point() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n\
            30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw\n";
        let expected = Some(PathBuf::from("/sys/fs/cgroup/user.slice/a b.scope"));
        assert_eq!(
            directory_of("4:memory:/x\n0::/user.slice/a b.scope\n", mounts),
            expected
        );
        assert_eq!(
            directory_of("0::/\n", mounts),
            Some("/sys/fs/cgroup/".into())
        );
        assert_eq!(directory_of("4:memory:/x\n", mounts), None);
        assert_eq!(
            directory_of("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n"),
            None
        );
    }

    #[test]
    fn own_directory_considers_the_root_of_the_mount() {
        let mounts = "31 23 0:27 /docker/7 /mnt/the\\040cgroups rw - cgroup2 cgroup2 rw\n";
        let expected = Some(PathBuf::from("/mnt/the cgroups/init"));
        assert_eq!(directory_of("0::/docker/7/init\n", mounts), expected);
        assert_eq!(directory_of("0::/docker/8\n", mounts), None);
        let outside = "31 23 0:27 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(directory_of("0::/\n", outside), None);
    }

    #[test]
    fn recorded_directory_has_the_name_of_a_run() {
        let parent = tempfile::TempDir::new().unwrap();
        let directory = CgroupDirectory::in_directory(parent.path());
        assert_eq!(CgroupDirectory::recorded(directory.path()), None);
        fs::create_dir(directory.path()).unwrap();
        let recorded = CgroupDirectory::recorded(directory.path());
        assert_eq!(recorded, Some(directory));
        assert_eq!(CgroupDirectory::recorded(parent.path()), None);
        assert_eq!(CgroupDirectory::recorded(Path::new("")), None);
    }

    /// Creates a cgroup. Returns `None` if no cgroup can be used and `BERTH_TEST_CGROUPS` allows
    /// skipping the test.
    #[expect(clippy::disallowed_methods, reason = "a setting of the tests")]
    fn create() -> Option<Arc<RunCgroup>> {
        match CgroupDirectory::new_for_run().and_then(RunCgroup::create) {
            Ok(run) => Some(Arc::new(run)),
            Err(error) => {
                let setting = std::env::var_os("BERTH_TEST_CGROUPS");
                assert!(
                    setting.is_some_and(|value| value == "skip"),
                    "no cgroup can be used: {error}; BERTH_TEST_CGROUPS=skip skips this test"
                );
                eprintln!("skipped: no cgroup can be used: {error}");
                None
            }
        }
    }

    fn sleep_in(cgroup: &Cgroup) -> Child {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let procs = cgroup.directory.0.join("cgroup.procs");
        fs::write(procs, child.id().to_string()).unwrap();
        child
    }

    #[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
    fn wait_until(condition: impl Fn() -> bool) {
        let started_at = Instant::now();
        while !condition() {
            assert!(started_at.elapsed() < TEST_TIMEOUT, "timed out");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
    fn kill_ends_all_processes_of_a_cgroup_and_of_those_below() {
        let Some(run) = create() else { return };
        let cgroup = run.create_child("one").unwrap();
        assert!(!cgroup.directory.is_populated() && cgroup.directory.is_empty());
        let mut child = sleep_in(&cgroup);
        assert!(cgroup.directory.is_populated() && !cgroup.directory.is_empty());
        assert_eq!(
            run.directory.pids(),
            HashSet::from([child.id().cast_signed()])
        );
        cgroup.directory.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "killed by a signal");
        wait_until(|| !cgroup.directory.is_populated());
        let path = cgroup.directory.0.clone();
        // A process that may write to its cgroup can create further ones below it.
        fs::create_dir(path.join("inner")).unwrap();
        drop(cgroup);
        assert!(!path.exists());
        run.directory.remove().unwrap();
        assert!(!run.directory.0.exists());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
    fn populated_cgroup_is_removed_once_its_processes_have_ended() {
        let Some(run) = create() else { return };
        let cgroup = run.create_child("one").unwrap();
        let directory = cgroup.directory.clone();
        let mut child = sleep_in(&cgroup);
        drop(cgroup);
        assert!(directory.is_populated());
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until(|| !directory.is_populated());
        drop(run.create_child("two").unwrap());
        assert!(!directory.0.exists());
        run.directory.remove().unwrap();
    }
}
