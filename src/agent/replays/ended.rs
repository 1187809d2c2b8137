//! The recordings of the sessions that have ended, until they are deleted.

use std::{collections::BTreeMap, fs, io, path::PathBuf, sync::Arc};

use parking_lot::Mutex;

use super::{
    ReplayError,
    stored::{StoredReplays, Usage},
};
use crate::{
    api::{ids::ReplayId, replays::Replay},
    shutdown::Shutdown,
};

/// The recordings of ended sessions, by generation. Sessions without recordings are absent. Clones
/// share them.
#[derive(Clone, Default)]
pub struct EndedReplays(Arc<Mutex<BTreeMap<u64, StoredReplays>>>);

impl EndedReplays {
    /// Loads what earlier agents have left, by generation and directory, and finishes recordings
    /// that were cut off in the background. Blocks while it scans the directories.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub(in crate::agent) fn load(
        directories: Vec<(u64, PathBuf)>,
        encoder: Option<&PathBuf>,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let ended = Self::default();
        for (generation, directory) in directories {
            let stored = StoredReplays::load(directory, encoder.cloned(), shutdown)?;
            ended.settle(generation, stored);
        }
        Ok(ended)
    }

    /// Adds the recordings of a session that is about to end.
    pub(in crate::agent) fn add(&self, generation: u64, stored: StoredReplays) {
        self.0.lock().insert(generation, stored);
    }

    /// Keeps the recordings of a session that records no more, or removes their directory if there
    /// are none. Blocks.
    pub(in crate::agent) fn settle(&self, generation: u64, stored: StoredReplays) {
        let mut sessions = self.0.lock();
        if stored.is_empty() {
            sessions.remove(&generation);
            remove_directory(&stored);
        } else {
            sessions.insert(generation, stored);
        }
    }

    /// Returns the generations of the sessions that have recordings, in ascending order.
    pub(in crate::agent) fn generations(&self) -> Vec<u64> {
        self.0.lock().keys().copied().collect()
    }

    /// Returns the recordings of a session.
    pub(in crate::agent) fn list(&self, generation: u64) -> Vec<Replay> {
        let stored = self.of(generation).ok();
        stored.map(|stored| stored.list()).unwrap_or_default()
    }

    /// Returns the recordings of a session, to open one of them.
    ///
    /// # Errors
    /// If the session has none.
    pub(in crate::agent) fn of(&self, generation: u64) -> Result<StoredReplays, ReplayError> {
        let sessions = self.0.lock();
        sessions
            .get(&generation)
            .cloned()
            .ok_or(ReplayError::NotFound)
    }

    /// Deletes a finished recording, and with the last one of its session their directory. Blocks.
    ///
    /// # Errors
    /// If there is no such recording, or it is not finished.
    pub(in crate::agent) fn delete(
        &self,
        generation: u64,
        id: &ReplayId,
    ) -> Result<(), ReplayError> {
        let stored = self.of(generation)?;
        stored.delete(id)?;
        if stored.is_empty() {
            self.settle(generation, stored);
        }
        Ok(())
    }

    /// Deletes the recordings of a session. Blocks.
    ///
    /// # Errors
    /// If one cannot be deleted, or is not finished.
    pub(in crate::agent) fn delete_all(&self, generation: u64) -> Result<(), ReplayError> {
        for replay in self.list(generation) {
            match self.delete(generation, &replay.replay_id) {
                // Another request has deleted it.
                Err(ReplayError::NotFound) => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    pub(super) fn usage(&self) -> Usage {
        let sessions = self.0.lock();
        let usages = sessions.values().map(StoredReplays::usage);
        usages.fold(Usage::default(), |total, usage| Usage {
            count: total.count + usage.count,
            bytes: total.bytes + usage.bytes,
        })
    }
}

/// Removes the directory of recordings. Files that are no recordings keep it.
fn remove_directory(stored: &StoredReplays) {
    let directory = stored.directory();
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let path = directory.display();
            tracing::warn!(%path, %error, "cannot remove the directory of an ended session");
        }
        _ => {}
    }
}
