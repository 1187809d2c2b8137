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
//! - [`stored`]: the recordings of one session, including those of earlier agents with the same
//!   state directory.
//! - [`ended`]: the recordings of the sessions that have ended.
//!
//! The task that drives a recording owns the sending half of its [`Replay`] state.
//! [`StoredReplays`] holds the receiving halves.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{
    chromium::{Chromium, NoScreen},
    cursor::CursorShown,
};
use crate::{
    api::{
        ids::ReplayId,
        replays::{Replay, ReplayStatus},
    },
    shutdown::Shutdown,
    system::x11::screen::ScreenError,
};

mod ended;
mod files;
mod finish;
mod recording;
mod start;
mod stored;

pub use ended::EndedReplays;
pub use stored::StoredReplays;

/// The number of concurrent recordings.
pub const MAX_CONCURRENT: usize = 2;
/// The number of stored recordings of all sessions.
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
    /// The total size of the stored recordings of all sessions above which new ones are rejected.
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

/// The recordings of a session. Clones share them.
#[derive(Clone)]
pub struct Replays(Arc<Inner>);

struct Inner {
    options: ReplayOptions,
    stored: StoredReplays,
    ended: EndedReplays,
    chromium: Chromium,
    cursor: CursorShown,
    shutdown: Shutdown,
    permits: Arc<Semaphore>,
}

impl Replays {
    /// Loads the recordings of earlier agents, and finishes those that were cut off in the
    /// background. `ended` holds those of other sessions, which take up room as well. Blocks while
    /// it scans the directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn start(
        options: ReplayOptions,
        ended: EndedReplays,
        chromium: Chromium,
        cursor: CursorShown,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let directory = options.directory.clone();
        let stored = StoredReplays::load(directory, options.encoder.clone(), shutdown)?;
        Ok(Self(Arc::new(Inner {
            options,
            stored,
            ended,
            chromium,
            cursor,
            shutdown: shutdown.clone(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        })))
    }

    /// Returns the recordings without the means to record more.
    #[must_use]
    pub fn stored(&self) -> &StoredReplays {
        &self.0.stored
    }

    /// Returns whether a recording is in progress.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        let replays = self.0.stored.list();
        let mut unfinished = replays.iter().map(|replay| replay.status);
        unfinished.any(|status| status != ReplayStatus::Finished)
    }

    /// Stops a recording and waits until it is finished. A finished one is returned unchanged.
    ///
    /// # Errors
    /// If there is no recording with that id.
    pub async fn stop(&self, id: &ReplayId) -> Result<Replay, ReplayError> {
        let mut replay = self.0.stored.request_stop(id)?;
        let finished = replay.wait_for(|replay| replay.status == ReplayStatus::Finished);
        match finished.await {
            Ok(replay) => Ok(replay.clone()),
            Err(error) => Err(ReplayError::Aborted(error.to_string())),
        }
    }
}

impl Inner {
    fn has_room(&self) -> bool {
        let (own, ended) = (self.stored.usage(), self.ended.usage());
        own.count + ended.count < MAX_STORED && own.bytes + ended.bytes < self.options.total_bytes
    }
}
