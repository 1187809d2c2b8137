//! The file behind a path: which file it currently is, and what to read from it.

use std::{io, mem, path::PathBuf, sync::Arc};

use tokio::sync::Notify;

use super::{
    open_file::{OpenFile, id_of},
    path_watches::PathWatches,
};
use crate::{
    agent::{
        fs::files::FileError,
        logs::{END_OF_LOG, OpenLogError, position::Position},
    },
    system::files::{root::RootDirectory, watcher::SharedWatcher},
};

/// The message for a reader whose position is not in the current file.
pub(super) const ANOTHER_FILE: &str = "the file was replaced or truncated since the last event";

/// The result of a step of reading.
pub(super) enum Step {
    Bytes(Vec<u8>),
    /// The next bytes do not continue what was read, for the given reason.
    Restarted(String),
    /// Nothing new can be read; a change will be notified.
    Idle,
    /// Nothing follows, for the given reason.
    Ended(String),
}

/// A log file that is read by path. All methods block.
pub(super) struct FileSource {
    root: RootDirectory,
    path: PathBuf,
    file: Option<OpenFile>,
    /// The file that replaced `file`, which is first read to its end.
    next: Option<OpenFile>,
    /// The position to resume from in a file that does not exist yet.
    last: Option<Position>,
    /// The offset at which reading ends, for a reader that does not follow the file.
    end: Option<u64>,
    /// Present for a reader that follows the file.
    watches: Option<PathWatches>,
    /// The file was deleted; what was written before that is being read.
    is_deleted: bool,
    /// The path leads to an unreadable file, which was reported.
    is_unreadable: bool,
}

impl FileSource {
    /// Opens the file. With a `watcher` the reader follows it, and `changed` is notified when
    /// another [`FileSource::step`] is due. Also returns whether the position `last` is not in this
    /// file.
    pub(super) fn open(
        (root, path): (RootDirectory, PathBuf),
        watcher: Option<SharedWatcher>,
        changed: Arc<Notify>,
        last: Option<Position>,
    ) -> Result<(Self, bool), OpenLogError> {
        let mut opened = match OpenFile::open(&root, &path) {
            Ok((file, length)) => Some((file, length)),
            Err(FileError::NotFound) if watcher.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        let is_another_file = match (&mut opened, last) {
            (Some((file, length)), Some(last)) => !file.resume(last, *length),
            _ => false,
        };
        let end = match (&opened, &watcher) {
            (Some((_, length)), None) => Some(*length),
            _ => None,
        };
        let mut watches = watcher.map(|watcher| PathWatches::new(watcher, changed));
        if let Some(watches) = &mut watches {
            // The directory may be deleted and created again later, but one that is missing now is
            // more likely a mistake.
            let directory = path.parent().unwrap_or(&path);
            root.metadata(directory).map_err(FileError::from)?;
            watches.update(&path)?;
        }
        let source = FileSource {
            root,
            path,
            last: last.filter(|_| opened.is_none()),
            file: opened.map(|(file, _)| file),
            next: None,
            end,
            watches,
            is_deleted: false,
            is_unreadable: false,
        };
        Ok((source, is_another_file))
    }

    /// Returns the position that is `unread` bytes before the read offset; `None` if there is no
    /// file.
    pub(super) fn position(&self, unread: u64) -> Option<Position> {
        self.file.as_ref().map(|file| Position {
            source: file.source,
            offset: file.offset.saturating_sub(unread),
        })
    }

    pub(super) fn step(&mut self) -> Step {
        loop {
            match self.read() {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(error) => return Step::Ended(format!("the file cannot be read: {error}")),
            }
            if let Some(next) = self.next.take() {
                self.file = Some(next);
                return Step::Restarted("the file was replaced".to_owned());
            }
            let Some(watches) = &mut self.watches else {
                return Step::Ended(END_OF_LOG.to_owned());
            };
            match watches.update(&self.path) {
                // Something may have changed before the new watches were set.
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return Step::Ended(format!("the file cannot be followed: {error}")),
            }
            if let Some(step) = self.check_path() {
                return step;
            }
        }
    }

    /// Reads from the current file. Returns `None` at its end.
    fn read(&mut self) -> io::Result<Option<Step>> {
        let Some(file) = &mut self.file else {
            return Ok(None);
        };
        if file.is_truncated()? {
            file.offset = 0;
            return Ok(Some(Step::Restarted("the file was truncated".to_owned())));
        }
        let bytes = file.read(self.end)?;
        Ok((!bytes.is_empty()).then_some(Step::Bytes(bytes)))
    }

    /// Checks which file the path leads to now. Returns `None` if there may be more to read.
    fn check_path(&mut self) -> Option<Step> {
        let id = self.file.as_ref().map(|file| file.id);
        let current = match self.root.metadata(&self.path) {
            Ok(metadata) if Some(id_of(&metadata)) == id => {
                self.set_detached(false);
                return Some(Step::Idle);
            }
            Ok(_) => OpenFile::open(&self.root, &self.path),
            Err(error) => Err(error.into()),
        };
        match current {
            // The new file is empty and the old one still has a name: its writer may continue with
            // the old one until it notices the rotation.
            Ok((new, 0))
                if self
                    .file
                    .as_ref()
                    .is_some_and(|old| old.is_rotated_out_by(&new)) =>
            {
                (!self.set_detached(true)).then_some(Step::Idle)
            }
            Ok((new, length)) => self.switch_to(new, length),
            Err(FileError::NotFound) => self.handle_missing(),
            // When it becomes readable, that is a change which will be notified.
            Err(error) => {
                if self.set_detached(true) {
                    return None;
                }
                let was_reported = mem::replace(&mut self.is_unreadable, true);
                Some(match was_reported {
                    true => Step::Idle,
                    false => Step::Restarted(format!("the new file cannot be read: {error}")),
                })
            }
        }
    }

    fn switch_to(&mut self, mut new: OpenFile, length: u64) -> Option<Step> {
        self.set_detached(false);
        (self.is_deleted, self.is_unreadable) = (false, false);
        match &self.file {
            Some(file) if file.id != new.id => self.next = Some(new),
            Some(_) => {}
            None => {
                let last = self.last.take();
                let is_another_file = last.is_some_and(|last| !new.resume(last, length));
                self.file = Some(new);
                if is_another_file {
                    return Some(Step::Restarted(ANOTHER_FILE.to_owned()));
                }
            }
        }
        None
    }

    /// Handles a path that leads to no file.
    fn handle_missing(&mut self) -> Option<Step> {
        let Some(file) = &self.file else {
            return Some(Step::Idle);
        };
        // A renamed file may still be written until another one gets its path.
        if file.has_name() {
            return (!self.set_detached(true)).then_some(Step::Idle);
        }
        // Read once more to the end before it is closed.
        if !mem::replace(&mut self.is_deleted, true) {
            return None;
        }
        // An open file would occupy its disk space for as long as there are readers.
        (self.file, self.is_deleted) = (None, false);
        Some(Step::Restarted("the file was deleted".to_owned()))
    }

    /// Sets whether the file that is read no longer has the path. Returns `true` if that is new.
    fn set_detached(&self, detached: bool) -> bool {
        let watches = self.watches.as_ref();
        watches.is_some_and(|watches| watches.set_detached(detached))
    }
}
