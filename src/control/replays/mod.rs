//! Replays: what is known of every recording, and the files of those that have ended.
//!
//! A browser's agent makes them. Their files come into the blob store from the agent while it lives ([`collect`]), or out of what it has
//! left ([`left`]). A file is removed where it came from once it is in the store and recorded as such: wherever this is broken
//! off, the next attempt finds it again.

mod collect;
mod left;
pub mod state;

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::Utc;
use futures::stream::BoxStream;
use tokio::sync::Semaphore;

use super::{
    blobs::{BlobError, Blobs, PutError},
    fleet::AgentError,
    store::{ReplayEnd, ReplayRow, Store, StoreError},
    turns::Turns,
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId, ReplayId},
        replays::{Replay, ReplayEndReason, ReplayStatus},
    },
    shutdown::Shutdown,
};
use state::{Event, State};

/// Files that come into the store at once.
const TRANSFERS: usize = 4;
/// Between two looks for replays that have been kept long enough, and how many are removed before the next are looked for.
const PURGE_EVERY: Duration = Duration::from_secs(60 * 60);
const PURGE_AT_ONCE: u64 = 256;
/// Where the files are in the blob store.
const FOLDER: &str = "replays";

/// Why a replay cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("there is no such replay")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blob(BlobError),
}

impl From<BlobError> for ReplayError {
    fn from(error: BlobError) -> Self {
        match error {
            // It has just been removed, having been kept long enough.
            BlobError::NotFound => ReplayError::NotFound,
            other => ReplayError::Blob(other),
        }
    }
}

/// Why a file did not come into the store; it is where it was.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("{came} bytes came of {size}")]
    Short { size: u64, came: u64 },
    #[error("the server is stopping")]
    Stopping,
}

impl<E: Into<TransferError>> From<PutError<E>> for TransferError {
    fn from(error: PutError<E>) -> Self {
        match error {
            PutError::Blob(error) => error.into(),
            PutError::Source(error) => error.into(),
        }
    }
}

/// The service; clones share it.
#[derive(Clone)]
pub struct Replays {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    blobs: Blobs,
    /// Holds what hosts have left, a folder for each browser.
    left: PathBuf,
    shutdown: Shutdown,
    /// What is done about the files of one browser is done by one at a time.
    turns: Turns<BrowserId>,
    transfers: Semaphore,
}

impl Replays {
    pub fn new(store: Store, blobs: Blobs, left: PathBuf, shutdown: Shutdown) -> Replays {
        Replays {
            inner: Arc::new(Inner {
                store,
                blobs,
                left,
                shutdown,
                turns: Turns::default(),
                transfers: Semaphore::new(TRANSFERS),
            }),
        }
    }

    /// All replays of a browser, as they were started.
    pub async fn list(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
    ) -> Result<Vec<ReplayRow>, StoreError> {
        self.inner.store.replays_of(project, browser).await
    }

    pub async fn find(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        id: &ReplayId,
    ) -> Result<ReplayRow, ReplayError> {
        let found = self.inner.store.find_replay(id).await?;
        found
            .filter(|row| row.project_id == *project && row.browser_id == *browser)
            .ok_or(ReplayError::NotFound)
    }

    /// How many bytes the file of a kept replay has.
    pub async fn size(&self, id: &ReplayId) -> Result<u64, ReplayError> {
        let size = self.inner.blobs.size(&key(id)).await?;
        size.ok_or(ReplayError::NotFound)
    }

    /// A part of the file of a kept replay.
    pub async fn read(
        &self,
        id: &ReplayId,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, std::io::Result<Bytes>>, ReplayError> {
        Ok(self.inner.blobs.get(&key(id), range).await?)
    }

    /// Takes down what an agent says of one of its recordings.
    pub async fn note(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        replay: &Replay,
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let (id, started_at) = (&replay.replay_id, replay.started_at.0);
        store.add_replay(id, project, browser, started_at).await?;
        if replay.status == ReplayStatus::Finished {
            self.happen(id, Event::Ended, &end_of(replay)).await?;
        }
        Ok(())
    }

    /// Whether there is something of the browser's to be fetched.
    pub async fn has_open(&self, browser: &BrowserId) -> Result<bool, StoreError> {
        Ok(!self.inner.store.open_replays_of(browser).await?.is_empty())
    }

    /// Settles what an earlier run has left half done. Before the first request; files that hosts have left come in from then on.
    pub async fn recover(&self) -> Result<(), ReplayError> {
        let Inner { store, blobs, .. } = &*self.inner;
        let mut kept: Vec<String> = store.kept_replays().await?.iter().map(key).collect();
        kept.sort_unstable();
        for blob in blobs.list(FOLDER).await? {
            match kept.binary_search(&blob) {
                Ok(at) => {
                    kept.remove(at);
                }
                // Its source is still there where it was about to be recorded: it comes again.
                Err(_) => {
                    tracing::info!(blob, "a blob without a record is removed");
                    blobs.remove(&blob).await?;
                }
            }
        }
        for missing in kept {
            tracing::error!(blob = missing, "a replay that was kept is gone");
            if let Some(id) = id_of(&missing) {
                self.miss(&id).await?;
            }
        }
        self.take_over_all().await?;
        Ok(())
    }

    /// Removes replays that ended longer than `keep` ago, now and every hour, until the stop.
    pub async fn purge(self, keep: Duration) {
        let mut ticks = tokio::time::interval(PURGE_EVERY);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.inner.shutdown.stopped() => return,
            }
            match self.purge_once(keep).await {
                Ok(0) => {}
                Ok(count) => {
                    tracing::info!(count, "replays that were kept long enough are removed")
                }
                Err(error) => tracing::error!(%error, "cannot remove old replays"),
            }
        }
    }

    async fn purge_once(&self, keep: Duration) -> Result<usize, ReplayError> {
        let Inner { store, blobs, .. } = &*self.inner;
        let before = Utc::now() - keep;
        let mut count = 0;
        loop {
            let old = store.old_replays(before, PURGE_AT_ONCE).await?;
            if old.is_empty() {
                return Ok(count);
            }
            for id in old {
                blobs.remove(&key(&id)).await?;
                store.remove_replay(&id).await?;
                count += 1;
            }
        }
    }

    /// The event happens to the replay where it changes anything; the state it is in then. `None` where there is no such replay.
    async fn happen(
        &self,
        id: &ReplayId,
        event: Event,
        end: &ReplayEnd,
    ) -> Result<Option<State>, StoreError> {
        let store = &self.inner.store;
        loop {
            let Some(row) = store.find_replay(id).await? else {
                return Ok(None);
            };
            let Some(next) = row.state.after(event) else {
                return Ok(Some(row.state));
            };
            // Somebody else may have been faster.
            if store.move_replay(id, (row.state, next), end).await? {
                return Ok(Some(next));
            }
        }
    }

    /// A replay is nowhere any more.
    async fn miss(&self, id: &ReplayId) -> Result<(), StoreError> {
        let found = self.inner.store.find_replay(id).await?;
        let Some(ReplayRow { end: known, .. }) = found else {
            return Ok(());
        };
        let end = ReplayEnd {
            finished_at: known.finished_at.or_else(|| Some(Utc::now())),
            // Where there never was anything of it, why it ended says more.
            reason: match known.reason {
                Some(reason) if known.size_bytes == Some(0) => Some(reason),
                _ => Some(ReplayEndReason::Lost),
            },
            ..ReplayEnd::default()
        };
        self.happen(id, Event::Missing, &end).await?;
        Ok(())
    }
}

fn key(id: &ReplayId) -> String {
    format!("{FOLDER}/{id}.mp4")
}

fn id_of(key: &str) -> Option<ReplayId> {
    let name = key.rsplit('/').next()?;
    name.strip_suffix(".mp4")?.parse().ok()
}

fn end_of(replay: &Replay) -> ReplayEnd {
    ReplayEnd {
        finished_at: Some(replay.finished_at.map_or_else(Utc::now, |time| time.0)),
        reason: replay.end_reason,
        duration_ms: replay.duration_ms,
        size_bytes: replay.size_bytes,
    }
}
