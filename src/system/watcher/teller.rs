//! What makes changes of events, for one watch.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    fmt,
    fs::{self, OpenOptions},
    mem,
    ops::Bound,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    libc,
    sys::inotify::{AddWatchFlags, InotifyEvent, WatchDescriptor},
};

use super::{
    Change, MAX_BELOW, Tell, WatchError, WatchNumber,
    kernel::{Inbox, Kernel},
};
use crate::system::virtual_fs::is_virtual;

/// Entries that were told ahead of their own events. Beyond this some may be told twice.
const MAX_AHEAD: usize = 1 << 16;
/// Entries that are read of a directory before new events are fetched.
const ENTRIES_BETWEEN: usize = 1 << 8;

pub struct Teller {
    id: WatchNumber,
    root: PathBuf,
    /// The file system of the root.
    device: u64,
    recursive: bool,
    kernel: Arc<Kernel>,
    /// What the directories are called that are watched: to the kernel one stays the same when it is moved.
    paths: HashMap<WatchDescriptor, Arc<Path>>,
    directories: BTreeMap<Arc<Path>, WatchDescriptor>,
    /// What was found in new directories and told before its own event came, if ever one does, and the number of the last event that may
    /// be that one.
    ahead: BTreeMap<PathBuf, u64>,
    moved: Option<HalfMoved>,
    tell: Tell,
    /// That directories could not be watched has been logged.
    warned: bool,
}

/// The first half of a move.
struct HalfMoved {
    from: PathBuf,
    is_dir: bool,
    /// The same in the second half.
    cookie: u32,
    since: Instant,
    /// The number of its event.
    number: u64,
}

/// What became of a directory that was to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Watched,
    /// It is watched under another name: that it has been moved is still to be heard.
    Elsewhere,
    /// It is of another file system, which the kernel makes up.
    MadeUp,
}

impl Added {
    /// Whether what is below it is to be watched as well.
    pub fn is_walked(self) -> bool {
        self == Added::Watched
    }
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
        for directory in self.paths.keys() {
            self.kernel.release(*directory, self.id);
        }
    }
}

impl Teller {
    pub fn new(
        id: WatchNumber,
        root: PathBuf,
        recursive: bool,
        kernel: Arc<Kernel>,
        tell: Tell,
    ) -> Self {
        Teller {
            id,
            root,
            device: 0,
            recursive,
            kernel,
            paths: HashMap::new(),
            directories: BTreeMap::new(),
            ahead: BTreeMap::new(),
            moved: None,
            tell,
            warned: false,
        }
    }

    /// Watches one directory.
    pub fn add(&mut self, path: &Path) -> Result<Added, WatchError> {
        let metadata = fs::symlink_metadata(path)?;
        if !metadata.is_dir() {
            return Err(WatchError::NotADirectory);
        }
        let is_root = path == self.root;
        if is_root {
            self.device = metadata.dev();
        } else if metadata.dev() != self.device && is_made_up(path) {
            return Ok(Added::MadeUp);
        }
        let directory = self.kernel.need(path, self.id, is_root)?;
        match self.paths.get(&directory) {
            Some(known) if **known == *path => {}
            Some(_) => return Ok(Added::Elsewhere),
            None => self.remember(path, directory),
        }
        Ok(Added::Watched)
    }

    /// Takes an event of one of its directories; `false` once the root is gone.
    pub fn hear(&mut self, event: &InotifyEvent, inbox: &mut Inbox) -> bool {
        let Some(directory) = self.paths.get(&event.wd).cloned() else {
            return true;
        };
        let mask = event.mask;
        let Some(name) = &event.name else {
            return self.hear_of_itself(event.wd, &directory, mask);
        };
        let path = directory.join(name);
        let is_dir = mask.contains(AddWatchFlags::IN_ISDIR);
        if mask.contains(AddWatchFlags::IN_MOVED_TO) {
            self.arrived(path, is_dir, event.cookie, inbox);
            return true;
        }
        self.moved_out();
        if mask.contains(AddWatchFlags::IN_CREATE) {
            self.created(path, is_dir, inbox);
        } else if mask.contains(AddWatchFlags::IN_MODIFY) {
            (self.tell)(Change::Written { path });
        } else if mask.contains(AddWatchFlags::IN_DELETE) {
            self.forget(&path);
            (self.tell)(Change::Deleted { path, is_dir });
        } else if mask.contains(AddWatchFlags::IN_MOVED_FROM) {
            self.moved = Some(HalfMoved {
                from: path,
                is_dir,
                cookie: event.cookie,
                since: Instant::now(),
                number: inbox.now(),
            });
        }
        true
    }

    /// Events were dropped, of whatever directory. It is told once all that there is now is watched; `false` once the root is gone.
    pub fn overflowed(&mut self, inbox: &mut Inbox) -> bool {
        self.moved_out();
        self.ahead.clear();
        let is_there = self.root_is_there();
        if is_there && self.recursive {
            self.walk_again(inbox);
        }
        (self.tell)(Change::Overflow);
        if !is_there {
            (self.tell)(Change::Gone);
        }
        is_there
    }

    /// Whether what it knows is for events that may still come.
    pub fn is_unsettled(&self) -> bool {
        !self.ahead.is_empty() || self.moved.is_some()
    }

    /// All events until now have been heard; `true` where half a move has not waited for so long.
    pub fn settle(&mut self, patience: Duration) -> bool {
        self.ahead.clear();
        let moved = self.moved.as_ref();
        if moved.is_some_and(|moved| moved.since.elapsed() >= patience) {
            self.moved_out();
        }
        self.moved.is_some()
    }

    /// No second half comes for what was moved before the event of that number.
    pub fn settle_before(&mut self, due: u64) {
        let moved = self.moved.as_ref();
        if moved.is_some_and(|moved| moved.number < due) {
            self.moved_out();
        }
    }

    /// Nothing can be heard any more.
    pub fn end(&mut self) {
        (self.tell)(Change::Overflow);
        (self.tell)(Change::Gone);
    }

    /// Of any but the root its parent tells.
    fn hear_of_itself(
        &mut self,
        directory: WatchDescriptor,
        path: &Path,
        mask: AddWatchFlags,
    ) -> bool {
        let ignored = mask.contains(AddWatchFlags::IN_IGNORED);
        if path != self.root {
            if ignored {
                self.paths.remove(&directory);
                self.directories.remove(path);
            }
            return true;
        }
        let path = path.to_owned();
        if mask.contains(AddWatchFlags::IN_DELETE_SELF) {
            self.moved_out();
            (self.tell)(Change::Deleted { path, is_dir: true });
        } else if mask.contains(AddWatchFlags::IN_MOVE_SELF) {
            self.moved_out();
            let (is_dir, to) = (true, None);
            (self.tell)(Change::Renamed { path, is_dir, to });
        } else if !ignored {
            return true;
        }
        (self.tell)(Change::Gone);
        false
    }

    fn created(&mut self, path: PathBuf, is_dir: bool, inbox: &mut Inbox) {
        if self.was_told_ahead(&path, inbox) {
            return;
        }
        self.tell_created(path.clone(), is_dir, None);
        if is_dir && self.recursive {
            self.explore(path, true, inbox);
        }
    }

    fn arrived(&mut self, path: PathBuf, is_dir: bool, cookie: u32, inbox: &mut Inbox) {
        let moved = self.moved.take_if(|moved| moved.cookie == cookie);
        // Another's first half.
        self.moved_out();
        let told = self.was_told_ahead(&path, inbox);
        if !told {
            // It may have taken the place of another.
            self.forget(&path);
        }
        let from = moved.map(|moved| moved.from);
        if let Some(from) = &from {
            self.rename(from, &path);
            (self.tell)(Change::Renamed {
                path: from.clone(),
                is_dir,
                to: Some(path.clone()),
            });
        }
        if !told {
            self.tell_created(path.clone(), is_dir, from);
        }
        // What was watched under its old name still is, and what is in it has been told.
        if is_dir && self.recursive && !self.directories.contains_key(&*path) {
            self.explore(path, true, inbox);
        }
    }

    /// The second half of a move did not come: it went somewhere out of sight.
    fn moved_out(&mut self) {
        let Some(HalfMoved { from, is_dir, .. }) = self.moved.take() else {
            return;
        };
        self.forget(&from);
        (self.tell)(Change::Renamed {
            path: from,
            is_dir,
            to: None,
        });
    }

    fn tell_created(&mut self, path: PathBuf, is_dir: bool, from: Option<PathBuf>) {
        (self.tell)(Change::Created { path, is_dir, from });
    }

    fn remember(&mut self, path: &Path, directory: WatchDescriptor) {
        let path: Arc<Path> = path.into();
        self.paths.insert(directory, path.clone());
        if let Some(other) = self.directories.insert(path, directory) {
            self.paths.remove(&other);
            self.kernel.release(other, self.id);
        }
    }

    /// Forgets all there is to know of what had that path, and what was below.
    fn forget(&mut self, path: &Path) {
        for (path, _) in below(&self.ahead, path) {
            self.ahead.remove(&path);
        }
        for (path, directory) in below(&self.directories, path) {
            self.directories.remove(&path);
            self.paths.remove(&directory);
            self.kernel.release(directory, self.id);
        }
    }

    /// Knows all that was at or below `from` as being at or below `to`.
    fn rename(&mut self, from: &Path, to: &Path) {
        let renamed = |path: &Path| match path.strip_prefix(from) {
            Ok(below) if !below.as_os_str().is_empty() => to.join(below),
            _ => to.to_owned(),
        };
        self.ahead.remove(from);
        for (path, last) in below(&self.ahead, from) {
            self.ahead.remove(&path);
            self.ahead.insert(renamed(&path), last);
        }
        for (path, directory) in below(&self.directories, from) {
            self.directories.remove(&path);
            self.remember(&renamed(&path), directory);
        }
    }

    /// Watches `path` and what is below; tells what it finds there where that is `new`.
    fn explore(&mut self, path: PathBuf, new: bool, inbox: &mut Inbox) {
        let mut waiting = vec![path];
        while let Some(directory) = waiting.pop() {
            let listed = match self.add(&directory) {
                Ok(added) if added.is_walked() => self.list(&directory, new, &mut waiting, inbox),
                other => other.map(drop),
            };
            match listed {
                // It has gone again, and its parent tells.
                Ok(()) | Err(WatchError::NotFound | WatchError::NotADirectory) => {}
                Err(error) => {
                    self.overlooked(&error);
                    if matches!(error, WatchError::Full | WatchError::SystemLimit) {
                        return;
                    }
                }
            }
        }
    }

    /// Notes what there is to explore in a directory.
    fn list(
        &mut self,
        directory: &Path,
        new: bool,
        waiting: &mut Vec<PathBuf>,
        inbox: &mut Inbox,
    ) -> Result<(), WatchError> {
        let mut ahead = Vec::new();
        for (at, (entry, is_dir)) in entries(directory).enumerate() {
            if at % ENTRIES_BETWEEN == ENTRIES_BETWEEN - 1 {
                inbox.fill();
            }
            if new {
                self.tell_created(entry.clone(), is_dir, None);
            }
            if new && ahead.len() < MAX_AHEAD {
                ahead.push(entry.clone());
            }
            if is_dir && waiting.len() >= MAX_BELOW {
                return Err(WatchError::Full);
            }
            if is_dir {
                waiting.push(entry);
            }
        }
        // Now the inbox has all events there may be of these entries.
        inbox.fill();
        self.note_ahead(ahead, inbox);
        Ok(())
    }

    fn note_ahead(&mut self, told: Vec<PathBuf>, inbox: &Inbox) {
        if self.ahead.len() + told.len() > MAX_AHEAD {
            self.ahead.retain(|_, last| *last > inbox.now());
        }
        if self.ahead.len() + told.len() > MAX_AHEAD {
            self.ahead.clear();
        }
        let last = inbox.last();
        self.ahead.extend(told.into_iter().map(|path| (path, last)));
    }

    /// Whether the event that was taken last is that of something that has been told.
    fn was_told_ahead(&mut self, path: &Path, inbox: &Inbox) -> bool {
        let last = self.ahead.remove(path);
        last.is_some_and(|last| inbox.now() <= last)
    }

    fn overlooked(&mut self, error: &WatchError) {
        if !mem::replace(&mut self.warned, true) {
            tracing::warn!(%error, "directories below a watched one are not watched");
        }
        (self.tell)(Change::Overflow);
    }

    /// Whether the root still is what it was.
    fn root_is_there(&mut self) -> bool {
        let Some(known) = self.directories.get(&*self.root).copied() else {
            // It is about to be watched first.
            return true;
        };
        match self.kernel.need(&self.root, self.id, true) {
            Ok(found) if found == known => true,
            Ok(another) => {
                self.kernel.release(another, self.id);
                false
            }
            Err(error) => !matches!(error, WatchError::NotFound | WatchError::NotADirectory),
        }
    }

    /// Watches all there is below the root under the name it has now.
    fn walk_again(&mut self, inbox: &mut Inbox) {
        let before = mem::take(&mut self.paths);
        self.directories.clear();
        self.explore(self.root.clone(), false, inbox);
        for directory in before.into_keys() {
            if !self.paths.contains_key(&directory) {
                self.kernel.release(directory, self.id);
            }
        }
    }
}

fn is_made_up(directory: &Path) -> bool {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(directory);
    // One that cannot be asked cannot be walked either.
    opened.is_ok_and(|opened| is_virtual(opened).unwrap_or(true))
}

/// What there is of `path` and of what is below. In the order of paths all of it lies side by side.
fn below<K: Borrow<Path> + Clone + Ord, V: Copy>(
    entries: &BTreeMap<K, V>,
    path: &Path,
) -> Vec<(K, V)> {
    let from = (Bound::Included(path), Bound::Unbounded);
    let below = entries.range::<Path, _>(from);
    below
        .take_while(|(below, _)| (*below).borrow().starts_with(path))
        .map(|(path, value)| (path.clone(), *value))
        .collect()
}

pub fn directories_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    entries(directory).filter_map(|(path, is_dir)| is_dir.then_some(path))
}

/// What is in a directory, and whether it is one itself; nothing where it cannot be read.
fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, bool)> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (entry.path(), is_dir)
    })
}
