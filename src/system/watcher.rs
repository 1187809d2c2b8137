//! Changes in a directory, as inotify tells them.
//!
//! Every directory is watched on its own, so that the content of a new one which was there before its watch can be told as well.
//! All watches share one inotify instance: a user may have few of them.

use std::{
    collections::{HashMap, HashSet},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use notify::{
    ErrorKind, Event, EventKind, INotifyWatcher, RecursiveMode, Watcher as _,
    event::{CreateKind, Flag, ModifyKind, RemoveKind, RenameMode},
};

/// Events that wait to be told. Beyond this they are dropped, and that is told.
const MAX_WAITING: usize = 1 << 16;
/// How long the first half of a move waits for the second, which the kernel puts right behind it.
const SECOND_HALF: Duration = Duration::from_millis(20);
/// Entries that were told ahead of their own events. Beyond this some may be told twice.
const MAX_AHEAD: usize = 1 << 16;

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
    /// Something was missed.
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
    id: u64,
}

#[derive(Debug)]
struct Shared {
    inotify: Mutex<Inotify>,
    tellers: Mutex<Tellers>,
}

#[derive(Debug, Default)]
struct Tellers {
    by_id: HashMap<u64, Teller>,
    last_id: u64,
}

/// The instance, and how many watches need each directory.
#[derive(Debug)]
struct Inotify {
    watcher: INotifyWatcher,
    needed: HashMap<PathBuf, usize>,
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
        let (sender, events) = sync_channel(MAX_WAITING);
        let missed = Arc::new(AtomicBool::new(false));
        let deliver = deliver(sender, missed.clone());
        let watcher = INotifyWatcher::new(deliver, notify::Config::default())?;
        let shared = Arc::new(Shared {
            inotify: Mutex::new(Inotify {
                watcher,
                needed: HashMap::new(),
            }),
            tellers: Mutex::default(),
        });
        let told = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || tell_all(&events, &missed, &told))
            .map_err(|error| WatchError::Other(error.to_string()))?;
        Ok(Watcher { shared })
    }

    /// Watches the directory `path`, and all below it where `recursive`. `tell` is called from the watcher's thread until the watch is
    /// dropped or [`Change::Gone`].
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
        let watch = self.enlist(Teller {
            root: root.clone(),
            recursive,
            shared: Arc::downgrade(&self.shared),
            watched: HashSet::new(),
            directories: HashSet::new(),
            ahead: HashSet::new(),
            moved: None,
            tell,
        });
        // What is there already is nothing new, and a limit is an error.
        let mut waiting = vec![root];
        while let Some(directory) = waiting.pop() {
            // The lock is taken anew for each, so that the other watches go on meanwhile.
            let learned = match lock(&self.shared.tellers).by_id.get_mut(&watch.id) {
                Some(teller) => teller.learn(&directory),
                // It has gone already, and that has been told.
                None => break,
            };
            waiting.extend(learned?);
        }
        Ok(watch)
    }

    /// Before anything is watched for it, so that no event comes too early.
    fn enlist(&self, teller: Teller) -> Watch {
        let mut tellers = lock(&self.shared.tellers);
        tellers.last_id += 1;
        let id = tellers.last_id;
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

impl Inotify {
    fn need(&mut self, path: &Path) -> Result<(), WatchError> {
        self.watcher.watch(path, RecursiveMode::NonRecursive)?;
        *self.needed.entry(path.to_owned()).or_default() += 1;
        Ok(())
    }

    fn release(&mut self, path: &Path) {
        let Some(count) = self.needed.get_mut(path) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.needed.remove(path);
            // One that was deleted or moved is not watched any more.
            let _ = self.watcher.unwatch(path);
        }
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

impl From<notify::Error> for WatchError {
    fn from(error: notify::Error) -> Self {
        match error.kind {
            ErrorKind::PathNotFound => WatchError::NotFound,
            ErrorKind::MaxFilesWatch => WatchError::SystemLimit,
            ErrorKind::Io(error) => error.into(),
            _ => WatchError::Other(error.to_string()),
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

/// What inotify's thread does with an event: never wait, or the kernel's own queue would overflow.
fn deliver(
    sender: SyncSender<Event>,
    missed: Arc<AtomicBool>,
) -> impl FnMut(notify::Result<Event>) + Send + 'static {
    move |event| {
        let delivered = match event {
            Ok(event) if is_of_no_interest(&event) => true,
            Ok(event) => sender.try_send(event).is_ok(),
            Err(_) => false,
        };
        if !delivered {
            missed.store(true, Ordering::Release);
        }
    }
}

fn is_of_no_interest(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_))
    )
}

/// The thread that makes changes of events, until the last watch and the watcher are gone.
fn tell_all(events: &Receiver<Event>, missed: &AtomicBool, shared: &Weak<Shared>) {
    let mut half_moved = false;
    loop {
        let event = if half_moved {
            events.recv_timeout(SECOND_HALF)
        } else {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut tellers = lock(&shared.tellers);
        if missed.swap(false, Ordering::AcqRel) {
            tellers.by_id.values_mut().for_each(Teller::overflowed);
        }
        match event {
            Ok(event) => tellers.by_id.retain(|_, teller| teller.hear(&event)),
            Err(RecvTimeoutError::Timeout) => {
                tellers.by_id.values_mut().for_each(Teller::moved_out);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        half_moved = tellers.by_id.values().any(|teller| teller.moved.is_some());
    }
}

/// What makes changes of events for one watch.
struct Teller {
    root: PathBuf,
    recursive: bool,
    shared: Weak<Shared>,
    /// Those that inotify watches for it.
    watched: HashSet<PathBuf>,
    /// Those known: all below where it is recursive, else those right below the root. Some events do not say what they are about.
    directories: HashSet<PathBuf>,
    /// What was found in new directories and told before its own event came, if ever one does.
    ahead: HashSet<PathBuf>,
    /// The first half of a move, and what pairs it with the second.
    moved: Option<(PathBuf, Option<usize>)>,
    tell: Tell,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let watched = std::mem::take(&mut self.watched);
        if let Some(shared) = self.shared.upgrade() {
            let mut inotify = lock(&shared.inotify);
            watched.iter().for_each(|path| inotify.release(path));
        }
    }
}

impl Teller {
    /// Takes an event that may be another watch's; `false` once the root is gone.
    fn hear(&mut self, event: &Event) -> bool {
        if event.flag() == Some(Flag::Rescan) {
            self.overflowed();
            return true;
        }
        let Some(path) = event.paths.first() else {
            return true;
        };
        let concerned = *path == self.root
            || path.parent() == Some(&self.root)
            || self.recursive && path.starts_with(&self.root);
        if concerned && !self.take(event, path) {
            (self.tell)(Change::Gone);
            return false;
        }
        true
    }

    /// `false` once the root is gone.
    fn take(&mut self, event: &Event, path: &Path) -> bool {
        let kind = event.kind;
        let arrives = matches!(kind, EventKind::Modify(ModifyKind::Name(RenameMode::To)));
        if !arrives {
            self.moved_out();
        }
        match kind {
            EventKind::Create(kind) => self.created(path, kind == CreateKind::Folder),
            EventKind::Modify(ModifyKind::Data(_)) => (self.tell)(Change::Written {
                path: path.to_owned(),
            }),
            EventKind::Remove(_) if path == self.root => {
                (self.tell)(Change::Deleted {
                    path: path.to_owned(),
                    is_dir: true,
                });
                return false;
            }
            EventKind::Remove(kind) => self.removed(path, kind == RemoveKind::Folder),
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if path == self.root => {
                (self.tell)(Change::Renamed {
                    path: path.to_owned(),
                    is_dir: true,
                    to: None,
                });
                return false;
            }
            // Without its other half's mark it is a directory's own word of what its parent has told already.
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if event.tracker().is_some() => {
                self.moved = Some((path.to_owned(), event.tracker()));
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                self.arrived(path, event.tracker());
            }
            _ => {}
        }
        true
    }

    fn created(&mut self, path: &Path, is_dir: bool) {
        if self.ahead.remove(path) {
            return;
        }
        self.tell_created(path, is_dir, None);
        if is_dir {
            self.enter(path);
        }
    }

    fn removed(&mut self, path: &Path, is_dir: bool) {
        self.ahead.remove(path);
        // A directory that is watched says so itself, and its parent says so as well.
        if !self.forget(path) && is_dir {
            return;
        }
        (self.tell)(Change::Deleted {
            path: path.to_owned(),
            is_dir,
        });
    }

    fn arrived(&mut self, path: &Path, tracker: Option<usize>) {
        let from = match self.moved.take() {
            Some((from, first)) if first == tracker => Some(from),
            other => {
                self.moved = other;
                self.moved_out();
                None
            }
        };
        self.ahead.remove(path);
        let Some(from) = from else {
            let metadata = fs::symlink_metadata(path);
            let is_dir = metadata.as_ref().is_ok_and(fs::Metadata::is_dir);
            self.tell_created(path, is_dir, None);
            if is_dir {
                self.enter(path);
            } else if metadata.is_err() {
                // It has gone again; it may have been a directory.
                self.directories.insert(path.to_owned());
            }
            return;
        };
        self.ahead.remove(&from);
        let is_dir = self.forget(&from);
        if is_dir {
            // Watched before it is told, so that who hears of it misses nothing from then on. What is in it has been told under its
            // old name. What happens between the end of the one watch and the beginning of the other, some microseconds, is not
            // told: to the kernel both names are one watch, which cannot be renamed.
            self.directories.insert(path.to_owned());
            if self.recursive {
                self.explore(path, false);
            }
        }
        (self.tell)(Change::Renamed {
            path: from.clone(),
            is_dir,
            to: Some(path.to_owned()),
        });
        self.tell_created(path, is_dir, Some(from));
    }

    /// The second half of a move did not come: it went somewhere out of sight.
    fn moved_out(&mut self) {
        if let Some((path, _)) = self.moved.take() {
            self.ahead.remove(&path);
            let is_dir = self.forget(&path);
            (self.tell)(Change::Renamed {
                path,
                is_dir,
                to: None,
            });
        }
    }

    fn overflowed(&mut self) {
        self.ahead.clear();
        (self.tell)(Change::Overflow);
    }

    fn tell_created(&mut self, path: &Path, is_dir: bool, from: Option<PathBuf>) {
        (self.tell)(Change::Created {
            path: path.to_owned(),
            is_dir,
            from,
        });
    }

    /// Takes in a directory that is new here.
    fn enter(&mut self, path: &Path) {
        self.directories.insert(path.to_owned());
        if self.recursive {
            self.explore(path, true);
        }
    }

    /// Forgets a directory and all below it; `false` where there was none.
    fn forget(&mut self, path: &Path) -> bool {
        let known = self.directories.remove(path);
        if known && self.recursive {
            self.directories.retain(|below| !below.starts_with(path));
            let gone: Vec<_> = self
                .watched
                .extract_if(|watched| watched.starts_with(path))
                .collect();
            if let Some(shared) = self.shared.upgrade() {
                let mut inotify = lock(&shared.inotify);
                gone.iter().for_each(|path| inotify.release(path));
            }
        }
        known
    }

    /// Watches `path` and what is below; tells what it finds there where that is `new`.
    fn explore(&mut self, path: &Path, new: bool) {
        let mut waiting = vec![path.to_owned()];
        while let Some(directory) = waiting.pop() {
            match self.watch_directory(&directory) {
                Ok(true) => {}
                Ok(false) => return,
                // It has gone again, and its parent tells.
                Err(WatchError::NotFound | WatchError::NotADirectory) => continue,
                Err(error) => {
                    tracing::warn!(%error, "a directory below a watched one is not watched");
                    (self.tell)(Change::Overflow);
                    continue;
                }
            }
            for (entry, is_dir) in entries(&directory) {
                if new {
                    self.tell_created(&entry, is_dir, None);
                    if self.ahead.len() >= MAX_AHEAD {
                        self.ahead.clear();
                    }
                    self.ahead.insert(entry.clone());
                }
                if is_dir && self.directories.insert(entry.clone()) {
                    waiting.push(entry);
                }
            }
        }
    }

    /// `false` where the watcher has been dropped.
    fn watch_directory(&mut self, path: &Path) -> Result<bool, WatchError> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(false);
        };
        if self.watched.contains(path) {
            return Ok(true);
        }
        lock(&shared.inotify).need(path)?;
        self.watched.insert(path.to_owned());
        Ok(true)
    }

    /// Takes in a directory that was there before the watch; gives those below that are to be taken in as well.
    fn learn(&mut self, directory: &Path) -> Result<Vec<PathBuf>, WatchError> {
        let is_root = directory == self.root;
        match self.watch_directory(directory) {
            Ok(_) => {}
            Err(error) if is_root || matches!(error, WatchError::SystemLimit) => return Err(error),
            // Gone meanwhile, or closed to this user.
            Err(_) => return Ok(Vec::new()),
        }
        let below = entries(directory).into_iter();
        let below: Vec<_> = below
            .filter_map(|(path, is_dir)| is_dir.then_some(path))
            .collect();
        self.directories.extend(below.iter().cloned());
        Ok(if self.recursive { below } else { Vec::new() })
    }
}

/// What is in a directory, and whether it is one itself; nothing where it cannot be read.
fn entries(directory: &Path) -> Vec<(PathBuf, bool)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            (entry.path(), is_dir)
        })
        .collect()
}
