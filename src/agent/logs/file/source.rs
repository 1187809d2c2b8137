//! The file itself: what is read of it, and what has become of its name.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC, SYSFS_MAGIC,
    TRACEFS_MAGIC, fstatfs,
};
use tokio::sync::Notify;

use crate::{
    agent::{
        fs::files::{self, FileError},
        logs::{
            ALL_FOR_NOW, OpenError,
            position::{Mark, Position},
        },
    },
    system::watcher::{Change, SharedWatcher, Watch},
};

/// Read at a time.
const CHUNK: usize = 64 << 10;
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;
/// File systems whose files the kernel makes up: one may wait for ever, none is a log that grows.
const MADE_UP: [FsType; 6] = [
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    DEBUGFS_MAGIC,
    TRACEFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
];

/// What a look at the file came to.
pub enum Step {
    Bytes(Vec<u8>),
    /// What follows has nothing to do with what was before.
    Restarted(String),
    /// There is nothing new; a change will be told.
    Quiet,
    /// There will be nothing more.
    Ended(String),
}

/// A file that is read. All of it blocks.
pub struct Source {
    path: PathBuf,
    opened: Option<Opened>,
    /// What has taken the name, until the one before has been read to its end.
    next: Option<Opened>,
    /// Where reading ends, for a reader that does not stay.
    until: Option<u64>,
    /// For one that stays.
    places: Option<Places>,
    /// It has no name left; what was written before is being read.
    deleted: bool,
    /// That what bears the name cannot be read has been told.
    unreadable: bool,
}

struct Opened {
    file: File,
    id: (u64, u64),
    mark: Mark,
    at: u64,
}

impl Source {
    /// Where a `watcher` is given, the reader stays, and `changed` is notified when another [`Source::step`] is due. It is also told
    /// whether `last` is no position in this file any more.
    pub fn open(
        path: PathBuf,
        watcher: Option<SharedWatcher>,
        changed: Arc<Notify>,
        last: Option<Position>,
    ) -> Result<(Self, bool), OpenError> {
        let mut opened = match Opened::open(&path) {
            Ok((opened, length)) => Some((opened, length)),
            Err(FileError::NotFound) if watcher.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        let mut is_another = false;
        if let (Some((opened, length)), Some(last)) = (&mut opened, last) {
            if last.mark == opened.mark && last.offset <= *length {
                opened.at = last.offset;
            } else {
                is_another = true;
            }
        }
        let until = match (&opened, &watcher) {
            (Some((_, length)), None) => Some(*length),
            _ => None,
        };
        let mut places = watcher.map(|watcher| Places::new(watcher, changed));
        if let Some(places) = &mut places {
            places.attend(&path)?;
        }
        let source = Source {
            path,
            opened: opened.map(|(opened, _)| opened),
            next: None,
            until,
            places,
            deleted: false,
            unreadable: false,
        };
        Ok((source, is_another))
    }

    /// So many bytes before what is read next; `None` where there is no file.
    pub fn position(&self, before: u64) -> Option<Position> {
        self.opened.as_ref().map(|opened| Position {
            mark: opened.mark,
            offset: opened.at.saturating_sub(before),
        })
    }

    pub fn step(&mut self) -> Step {
        loop {
            match self.read() {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(error) => return Step::Ended(format!("it cannot be read any more: {error}")),
            }
            if let Some(next) = self.next.take() {
                self.opened = Some(next);
                return Step::Restarted("the file was replaced by another".to_owned());
            }
            let Some(places) = &mut self.places else {
                return Step::Ended(ALL_FOR_NOW.to_owned());
            };
            match places.attend(&self.path) {
                // Something may have happened before the watch.
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return Step::Ended(format!("it cannot be followed: {error}")),
            }
            if let Some(step) = self.look() {
                return step;
            }
        }
    }

    /// `None` at the end of the file.
    fn read(&mut self) -> io::Result<Option<Step>> {
        let Some(opened) = &mut self.opened else {
            return Ok(None);
        };
        if opened.file.metadata()?.len() < opened.at {
            opened.at = 0;
            return Ok(Some(Step::Restarted("the file was truncated".to_owned())));
        }
        let left = self
            .until
            .map_or(u64::MAX, |until| until.saturating_sub(opened.at));
        let mut bytes = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        let read = loop {
            match opened.file.read_at(&mut bytes, opened.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        bytes.truncate(read);
        opened.at += read as u64;
        Ok((read > 0).then_some(Step::Bytes(bytes)))
    }

    /// Looks what bears the name now; `None` where there may be more to read.
    fn look(&mut self) -> Option<Step> {
        let id = self.opened.as_ref().map(|opened| opened.id);
        let found = match fs::metadata(&self.path) {
            Ok(metadata) if Some(id_of(&metadata)) == id => {
                self.adrift(false);
                return Some(Step::Quiet);
            }
            Ok(_) => Opened::open(&self.path),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok((found, _)) => {
                self.adrift(false);
                (self.deleted, self.unreadable) = (false, false);
                match &self.opened {
                    Some(opened) if opened.id != found.id => self.next = Some(found),
                    Some(_) => {}
                    None => self.opened = Some(found),
                }
                None
            }
            Err(FileError::NotFound) => self.missing(),
            // Once it can be read, a change of it will be told.
            Err(error) => {
                if self.adrift(true) {
                    return None;
                }
                let known = std::mem::replace(&mut self.unreadable, true);
                let told = Step::Restarted(format!("what bears the name now: {error}"));
                Some(if known { Step::Quiet } else { told })
            }
        }
    }

    fn missing(&mut self) -> Option<Step> {
        let Some(opened) = &self.opened else {
            return Some(Step::Quiet);
        };
        // One that was only renamed may still be written, until another takes its place.
        if opened
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.nlink() > 0)
        {
            return (!self.adrift(true)).then_some(Step::Quiet);
        }
        if !std::mem::replace(&mut self.deleted, true) {
            return None;
        }
        // Held open, it would take its space on the disk for as long as there are readers.
        (self.opened, self.deleted) = (None, false);
        Some(Step::Restarted("the file was deleted".to_owned()))
    }

    /// Notes whether the file that is read has another name, which no watch is for; `true` where that is new.
    fn adrift(&self, adrift: bool) -> bool {
        let signals = self.places.as_ref().map(|places| &places.signals);
        signals.is_some_and(|signals| !signals.adrift.swap(adrift, Ordering::AcqRel) && adrift)
    }
}

impl Opened {
    /// And its length.
    fn open(path: &Path) -> Result<(Self, u64), FileError> {
        let (file, _) = files::open(path)?;
        let system = fstatfs(&file).map_err(io::Error::from)?;
        if MADE_UP.contains(&system.filesystem_type()) {
            return Err(FileError::NotAFile);
        }
        let metadata = file.metadata()?;
        let opened = Opened {
            id: id_of(&metadata),
            mark: Mark::of_file(&metadata),
            at: 0,
            file,
        };
        Ok((opened, metadata.len()))
    }
}

fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The names through which the file is found: its own, and those of the links on the way.
struct Places {
    watcher: SharedWatcher,
    signals: Arc<Signals>,
    watched: Vec<Place>,
}

struct Place {
    path: PathBuf,
    _watch: Watch,
}

struct Signals {
    changed: Arc<Notify>,
    /// A directory that was watched is gone.
    gone: AtomicBool,
    /// What is read may bear any name.
    adrift: AtomicBool,
}

impl Places {
    fn new(watcher: SharedWatcher, changed: Arc<Notify>) -> Self {
        let signals = Signals {
            changed,
            gone: AtomicBool::new(false),
            adrift: AtomicBool::new(false),
        };
        Places {
            watcher,
            signals: Arc::new(signals),
            watched: Vec::new(),
        }
    }

    /// Watches the directories of all names, which may be others than before; `true` where they are.
    fn attend(&mut self, path: &Path) -> Result<bool, OpenError> {
        let names = names_of(path)?;
        let gone = self.signals.gone.swap(false, Ordering::AcqRel);
        let watched = self.watched.iter().map(|place| &place.path);
        if !gone && watched.eq(&names) {
            return Ok(false);
        }
        let watcher = self.watcher.get()?;
        let mut places = Vec::new();
        for path in names {
            let signals = self.signals.clone();
            let name = path.clone();
            let directory = path.parent().unwrap_or(&path);
            let watch = watcher.watch(directory, false, move |change| signals.hear(&name, &change));
            places.push(Place {
                _watch: watch?,
                path,
            });
        }
        self.watched = places;
        Ok(true)
    }
}

impl Signals {
    fn hear(&self, name: &Path, change: &Change) {
        let concerned = match change {
            Change::Created { path, .. }
            | Change::Written { path }
            | Change::Deleted { path, .. }
            | Change::Renamed { path, .. } => path == name || self.adrift.load(Ordering::Acquire),
            Change::Overflow => true,
            Change::Gone => {
                self.gone.store(true, Ordering::Release);
                true
            }
        };
        if concerned {
            self.changed.notify_one();
        }
    }
}

/// The name itself and where its links lead, each in a directory that is no link.
fn names_of(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut names = vec![settled(path)?];
    while let Some(last) = names.last()
        && names.len() <= MAX_LINKS
        && let Ok(target) = fs::read_link(last)
    {
        let directory = last.parent().unwrap_or(last);
        // Where it leads nowhere, the link itself is watched.
        let Ok(next) = settled(&directory.join(target)) else {
            break;
        };
        names.push(next);
    }
    Ok(names)
}

fn settled(path: &Path) -> Result<PathBuf, FileError> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(FileError::IsADirectory);
    };
    Ok(fs::canonicalize(directory)?.join(name))
}
