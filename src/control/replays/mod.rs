//! Replays: what is known of every recording, and the files of those that have ended.
//!
//! A browser's agent makes them. Their files come into the blob store from the agent while it lives ([`collect`]), or out of what it has
//! left ([`take_over`]). A file is removed where it came from once it is in the store and recorded as such: wherever this is broken
//! off, the next attempt finds it again.

mod collect;
pub mod state;
mod take_over;

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, stream::BoxStream};
use tokio::sync::Semaphore;

use super::{
    blobs::{BlobError, Blobs, Limits, PutError},
    fleet::AgentError,
    keyed_mutex::KeyedMutex,
    purge::purge,
    store::{ReplayEnd, ReplayRow, Store, StoreError},
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId, ReplayId},
        replays::{Replay, ReplayEndReason, ReplayStatus},
    },
    shutdown::Shutdown,
};
use state::Event;

/// Files that come into the store at once.
const TRANSFERS: usize = 4;
/// A file that comes slower than this, after a while for what does not depend on its size, is given up: others wait.
const SLOWEST: u64 = 2 << 20;
const AT_LEAST: Duration = Duration::from_secs(60);
/// One browser's, however small: all of them are listed at once.
const MAX_OF_ONE: u64 = 1000;
/// How many old ones are removed before the next are looked for.
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
    #[error("it has more than {0} bytes")]
    TooLong(u64),
    #[error("it did not come within {0:?}")]
    Timeout(Duration),
    #[error("the replays that are kept leave no room for its {0} bytes")]
    NoRoom(u64),
    #[error("the server is stopping")]
    Stopping,
}

impl<E: Into<TransferError>> From<PutError<E>> for TransferError {
    fn from(error: PutError<E>) -> Self {
        match error {
            PutError::Blob(error) => error.into(),
            PutError::Source(error) => error.into(),
            PutError::TooLong(bytes) => TransferError::TooLong(bytes),
            PutError::Timeout(time) => TransferError::Timeout(time),
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
    /// What kept ones may have taken for another one to be started.
    max_bytes: u64,
    shutdown: Shutdown,
    transfers: Semaphore,
    /// Whoever brings in a replay's file is the only one. Taken by who may transfer, so that waiting for that holds nobody else up.
    turns: KeyedMutex<ReplayId>,
}

impl Replays {
    /// Another one may be started as long as those that are kept have fewer than `max_bytes`.
    pub fn new(
        store: Store,
        blobs: Blobs,
        left: PathBuf,
        max_bytes: u64,
        shutdown: Shutdown,
    ) -> Replays {
        Replays {
            inner: Arc::new(Inner {
                store,
                blobs,
                left,
                max_bytes,
                shutdown,
                transfers: Semaphore::new(TRANSFERS),
                turns: KeyedMutex::default(),
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
            .filter(|row| row.is_of(project, browser))
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

    /// Whether the browser has as many as it may have.
    pub async fn is_full(&self, browser: &BrowserId) -> Result<bool, StoreError> {
        Ok(self.inner.store.count_replays_of(browser).await? >= MAX_OF_ONE)
    }

    /// Whether those that are kept leave room for another one.
    pub async fn has_room(&self) -> Result<bool, StoreError> {
        Ok(self.inner.store.kept_replay_bytes().await? < self.inner.max_bytes)
    }

    /// Takes down what an agent says of one of its recordings; false where it is none of its browser's.
    pub async fn note(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        replay: &Replay,
    ) -> Result<bool, StoreError> {
        let (id, started_at) = (&replay.replay_id, replay.started_at.0);
        let owned = self.enter(project, browser, id, started_at).await?;
        if owned && replay.status == ReplayStatus::Finished {
            let end = end_of(replay);
            self.apply(id, Event::Ended, |_| end.clone()).await?;
        }
        Ok(owned)
    }

    /// Makes the record of a browser's recording where there is none. False where it is another browser's: clients can have an agent say
    /// anything, and leave any file.
    async fn enter(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        id: &ReplayId,
        started_at: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let store = &self.inner.store;
        let started_at = started_at.min(Utc::now());
        store.add_replay(id, project, browser, started_at).await?;
        let found = store.find_replay(id).await?;
        let owned = found.is_some_and(|row| row.is_of(project, browser));
        if !owned {
            tracing::warn!(%browser, replay = %id, "what goes by the id of another browser's replay is let alone");
        }
        Ok(owned)
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
        let remove = |before| self.remove_old(before);
        purge("replays", keep, &self.inner.shutdown, remove).await;
    }

    async fn remove_old(&self, before: DateTime<Utc>) -> Result<u64, ReplayError> {
        let Inner { store, blobs, .. } = &*self.inner;
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

    /// Brings a replay's file of that size into the store. Whoever does so has a place among the transfers, and the replay's turn.
    async fn bring_in<E: Into<TransferError>>(
        &self,
        id: &ReplayId,
        size: u64,
        content: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(), TransferError> {
        let Inner {
            store,
            blobs,
            max_bytes,
            ..
        } = &*self.inner;
        // What was begun while there was room is kept where there is none any more; but not without end.
        let taken = store.kept_replay_bytes().await?.saturating_add(size);
        if taken > max_bytes.saturating_mul(2) {
            return Err(TransferError::NoRoom(size));
        }
        let limits = Limits {
            bytes: size,
            time: AT_LEAST + Duration::from_secs(size / SLOWEST),
        };
        let came = blobs.put(&key(id), content, limits).await?;
        if came == size {
            return Ok(());
        }
        blobs.remove(&key(id)).await?;
        Err(TransferError::Short { size, came })
    }

    /// The event happens to the replay where it changes anything; `end` says what is known of its end then.
    async fn apply(
        &self,
        id: &ReplayId,
        event: Event,
        end: impl Fn(&ReplayRow) -> ReplayEnd,
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        while let Some(row) = store.find_replay(id).await? {
            let Some(next) = row.state.after(event) else {
                break;
            };
            // Somebody else may have been faster.
            if store.move_replay(id, (row.state, next), &end(&row)).await? {
                break;
            }
        }
        Ok(())
    }

    /// A replay is nowhere any more.
    async fn miss(&self, id: &ReplayId) -> Result<(), StoreError> {
        let end = |row: &ReplayRow| ReplayEnd {
            finished_at: row.end.finished_at.or_else(|| Some(Utc::now())),
            // Where there never was anything of it, why it ended says more.
            reason: match row.end.reason {
                Some(reason) if row.end.size_bytes == Some(0) => Some(reason),
                _ => Some(ReplayEndReason::Lost),
            },
            ..ReplayEnd::default()
        };
        self.apply(id, Event::Missing, end).await
    }
}

fn key(id: &ReplayId) -> String {
    format!("{FOLDER}/{id}.mp4")
}

fn id_of(key: &str) -> Option<ReplayId> {
    let name = key.rsplit('/').next()?;
    name.strip_suffix(".mp4")?.parse().ok()
}

/// As far as it can be true.
fn end_of(replay: &Replay) -> ReplayEnd {
    let now = Utc::now();
    ReplayEnd {
        finished_at: Some(replay.finished_at.map_or(now, |time| time.0.min(now))),
        reason: replay.end_reason,
        duration_ms: replay.duration_ms,
        size_bytes: replay.size_bytes,
    }
}
