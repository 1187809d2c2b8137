//! Changes in a directory, as inotify tells them.
//!
//! Every directory is watched on its own, so that the content of a new one which was there before its watch can be told as well.

use std::{
    collections::HashSet,
    fs, io,
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

/// A directory that is being watched. Dropping it ends that.
#[derive(Debug)]
pub struct Watch {
    _inotify: Arc<Mutex<INotifyWatcher>>,
}

/// Watches the directory `path`, and all below it where `recursive`. `tell` is called from a thread of the watch's own until the
/// watch is dropped or [`Change::Gone`].
///
/// Blocks for as long as it takes to walk through the directory.
///
/// # Errors
/// Where the directory cannot be watched.
pub fn watch(
    path: &Path,
    recursive: bool,
    tell: impl FnMut(Change) + Send + 'static,
) -> Result<Watch, WatchError> {
    if !fs::metadata(path)?.is_dir() {
        return Err(WatchError::NotADirectory);
    }
    let (sender, events) = sync_channel(MAX_WAITING);
    let missed = Arc::new(AtomicBool::new(false));
    let inotify = INotifyWatcher::new(deliver(sender, missed.clone()), notify::Config::default())?;
    let inotify = Arc::new(Mutex::new(inotify));
    let mut teller = Teller {
        root: path.to_owned(),
        recursive,
        inotify: Arc::downgrade(&inotify),
        directories: HashSet::new(),
        ahead: HashSet::new(),
        told_itself: HashSet::new(),
        moved: None,
        tell,
    };
    lock(&inotify).watch(path, RecursiveMode::NonRecursive)?;
    teller.learn_directories()?;
    std::thread::Builder::new()
        .name("watch".into())
        .spawn(move || teller.run(&events, &missed))
        .map_err(|error| WatchError::Other(error.to_string()))?;
    Ok(Watch { _inotify: inotify })
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

fn lock(inotify: &Mutex<INotifyWatcher>) -> MutexGuard<'_, INotifyWatcher> {
    inotify.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The thread that makes changes of events.
struct Teller<F> {
    root: PathBuf,
    recursive: bool,
    /// Gone with the watch.
    inotify: Weak<Mutex<INotifyWatcher>>,
    /// Those known: all where it is recursive, else those right below the root. Some events do not say what they are about.
    directories: HashSet<PathBuf>,
    /// What was found in new directories and told before its own event came, if ever one does.
    ahead: HashSet<PathBuf>,
    /// Directories that said themselves that they were deleted; the parent is going to say so as well.
    told_itself: HashSet<PathBuf>,
    /// The first half of a move, and what pairs it with the second.
    moved: Option<(PathBuf, Option<usize>)>,
    tell: F,
}

impl<F: FnMut(Change)> Teller<F> {
    fn run(mut self, events: &Receiver<Event>, missed: &AtomicBool) {
        loop {
            let event = if self.moved.is_some() {
                events.recv_timeout(SECOND_HALF)
            } else {
                events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            if missed.swap(false, Ordering::AcqRel) {
                self.overflowed();
            }
            match event {
                Ok(event) => {
                    if !self.take(&event) {
                        (self.tell)(Change::Gone);
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.moved_out(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// `false` once the root is gone.
    fn take(&mut self, event: &Event) -> bool {
        if event.flag() == Some(Flag::Rescan) {
            self.overflowed();
            return true;
        }
        let Some(path) = event.paths.first() else {
            return true;
        };
        let kind = event.kind;
        let arrives = matches!(kind, EventKind::Modify(ModifyKind::Name(RenameMode::To)));
        if !arrives {
            self.moved_out();
        }
        match kind {
            EventKind::Create(kind) => self.created(path, kind == CreateKind::Folder),
            EventKind::Modify(ModifyKind::Data(_)) => {
                (self.tell)(Change::Written { path: path.clone() })
            }
            EventKind::Remove(_) if *path == self.root => {
                (self.tell)(Change::Deleted {
                    path: path.clone(),
                    is_dir: true,
                });
                return false;
            }
            EventKind::Remove(kind) => self.removed(path, kind == RemoveKind::Folder),
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if *path == self.root => {
                (self.tell)(Change::Renamed {
                    path: path.clone(),
                    is_dir: true,
                    to: None,
                });
                return false;
            }
            // Without its other half's mark it is a directory's own word of what its parent has told already.
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if event.tracker().is_some() => {
                self.moved = Some((path.clone(), event.tracker()));
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
        if is_dir {
            if self.told_itself.remove(path) {
                return;
            }
            if self.forget(path) && self.recursive {
                self.told_itself.insert(path.to_owned());
            }
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
            let is_dir = is_directory(path);
            self.tell_created(path, is_dir, None);
            if is_dir {
                self.enter(path);
            }
            return;
        };
        self.ahead.remove(&from);
        let is_dir = self.forget(&from);
        if is_dir {
            // Watched before it is told, so that who hears of it misses nothing from then on. What is in it has been told under its
            // old name.
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
        self.told_itself.clear();
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

    /// `false` where the watch has been dropped.
    fn watch_directory(&self, path: &Path) -> Result<bool, WatchError> {
        let Some(inotify) = self.inotify.upgrade() else {
            return Ok(false);
        };
        lock(&inotify).watch(path, RecursiveMode::NonRecursive)?;
        Ok(true)
    }

    /// Before the watch begins: what is there is nothing new, and a limit is an error.
    fn learn_directories(&mut self) -> Result<(), WatchError> {
        fs::read_dir(&self.root)?;
        let mut waiting = vec![self.root.clone()];
        while let Some(directory) = waiting.pop() {
            for (entry, is_dir) in entries(&directory) {
                if !is_dir {
                    continue;
                }
                if self.recursive {
                    match self.watch_directory(&entry) {
                        Ok(_) => {}
                        Err(WatchError::SystemLimit) => return Err(WatchError::SystemLimit),
                        // Gone meanwhile, or closed to this user.
                        Err(_) => continue,
                    }
                    waiting.push(entry.clone());
                }
                self.directories.insert(entry);
            }
        }
        Ok(())
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

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}
