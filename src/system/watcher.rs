//! Changes in a directory, as inotify tells them.
//!
//! Every directory is watched on its own, so that the content of a new one which was there before its watch can be told as well.
//! All watches share one inotify instance, of which a user may have few, and one thread.

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InotifyEvent},
};

mod kernel;
mod teller;

use kernel::{Inbox, Kernel};
use teller::{Teller, directories_in};

/// Directories below the roots of recursive watches, over all watches: one that two of them watch counts twice.
pub const MAX_BELOW: usize = 1 << 16;
/// How long the first half of a move waits for the second, which the kernel puts right behind it.
const SECOND_HALF: Duration = Duration::from_millis(20);
/// As many events later it waits no longer either, should the others never pause.
const EVENTS_BETWEEN: u64 = 1 << 10;
/// Events that are told before others get at the watches.
const BATCH: usize = 64;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Created {
        path: PathBuf,
        is_dir: bool,
        /// What it was called before, where it was moved here from within.
        from: Option<PathBuf>,
    },
    Written {
        path: PathBuf,
    },
    Deleted {
        path: PathBuf,
        is_dir: bool,
    },
    Renamed {
        path: PathBuf,
        is_dir: bool,
        /// What it is called now; `None` where it went out of sight.
        to: Option<PathBuf>,
    },
    /// Something was missed. What happens from now on is not.
    Overflow,
    /// The directory itself is gone. Nothing follows.
    Gone,
}

impl Change {
    fn paths_mut(&mut self) -> [Option<&mut PathBuf>; 2] {
        match self {
            Change::Created { path, from, .. } => [Some(path), from.as_mut()],
            Change::Written { path } | Change::Deleted { path, .. } => [Some(path), None],
            Change::Renamed { path, to, .. } => [Some(path), to.as_mut()],
            Change::Overflow | Change::Gone => [None, None],
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("there is no such directory")]
    NotFound,
    #[error("it is not a directory")]
    NotADirectory,
    #[error("it may not be read")]
    Denied,
    #[error("{MAX_BELOW} directories below watched ones are watched with them, which is the limit")]
    Full,
    #[error("the system's limit of inotify watches is reached")]
    SystemLimit,
    #[error("cannot be watched: {0}")]
    Other(String),
}

/// A watcher that is started when it is first needed; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedWatcher {
    started: Arc<Mutex<Option<Arc<Watcher>>>>,
}

/// Watches directories, all with one inotify instance and one thread.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
}

/// A directory that is being watched. Dropping it ends that, which takes the longer the more directories are below it.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    id: WatchNumber,
}

type WatchNumber = u64;

#[derive(Debug)]
struct Shared {
    kernel: Arc<Kernel>,
    tellers: Mutex<Tellers>,
}

#[derive(Debug, Default)]
struct Tellers {
    by_id: HashMap<WatchNumber, Teller>,
    last_id: WatchNumber,
    /// Those that know something which later events may bear upon.
    unsettled: BTreeSet<WatchNumber>,
}

impl SharedWatcher {
    /// # Errors
    /// Where it cannot be started.
    pub fn get(&self) -> Result<Arc<Watcher>, WatchError> {
        let mut watcher = lock(&self.started);
        if let Some(watcher) = &*watcher {
            return Ok(watcher.clone());
        }
        let started = Arc::new(Watcher::start()?);
        *watcher = Some(started.clone());
        Ok(started)
    }
}

impl Watcher {
    /// # Errors
    /// Where the user has no inotify instance left.
    pub fn start() -> Result<Self, WatchError> {
        let kernel = Arc::new(Kernel::new()?);
        let shared = Arc::new(Shared {
            kernel: kernel.clone(),
            tellers: Mutex::default(),
        });
        let told = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || tell_all(&kernel, &told))?;
        Ok(Watcher { shared })
    }

    /// Watches the directory `path`, and all below it where `recursive`, but for other file systems that the kernel makes up. `tell` is
    /// called from the watcher's thread until the watch is dropped or [`Change::Gone`].
    ///
    /// Blocks for as long as it takes to walk through the directory.
    ///
    /// # Errors
    /// Where the directory cannot be watched.
    pub fn watch(
        &self,
        path: &Path,
        recursive: bool,
        tell: impl FnMut(Change) + Send + 'static,
    ) -> Result<Watch, WatchError> {
        if !fs::metadata(path)?.is_dir() {
            return Err(WatchError::NotADirectory);
        }
        fs::read_dir(path)?;
        // To the kernel a directory is one, whatever it is called: under two names it would be told under the one alone.
        let root = fs::canonicalize(path)?;
        let tell = in_terms_of(path.to_owned(), root.clone(), tell);
        let watch = self.enlist(root.clone(), recursive, tell);
        // What is there already is nothing new, and a limit is an error.
        let mut waiting = vec![root.clone()];
        while let Some(directory) = waiting.pop() {
            // The lock is taken anew for each, so that the other watches go on meanwhile.
            let added = match lock(&self.shared.tellers).by_id.get_mut(&watch.id) {
                Some(teller) => teller.add(&directory),
                // It has gone already, and that has been told.
                None => break,
            };
            match added {
                Ok(added) if added.is_walked() && recursive => {
                    waiting.extend(directories_in(&directory).take(MAX_BELOW));
                }
                Ok(_) => {}
                Err(error) if directory == root => return Err(error),
                Err(error @ (WatchError::SystemLimit | WatchError::Full)) => return Err(error),
                // Gone meanwhile, or closed to this user.
                Err(_) => {}
            }
            // Not so many more than could be watched.
            if waiting.len() > MAX_BELOW {
                return Err(WatchError::Full);
            }
        }
        Ok(watch)
    }

    /// Before anything is watched for it, so that no event comes too early.
    fn enlist(&self, root: PathBuf, recursive: bool, tell: Tell) -> Watch {
        let mut tellers = lock(&self.shared.tellers);
        tellers.last_id += 1;
        let id = tellers.last_id;
        let kernel = self.shared.kernel.clone();
        let teller = Teller::new(id, root, recursive, kernel, tell);
        tellers.by_id.insert(id, teller);
        Watch {
            shared: self.shared.clone(),
            id,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let teller = lock(&self.shared.tellers).by_id.remove(&self.id);
        drop(teller);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.kernel.stop();
    }
}

impl From<io::Error> for WatchError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => WatchError::NotFound,
            io::ErrorKind::NotADirectory => WatchError::NotADirectory,
            io::ErrorKind::PermissionDenied => WatchError::Denied,
            // Too many inotify instances; those of this process have a bound far below its descriptors.
            _ if error.raw_os_error() == Some(nix::libc::EMFILE) => WatchError::SystemLimit,
            _ => WatchError::Other(error.to_string()),
        }
    }
}

impl From<Errno> for WatchError {
    fn from(error: Errno) -> Self {
        match error {
            // What `inotify_add_watch` says at the limit; it writes to no disk.
            Errno::ENOSPC => WatchError::SystemLimit,
            // It became a link meanwhile.
            Errno::ELOOP => WatchError::NotADirectory,
            error => io::Error::from(error).into(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Tell = Box<dyn FnMut(Change) + Send>;

/// Tells of what is below `root` as being below `called`.
fn in_terms_of(
    called: PathBuf,
    root: PathBuf,
    mut tell: impl FnMut(Change) + Send + 'static,
) -> Tell {
    if called == root {
        return Box::new(tell);
    }
    let rename = move |path: &mut PathBuf| {
        if *path == root {
            path.clone_from(&called);
        } else if let Ok(below) = path.strip_prefix(&root) {
            *path = called.join(below);
        }
    };
    Box::new(move |mut change| {
        change.paths_mut().into_iter().flatten().for_each(&rename);
        tell(change);
    })
}

/// The thread that makes changes of events, until the last watch and the watcher are gone.
fn tell_all(kernel: &Kernel, shared: &Weak<Shared>) {
    let mut inbox = Inbox::new(kernel);
    loop {
        inbox.fill();
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut tellers = lock(&shared.tellers);
        if inbox.has_failed() {
            tellers.end_all();
            return;
        }
        for _ in 0..BATCH {
            let Some(event) = inbox.pop() else { break };
            tellers.hear(&event, &mut inbox);
        }
        let timeout = if inbox.is_drained() {
            let half_moved = tellers.settle();
            Some(half_moved.then_some(SECOND_HALF))
        } else {
            tellers.settle_before(inbox.now().saturating_sub(EVENTS_BETWEEN));
            None
        };
        drop(tellers);
        drop(shared);
        if let Some(timeout) = timeout
            && !kernel.wait(timeout)
        {
            return;
        }
    }
}

impl Tellers {
    fn hear(&mut self, event: &InotifyEvent, inbox: &mut Inbox) {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.by_id.retain(|_, teller| teller.overflowed(inbox));
            return;
        }
        let concerned = inbox.kernel().watches_of(event.wd);
        for id in concerned {
            let Some(teller) = self.by_id.get_mut(&id) else {
                continue;
            };
            if !teller.hear(event, inbox) {
                self.by_id.remove(&id);
            } else if teller.is_unsettled() {
                self.unsettled.insert(id);
            }
        }
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            inbox.kernel().ignored(event.wd);
        }
    }

    /// All that had happened has been heard; `true` where the second half of a move may still come.
    fn settle(&mut self) -> bool {
        let by_id = &mut self.by_id;
        self.unsettled.retain(|id| {
            let teller = by_id.get_mut(id);
            teller.is_some_and(|teller| teller.settle(SECOND_HALF))
        });
        !self.unsettled.is_empty()
    }

    /// As [`Tellers::settle`] where events come without a pause: up to the one with that number.
    fn settle_before(&mut self, due: u64) {
        for id in &self.unsettled {
            if let Some(teller) = self.by_id.get_mut(id) {
                teller.settle_before(due);
            }
        }
    }

    /// Nothing will be heard any more.
    fn end_all(&mut self) {
        for mut teller in std::mem::take(&mut self.by_id).into_values() {
            teller.end();
        }
    }
}
