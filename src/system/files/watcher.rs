//! Changes in a directory, as inotify tells them.
//!
//! Every directory is watched on its own, so that the content of a new one which was there before its watch can be told as well.
//! All watches share one inotify instance: a user may have few of them.

use std::{
    collections::{BTreeSet, HashMap},
    fmt, fs, io,
    ops::Bound,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use notify::{
    ErrorKind, Event, EventKind, INotifyWatcher, RecursiveMode, Watcher as _,
    event::{CreateKind, Flag, ModifyKind, RemoveKind, RenameMode},
};
use parking_lot::{Mutex, MutexGuard};

use crate::system::files::virtual_fs::is_virtual;

/// Events that wait to be told. Beyond this they are dropped, and that is told.
const MAX_WAITING: usize = 1 << 16;
/// How long the first half of a move waits for the second, which the kernel puts right behind it.
const SECOND_HALF: Duration = Duration::from_millis(20);
/// Entries that were told ahead of their own events. Beyond this some may be told twice.
const MAX_AHEAD: usize = 1 << 16;

/// Directories below the roots of recursive watches, over all watches: one that two of them watch counts twice.
pub const MAX_BELOW: usize = 1 << 16;

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
    RootGone,
}

impl Change {
    fn paths_mut(&mut self) -> [Option<&mut PathBuf>; 2] {
        match self {
            Change::Created { path, from, .. } => [Some(path), from.as_mut()],
            Change::Written { path } | Change::Deleted { path, .. } => [Some(path), None],
            Change::Renamed { path, to, .. } => [Some(path), to.as_mut()],
            Change::Overflow | Change::RootGone => [None, None],
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
    PermissionDenied,
    #[error("{MAX_BELOW} directories below watched ones are watched with them, which is the limit")]
    LimitReached,
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
    /// The needs that are not for the root of a watch.
    below: usize,
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
                below: 0,
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

    /// Watches the directory `path`, and all below it where `recursive`, but for other file systems that the kernel makes up. `tell` is
    /// called from the watcher's thread until the watch is dropped or [`Change::RootGone`].
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
            device: fs::metadata(&root)?.dev(),
            root: root.clone(),
            recursive,
            shared: Arc::downgrade(&self.shared),
            watched: BTreeSet::new(),
            directories: BTreeSet::new(),
            ahead: BTreeSet::new(),
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
    fn need(&mut self, path: &Path, is_root: bool) -> Result<(), WatchError> {
        if !is_root && self.below >= MAX_BELOW {
            return Err(WatchError::LimitReached);
        }
        self.watcher.watch(path, RecursiveMode::NonRecursive)?;
        *self.needed.entry(path.to_owned()).or_default() += 1;
        self.below += usize::from(!is_root);
        Ok(())
    }

    fn release(&mut self, path: &Path, is_root: bool) {
        let Some(count) = self.needed.get_mut(path) else {
            return;
        };
        *count -= 1;
        self.below -= usize::from(!is_root);
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
            io::ErrorKind::PermissionDenied => WatchError::PermissionDenied,
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
    mutex.lock()
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
            tellers.by_id.retain(|_, teller| teller.overflowed());
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
    /// The file system of the root.
    device: u64,
    recursive: bool,
    shared: Weak<Shared>,
    /// Those that inotify watches for it.
    watched: BTreeSet<PathBuf>,
    /// Those known: all below where it is recursive, else those right below the root. Some events do not say what they are about.
    directories: BTreeSet<PathBuf>,
    /// What was found in new directories and told before its own event came, if ever one does.
    ahead: BTreeSet<PathBuf>,
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
            let release = |path: &PathBuf| inotify.release(path, *path == self.root);
            watched.iter().for_each(release);
        }
    }
}

impl Teller {
    /// Takes an event that may be another watch's; `false` once the root is gone.
    fn hear(&mut self, event: &Event) -> bool {
        if event.flag() == Some(Flag::Rescan) {
            return self.overflowed();
        }
        let Some(path) = event.paths.first() else {
            return true;
        };
        let concerned = *path == self.root
            || path.parent() == Some(&self.root)
            || self.recursive && path.starts_with(&self.root);
        if concerned && !self.take(event, path) {
            (self.tell)(Change::RootGone);
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
        // One that was moved before it could be watched has not been told with what is in it.
        let watched = self.watched_below(&from, path);
        let is_dir = self.forget(&from);
        if is_dir {
            // Watched before it is told, so that who hears of it misses nothing from then on. What is in it has been told under its
            // old name. What happens between the end of the one watch and the beginning of the other, some microseconds, is not
            // told: to the kernel both names are one watch, which cannot be renamed.
            self.directories.insert(path.to_owned());
            if self.recursive {
                self.explore(path, |directory| !watched.contains(directory));
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

    /// Told once all that there is now is watched; `false` where the root is gone.
    fn overflowed(&mut self) -> bool {
        self.moved_out();
        self.ahead.clear();
        let is_there = fs::symlink_metadata(&self.root).is_ok_and(|root| root.is_dir());
        if is_there && self.recursive {
            self.walk_again();
        }
        (self.tell)(Change::Overflow);
        if !is_there {
            (self.tell)(Change::RootGone);
        }
        is_there
    }

    /// Directories may have come, gone and been moved unheard: each is watched under the name it has now.
    fn walk_again(&mut self) {
        let root = self.root.clone();
        if !self.watched.contains(&root) {
            // The first walk has not begun.
            return;
        }
        take_below(&mut self.directories, &root);
        let mut before = take_below(&mut self.watched, &root);
        before.retain(|path| *path != root);
        self.release(&before);
        self.watched.insert(root.clone());
        self.explore(&root, |_| false);
    }

    /// What is watched at `from` and below, as it is called once that has become `to`.
    fn watched_below(&self, from: &Path, to: &Path) -> BTreeSet<PathBuf> {
        let range = (Bound::Included(from), Bound::Unbounded);
        let watched = self.watched.range::<Path, _>(range);
        watched
            .map_while(|path| path.strip_prefix(from).ok())
            .map(|below| to.components().chain(below.components()).collect())
            .collect()
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
            self.explore(path, |_| true);
        }
    }

    /// Forgets a directory and all below it; `false` where there was none.
    fn forget(&mut self, path: &Path) -> bool {
        let known = self.directories.remove(path);
        if known && self.recursive {
            take_below(&mut self.ahead, path);
            take_below(&mut self.directories, path);
            let gone = take_below(&mut self.watched, path);
            self.release(&gone);
        }
        known
    }

    /// Of directories below the root.
    fn release(&self, directories: &[PathBuf]) {
        if let Some(shared) = self.shared.upgrade() {
            let mut inotify = lock(&shared.inotify);
            let release = |path: &PathBuf| inotify.release(path, false);
            directories.iter().for_each(release);
        }
    }

    /// Watches `path` and what is below; tells what it finds in those directories that are new.
    fn explore(&mut self, path: &Path, is_new: impl Fn(&Path) -> bool) {
        let mut waiting = vec![path.to_owned()];
        while let Some(directory) = waiting.pop() {
            match self.watch_directory(&directory) {
                Ok(true) => {}
                // The kernel makes it up, or nobody wants it any more.
                Ok(false) => continue,
                // It has gone again, and its parent tells.
                Err(WatchError::NotFound | WatchError::NotADirectory) => continue,
                Err(error) => {
                    tracing::warn!(%error, "a directory below a watched one is not watched");
                    (self.tell)(Change::Overflow);
                    if matches!(error, WatchError::LimitReached | WatchError::SystemLimit) {
                        return;
                    }
                    continue;
                }
            }
            let new = is_new(&directory);
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

    /// `false` where it is not for this watch, or the watcher has been dropped.
    fn watch_directory(&mut self, path: &Path) -> Result<bool, WatchError> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(false);
        };
        if self.watched.contains(path) {
            return Ok(true);
        }
        let is_root = path == self.root;
        if !is_root && is_made_up(path, self.device)? {
            return Ok(false);
        }
        lock(&shared.inotify).need(path, is_root)?;
        self.watched.insert(path.to_owned());
        Ok(true)
    }

    /// Takes in a directory that was there before the watch; gives those below that are to be taken in as well.
    fn learn(&mut self, directory: &Path) -> Result<Vec<PathBuf>, WatchError> {
        let is_root = directory == self.root;
        match self.watch_directory(directory) {
            Ok(true) => {}
            Err(error @ (WatchError::SystemLimit | WatchError::LimitReached)) => return Err(error),
            Err(error) if is_root => return Err(error),
            // Made up by the kernel, gone meanwhile, or closed to this user.
            Ok(false) | Err(_) => return Ok(Vec::new()),
        }
        let below: Vec<_> = entries(directory)
            .filter_map(|(path, is_dir)| is_dir.then_some(path))
            .collect();
        self.directories.extend(below.iter().cloned());
        Ok(if self.recursive { below } else { Vec::new() })
    }
}

/// Takes `path` and what is below out of a set. In the order of paths all of it lies side by side.
fn take_below(paths: &mut BTreeSet<PathBuf>, path: &Path) -> Vec<PathBuf> {
    let from = (Bound::Included(path), Bound::Unbounded);
    let below: Vec<_> = paths
        .range::<Path, _>(from)
        .take_while(|below| below.starts_with(path))
        .cloned()
        .collect();
    below.iter().for_each(|below| {
        paths.remove(below);
    });
    below
}

/// Whether a directory is of another file system than that `device`, and the kernel makes it up.
fn is_made_up(directory: &Path, device: u64) -> io::Result<bool> {
    if fs::symlink_metadata(directory)?.dev() == device {
        return Ok(false);
    }
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW)
        .open(directory)?;
    is_virtual(opened)
}

/// What is in a directory, and whether it is one itself; nothing where it cannot be read.
fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, bool)> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (entry.path(), is_dir)
    })
}
