//! The file itself: what is read of it, and what has become of its name.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::errno::Errno;
use tokio::sync::Notify;

use crate::{
    agent::{
        fs::files::{self, FileError},
        logs::{
            ALL_FOR_NOW, OpenLogError,
            position::{Mark, Position},
        },
    },
    system::{
        files::virtual_fs::is_virtual,
        files::watcher::{Change, SharedWatcher, Watch, WatchError},
    },
};

/// Read at a time.
const CHUNK: usize = 64 << 10;
/// Told to a reader that goes on behind something that is no more.
pub const ANOTHER_FILE: &str = "this is another file than before, or it was truncated";
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;
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
    /// Where to go on in the file that is waited for.
    last: Option<Position>,
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
    ) -> Result<(Self, bool), OpenLogError> {
        let mut opened = match Opened::open(&path) {
            Ok((opened, length)) => Some((opened, length)),
            Err(FileError::NotFound) if watcher.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        let is_another = match (&mut opened, last) {
            (Some((opened, length)), Some(last)) => !opened.go_on(last, *length),
            _ => false,
        };
        let until = match (&opened, &watcher) {
            (Some((_, length)), None) => Some(*length),
            _ => None,
        };
        let mut places = watcher.map(|watcher| Places::new(watcher, changed));
        if let Some(places) = &mut places {
            // A directory may be made again later, but a path without one is more likely wrong.
            fs::metadata(path.parent().unwrap_or(&path)).map_err(FileError::from)?;
            places.attend(&path)?;
        }
        let source = Source {
            path,
            last: last.filter(|_| opened.is_none()),
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
            // Whoever writes goes on in the old one until it has learned of the new one.
            Ok((found, 0))
                if self
                    .opened
                    .as_ref()
                    .is_some_and(|old| old.is_replaced(&found)) =>
            {
                (!self.adrift(true)).then_some(Step::Quiet)
            }
            Ok((found, length)) => self.take(found, length),
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

    fn take(&mut self, mut found: Opened, length: u64) -> Option<Step> {
        self.adrift(false);
        (self.deleted, self.unreadable) = (false, false);
        match &self.opened {
            Some(opened) if opened.id != found.id => self.next = Some(found),
            Some(_) => {}
            None => {
                let is_another = self
                    .last
                    .take()
                    .is_some_and(|last| !found.go_on(last, length));
                self.opened = Some(found);
                if is_another {
                    return Some(Step::Restarted(ANOTHER_FILE.to_owned()));
                }
            }
        }
        None
    }

    fn missing(&mut self) -> Option<Step> {
        let Some(opened) = &self.opened else {
            return Some(Step::Quiet);
        };
        // One that was only renamed may still be written, until another takes its place.
        if opened.has_a_name() {
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
        let (file, _) = files::open_regular(path)?;
        // One of these may wait for ever, none is a log that grows.
        if is_virtual(&file)? {
            return Err(FileError::NotRegular);
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

    /// Goes on where a reader was; `false` where that is no place in this file.
    fn go_on(&mut self, last: Position, length: u64) -> bool {
        let fits = last.mark == self.mark && last.offset <= length;
        if fits {
            self.at = last.offset;
        }
        fits
    }

    /// Whether `found` has taken its name while it has kept another, under which it may still be written.
    fn is_replaced(&self, found: &Opened) -> bool {
        self.id != found.id && self.has_a_name()
    }

    fn has_a_name(&self) -> bool {
        let metadata = self.file.metadata();
        metadata.is_ok_and(|metadata| metadata.nlink() > 0)
    }
}

fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The names through which the file is found.
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
    fn attend(&mut self, path: &Path) -> Result<bool, OpenLogError> {
        let names = names_of(path).map_err(FileError::from)?;
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
            match watch {
                Ok(watch) => places.push(Place {
                    _watch: watch,
                    path,
                }),
                // It has gone in this moment: the way is to be gone again.
                Err(WatchError::NotFound | WatchError::NotADirectory) => {
                    self.signals.gone.store(true, Ordering::Release);
                    return Ok(true);
                }
                Err(error) => return Err(error.into()),
            }
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
            Change::RootGone => {
                self.gone.store(true, Ordering::Release);
                true
            }
        };
        if concerned {
            self.changed.notify_one();
        }
    }
}

/// The places at which the file can become another: each link on the way, and the file itself, or the first directory that is not
/// there. All of them lie in directories that are there.
fn names_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut names, mut at) = (Vec::new(), PathBuf::from("/"));
    let mut rest = parts_of(path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let place = at.join(part);
        match fs::read_link(&place) {
            Ok(target) => {
                names.push(place);
                if names.len() > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(parts_of(&target));
            }
            Err(_) if rest.is_empty() || !place.is_dir() => {
                names.push(place);
                break;
            }
            Err(_) => at = place,
        }
    }
    Ok(names)
}

/// The last first.
fn parts_of(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.collect()
}
