//! Recordings of the screen: started, stored and served.
//!
//! ```text
//!             record                stop, limit, failure               delete
//!  (none) ─────────────► recording ──────────────────────► finished ──────────► (none)
//!                            │                                 ▲
//!                            └── agent died ── next agent ─────┘
//! ```
//!
//! - [`start`]: checks the prerequisites and starts capture thread and encoder.
//! - [`recording`]: a recording in progress, driven by one task.
//! - [`finish`]: rewrites the video for playback and publishes it.
//! - [`files`]: the files, and their cleanup after a crash.
//!
//! The task that drives a recording owns the sending half of its [`Replay`] state. [`Replays`]
//! holds the receiving halves of all recordings, including those of earlier agents with the same
//! state directory.

use std::{collections::BTreeMap, fs::File, io, path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{
    chromium::{Chromium, NoScreen},
    cursor::CursorShown,
};
use crate::{
    api::{
        ids::ReplayId,
        replays::{Replay, ReplayEndReason, ReplayStatus},
    },
    shutdown::Shutdown,
    system::x11::screen::ScreenError,
};

mod files;
mod finish;
mod recording;
mod start;

use files::ReplayFiles;
use finish::FinishedFile;

/// The number of concurrent recordings.
pub const MAX_CONCURRENT: usize = 2;
/// The number of stored recordings.
const MAX_STORED: usize = 1000;

#[derive(Clone, Debug)]
pub struct ReplayOptions {
    pub directory: PathBuf,
    /// The ffmpeg program. `None` if it was not found.
    pub encoder: Option<PathBuf>,
    pub pulse_server: Option<String>,
    /// The maximum duration of a recording that does not specify one.
    pub max_duration: Duration,
    /// The maximum size of one recording.
    pub max_bytes: u64,
    /// The total size of stored recordings above which new ones are rejected.
    pub total_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StartReplayError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("ffmpeg is not installed")]
    NoEncoder,
    #[error("no sound server is reachable")]
    NoAudio,
    #[error("concurrent recording limit reached ({MAX_CONCURRENT})")]
    LimitReached,
    #[error("the quota for stored recordings is exhausted")]
    QuotaExceeded,
    #[error("the agent is shutting down")]
    ShuttingDown,
    #[error("cannot capture the screen: {0}")]
    Screen(#[from] ScreenError),
    #[error("cannot start the recording: {0}")]
    Io(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("no replay with that id")]
    NotFound,
    #[error("the replay is still recording")]
    Recording,
    #[error("the replay is empty")]
    Empty,
    #[error("the recording was aborted: {0}")]
    Aborted(String),
    #[error(transparent)]
    Io(io::Error),
}

/// The agent's recordings. Clones share them.
#[derive(Clone)]
pub struct Replays(Arc<Inner>);

struct Inner {
    options: ReplayOptions,
    files: ReplayFiles,
    chromium: Chromium,
    cursor: CursorShown,
    shutdown: Shutdown,
    permits: Arc<Semaphore>,
    entries: Mutex<BTreeMap<ReplayId, Entry>>,
}

/// A recording's state, which the task that drives it updates.
struct Entry {
    replay: watch::Receiver<Replay>,
    stop: CancellationToken,
}

impl Replays {
    /// Loads the recordings of earlier agents, and finishes those that were cut off in the
    /// background. Blocks while it scans the directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn start(
        options: ReplayOptions,
        chromium: Chromium,
        cursor: CursorShown,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let files = ReplayFiles::new(options.directory.clone());
        let stored = files.scan()?;
        let replays = Self(Arc::new(Inner {
            options,
            files,
            chromium,
            cursor,
            shutdown: shutdown.clone(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            entries: Mutex::default(),
        }));
        let mut unfinished = Vec::new();
        for replay in stored {
            let is_unfinished = replay.status == ReplayStatus::Recording;
            let (state, _) = replays.insert(replay);
            if is_unfinished {
                unfinished.push(state);
            }
        }
        let inner = replays.0.clone();
        shutdown.spawn(async move {
            for state in unfinished {
                inner.recover(state).await;
            }
        });
        Ok(replays)
    }

    /// Returns all recordings in the order in which they were started.
    pub fn list(&self) -> Vec<Replay> {
        let entries = self.0.entries.lock();
        entries
            .values()
            .map(|entry| entry.replay.borrow().clone())
            .collect()
    }

    /// Stops a recording and waits until it is finished. A finished one is returned unchanged.
    ///
    /// # Errors
    /// If there is no recording with that id.
    pub async fn stop(&self, id: &ReplayId) -> Result<Replay, ReplayError> {
        let mut replay = {
            let entries = self.0.entries.lock();
            let entry = entries.get(id).ok_or(ReplayError::NotFound)?;
            entry.stop.cancel();
            entry.replay.clone()
        };
        let finished = replay.wait_for(|replay| replay.status == ReplayStatus::Finished);
        match finished.await {
            Ok(replay) => Ok(replay.clone()),
            Err(error) => Err(ReplayError::Aborted(error.to_string())),
        }
    }

    /// Opens a finished recording and returns it with its size in bytes. Blocks.
    ///
    /// # Errors
    /// If there is no recording with that id, or it is not finished.
    pub fn open(&self, id: &ReplayId) -> Result<(File, u64), ReplayError> {
        self.0.require_finished(id)?;
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
        self.0.require_finished(id)?;
        self.0.files.remove(id).map_err(ReplayError::Io)?;
        self.0.entries.lock().remove(id);
        Ok(())
    }

    /// Adds a recording. Returns the sender of its state and the token that stops it.
    fn insert(&self, replay: Replay) -> (watch::Sender<Replay>, CancellationToken) {
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
}

impl Inner {
    fn has_room(&self) -> bool {
        let entries = self.entries.lock();
        let sizes = entries
            .values()
            .map(|entry| entry.replay.borrow().size_bytes);
        entries.len() < MAX_STORED && sizes.flatten().sum::<u64>() < self.options.total_bytes
    }

    fn require_finished(&self, id: &ReplayId) -> Result<(), ReplayError> {
        let entries = self.entries.lock();
        let entry = entries.get(id).ok_or(ReplayError::NotFound)?;
        match entry.replay.borrow().status {
            ReplayStatus::Recording => Err(ReplayError::Recording),
            ReplayStatus::Finished => Ok(()),
        }
    }

    /// Finishes a recording whose agent was killed.
    async fn recover(&self, state: watch::Sender<Replay>) {
        let id = state.borrow().replay_id.clone();
        // Only the finished file exists if just the metadata was missing.
        let mut last_write = None;
        for path in [self.files.partial_path(&id), self.files.finished_path(&id)] {
            if let Ok(metadata) = tokio::fs::metadata(path).await {
                last_write = metadata.modified().ok();
                break;
            }
        }
        tracing::warn!(replay = %id, "finishing a recording of an earlier agent");
        let ended_at = last_write.map(DateTime::from);
        self.finish(state, ReplayEndReason::AgentEnded, ended_at)
            .await;
    }

    /// Finishes a recording's file, stores its metadata and publishes its state. `ended_at`
    /// defaults to now.
    async fn finish(
        &self,
        state: watch::Sender<Replay>,
        reason: ReplayEndReason,
        ended_at: Option<DateTime<Utc>>,
    ) {
        let mut replay = state.borrow().clone();
        let id = replay.replay_id.clone();
        let ended_at = ended_at.unwrap_or_else(Utc::now).max(replay.started_at.0);
        let encoder = self.options.encoder.as_deref();
        let file = finish::finish(&self.files, &id, encoder, &self.shutdown).await;
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
        let (files, metadata) = (self.files.clone(), replay.clone());
        let write = tokio::task::spawn_blocking(move || files.write_metadata(&metadata));
        // Without its metadata, the next agent treats the recording as unfinished and repeats this.
        if let Err(error) = write.await.map_err(io::Error::other).flatten() {
            tracing::error!(replay = %id, %error, "cannot write recording metadata");
        }
        state.send_replace(replay);
    }
}
