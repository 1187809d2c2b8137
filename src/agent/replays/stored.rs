//! The recordings of one session: their states and their files.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    ReplayError,
    files::ReplayFiles,
    finish::{self, FinishedFile},
};
use crate::{
    api::{
        ids::ReplayId,
        replays::{Replay, ReplayEndReason, ReplayStatus},
    },
    shutdown::Shutdown,
};

/// The recordings of one session. Clones share them.
#[derive(Clone)]
pub struct StoredReplays(Arc<Inner>);

struct Inner {
    files: ReplayFiles,
    /// The ffmpeg program. `None` if it was not found.
    encoder: Option<PathBuf>,
    entries: Mutex<BTreeMap<ReplayId, Entry>>,
}

/// A recording's state, which the task that drives it updates.
struct Entry {
    replay: watch::Receiver<Replay>,
    stop: CancellationToken,
}

/// The room that recordings take up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) count: usize,
    pub(super) bytes: u64,
}

impl StoredReplays {
    /// Loads the recordings of earlier agents, and finishes those that were cut off in the
    /// background. Blocks while it scans the directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn load(
        directory: PathBuf,
        encoder: Option<PathBuf>,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let files = ReplayFiles::new(directory);
        let found = files.scan()?;
        let stored = Self(Arc::new(Inner {
            files,
            encoder,
            entries: Mutex::default(),
        }));
        let mut unfinished = Vec::new();
        for replay in found {
            let is_unfinished = replay.status == ReplayStatus::Recording;
            let (state, _) = stored.insert(replay);
            if is_unfinished {
                unfinished.push(state);
            }
        }
        let (recovering, until) = (stored.clone(), shutdown.clone());
        shutdown.spawn(async move {
            for state in unfinished {
                recovering.recover(state, &until).await;
            }
        });
        Ok(stored)
    }

    /// Returns all recordings in the order in which they were started.
    #[must_use]
    pub fn list(&self) -> Vec<Replay> {
        let entries = self.0.entries.lock();
        entries
            .values()
            .map(|entry| entry.replay.borrow().clone())
            .collect()
    }

    /// Opens a finished recording and returns it with its size in bytes. Blocks.
    ///
    /// # Errors
    /// If there is no recording with that id, or it is not finished.
    pub fn open(&self, id: &ReplayId) -> Result<(File, u64), ReplayError> {
        self.require_finished(id)?;
        self.0.files.open(id).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReplayError::Empty,
            _ => ReplayError::Io(error),
        })
    }

    /// Deletes a finished recording. Blocks.
    ///
    /// # Errors
    /// If there is no recording with that id, or it is not finished.
    pub fn delete(&self, id: &ReplayId) -> Result<(), ReplayError> {
        self.require_finished(id)?;
        self.0.files.remove(id).map_err(ReplayError::Io)?;
        self.0.entries.lock().remove(id);
        Ok(())
    }

    /// Waits until no recording is unfinished.
    pub(in crate::agent) async fn wait_finished(&self) {
        let states: Vec<_> = {
            let entries = self.0.entries.lock();
            entries.values().map(|entry| entry.replay.clone()).collect()
        };
        for mut state in states {
            // An error means that its task has ended, and that nothing finishes it.
            let is_finished = |replay: &Replay| replay.status == ReplayStatus::Finished;
            let _ = state.wait_for(is_finished).await;
        }
    }

    /// Requests the end of a recording and returns its state.
    pub(super) fn request_stop(
        &self,
        id: &ReplayId,
    ) -> Result<watch::Receiver<Replay>, ReplayError> {
        let entries = self.0.entries.lock();
        let entry = entries.get(id).ok_or(ReplayError::NotFound)?;
        entry.stop.cancel();
        Ok(entry.replay.clone())
    }

    pub(super) fn usage(&self) -> Usage {
        let entries = self.0.entries.lock();
        let sizes = entries
            .values()
            .map(|entry| entry.replay.borrow().size_bytes);
        Usage {
            count: entries.len(),
            bytes: sizes.flatten().sum(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.entries.lock().is_empty()
    }

    pub(super) fn directory(&self) -> &Path {
        self.files().directory()
    }

    pub(super) fn files(&self) -> &ReplayFiles {
        &self.0.files
    }

    /// Adds a recording. Returns the sender of its state and the token that stops it.
    pub(super) fn insert(&self, replay: Replay) -> (watch::Sender<Replay>, CancellationToken) {
        let id = replay.replay_id.clone();
        let (state, receiver) = watch::channel(replay);
        let stop = CancellationToken::new();
        let entry = Entry {
            replay: receiver,
            stop: stop.clone(),
        };
        self.0.entries.lock().insert(id, entry);
        (state, stop)
    }

    fn require_finished(&self, id: &ReplayId) -> Result<(), ReplayError> {
        let entries = self.0.entries.lock();
        let entry = entries.get(id).ok_or(ReplayError::NotFound)?;
        match entry.replay.borrow().status {
            ReplayStatus::Recording => Err(ReplayError::Recording),
            ReplayStatus::Finished => Ok(()),
        }
    }

    /// Finishes a recording whose agent was killed.
    async fn recover(&self, state: watch::Sender<Replay>, shutdown: &Shutdown) {
        let id = state.borrow().replay_id.clone();
        // Only the finished file exists if just the metadata was missing.
        let mut last_write = None;
        let files = self.files();
        for path in [files.partial_path(&id), files.finished_path(&id)] {
            if let Ok(metadata) = tokio::fs::metadata(path).await {
                last_write = metadata.modified().ok();
                break;
            }
        }
        tracing::warn!(replay = %id, "finishing a recording of an earlier agent");
        let ended_at = last_write.map(DateTime::from);
        self.finish(state, ReplayEndReason::AgentEnded, ended_at, shutdown)
            .await;
    }

    /// Finishes a recording's file, stores its metadata and publishes its state. `ended_at`
    /// defaults to now.
    pub(super) async fn finish(
        &self,
        state: watch::Sender<Replay>,
        reason: ReplayEndReason,
        ended_at: Option<DateTime<Utc>>,
        shutdown: &Shutdown,
    ) {
        let mut replay = state.borrow().clone();
        let id = replay.replay_id.clone();
        let ended_at = ended_at.unwrap_or_else(Utc::now).max(replay.started_at.0);
        let encoder = self.0.encoder.as_deref();
        let file = finish::finish(self.files(), &id, encoder, shutdown).await;
        replay.status = ReplayStatus::Finished;
        replay.finished_at = Some(ended_at.into());
        replay.end_reason = Some(reason);
        replay.size_bytes = file.bytes;
        replay.duration_ms = match file {
            FinishedFile { bytes: Some(0), .. } => Some(0),
            FinishedFile {
                duration: Some(duration),
                ..
            } => u64::try_from(duration.as_millis()).ok(),
            FinishedFile { duration: None, .. } => {
                let elapsed = ended_at - replay.started_at.0;
                u64::try_from(elapsed.num_milliseconds()).ok()
            }
        };
        tracing::info!(
            replay = %id,
            ?reason,
            duration_ms = replay.duration_ms,
            size_bytes = file.bytes,
            "recording finished"
        );
        let (files, metadata) = (self.files().clone(), replay.clone());
        let write = tokio::task::spawn_blocking(move || files.write_metadata(&metadata));
        // Without its metadata, the next agent treats the recording as unfinished and repeats this.
        if let Err(error) = write.await.map_err(io::Error::other).flatten() {
            tracing::error!(replay = %id, %error, "cannot write recording metadata");
        }
        state.send_replace(replay);
    }
}
