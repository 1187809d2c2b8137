//! The replay service: the rows of all recordings and the files of finished ones.
//!
//! The agent of a browser makes its recordings. Their files reach the blob store on two paths:
//! [`collect`] fetches them from a running agent, [`take_over`] takes them from the directory of a
//! stopped host ([`orphaned_recording`] reads it). A file is removed at its source only after it is
//! stored and recorded as such, so that the next attempt finds an interrupted transfer again.
//!
//! ```text
//! agent ── collect ───────────────┐
//!   │ killed, or out of time      ├──▶ blob store, row: Stored ──▶ purge after retention
//!   ▼                             │
//! orphaned files ── take_over ────┘
//! ```
//!
//! [`state`] is the state machine of a recording. Rows change only by a compare-and-set on the
//! state, and a [`KeyedMutex`] ensures that one task at a time transfers a file.

mod collect;
mod orphaned_recording;
pub mod state;
mod take_over;

use std::{io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, stream::BoxStream};
use tokio::sync::Semaphore;

use super::{
    blobs::{BlobError, BlobKeys, BlobStore, PutError, PutLimits},
    fleet::AgentError,
    keyed_mutex::KeyedMutex,
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

/// The most files in transfer at once.
const MAX_TRANSFERS: usize = 4;
/// The lowest rate of a transfer in bytes per second. A slower one is aborted, because others wait.
const MIN_TRANSFER_RATE: u64 = 2 << 20;
/// The time that every transfer has in addition, whatever its size.
const BASE_TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
/// The most replays of one browser, whatever their size, because all of them are listed at once.
pub const MAX_REPLAYS_PER_BROWSER: usize = 1000;
/// The number of expired replays that are read from the database at once.
const PURGE_BATCH: u64 = 256;
/// The keys of the files in the blob store.
pub const BLOBS: BlobKeys = BlobKeys {
    prefix: "replays",
    includes: |key| replay_id(key).is_some_and(|id| blob_key(&id) == key),
};

/// Why a replay is not available.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("no replay with that id")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blob(BlobError),
    #[error("cannot access orphaned recordings: {0}")]
    Orphaned(#[from] io::Error),
    /// Otherwise all of them would be recorded as lost for ever.
    #[error(
        "{blobs} has none of the {count} replays of the database; select the blob store that has them, or copy them to this one"
    )]
    WrongBlobStore { blobs: String, count: usize },
}

impl From<BlobError> for ReplayError {
    fn from(error: BlobError) -> Self {
        match error {
            // The replay was purged a moment ago.
            BlobError::NotFound => ReplayError::NotFound,
            other => ReplayError::Blob(other),
        }
    }
}

/// Why a file was not stored. It is still at its source.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("cannot read the recording: {0}")]
    Read(#[from] io::Error),
    #[error("received {received} of {size} bytes")]
    Truncated { size: u64, received: u64 },
    #[error("received more than {0} bytes")]
    TooLong(u64),
    #[error("the transfer did not complete within {0:?}")]
    Timeout(Duration),
    #[error("replay storage is full: no room for {0} bytes")]
    StorageFull(u64),
    #[error("the server is shutting down")]
    ShuttingDown,
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

/// The sizes of stored replays above which new recordings are refused.
#[derive(Debug, Clone, Copy)]
pub struct ReplayQuota {
    /// The size of all replays.
    pub total_bytes: u64,
    /// The size of the replays of one project, if that has a limit.
    pub project_bytes: Option<u64>,
}

/// Why there is no room for a new recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaExceeded {
    #[error("replay storage is full")]
    Total,
    #[error("replay storage of the project is full ({} MiB)", .0 >> 20)]
    Project(u64),
}

/// The replay service. Clones share its state.
#[derive(Clone)]
pub struct Replays {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    blobs: BlobStore,
    /// Holds the recordings of stopped hosts, one directory for each browser.
    orphaned: PathBuf,
    quota: ReplayQuota,
    shutdown: Shutdown,
    transfers: Semaphore,
    /// Ensures that one task at a time transfers a file. A task locks the replay after it has a
    /// permit for the transfer, so that waiting for a permit does not block others.
    locks: KeyedMutex<ReplayId>,
}

impl Replays {
    pub fn new(
        store: Store,
        blobs: BlobStore,
        orphaned: PathBuf,
        quota: ReplayQuota,
        shutdown: Shutdown,
    ) -> Replays {
        Replays {
            inner: Arc::new(Inner {
                store,
                blobs,
                orphaned,
                quota,
                shutdown,
                transfers: Semaphore::new(MAX_TRANSFERS),
                locks: KeyedMutex::default(),
            }),
        }
    }

    /// Lists all replays of a browser in the order in which they were started.
    pub async fn list(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
    ) -> Result<Vec<ReplayRow>, StoreError> {
        self.inner.store.replays_of(project, browser).await
    }

    /// Finds a replay of a browser.
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

    /// Returns the size of a stored replay's file.
    pub async fn size(&self, id: &ReplayId) -> Result<u64, ReplayError> {
        let size = self.inner.blobs.size(&blob_key(id)).await?;
        size.ok_or(ReplayError::NotFound)
    }

    /// Reads a range of a stored replay's file.
    pub async fn read(
        &self,
        id: &ReplayId,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, ReplayError> {
        Ok(self.inner.blobs.get(&blob_key(id), range).await?)
    }

    /// Returns whether the browser has the most replays that it may have.
    pub async fn is_full(&self, browser: &BrowserId) -> Result<bool, StoreError> {
        let count = self.inner.store.count_replays_of(browser).await?;
        Ok(count >= MAX_REPLAYS_PER_BROWSER as u64)
    }

    /// Returns why the stored replays leave no room for a new recording of a project, or `None` if
    /// they do.
    pub async fn exceeded_quota(
        &self,
        project: &ProjectId,
    ) -> Result<Option<QuotaExceeded>, StoreError> {
        let Inner { store, quota, .. } = &*self.inner;
        if store.stored_replay_bytes(None).await? >= quota.total_bytes {
            return Ok(Some(QuotaExceeded::Total));
        }
        let Some(limit) = quota.project_bytes else {
            return Ok(None);
        };
        let stored = store.stored_replay_bytes(Some(project)).await?;
        Ok((stored >= limit).then_some(QuotaExceeded::Project(limit)))
    }

    /// Returns whether a replay of the browser is still to be fetched.
    pub async fn has_open(&self, browser: &BrowserId) -> Result<bool, StoreError> {
        Ok(!self.inner.store.open_replays_of(browser).await?.is_empty())
    }

    /// Updates the row of a recording to what its agent reports, creating it if necessary. Returns
    /// false if the recording belongs to another browser.
    pub async fn record(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        replay: &Replay,
    ) -> Result<bool, StoreError> {
        let (id, started_at) = (&replay.replay_id, replay.started_at.0);
        let is_own = self.ensure_row(project, browser, id, started_at).await?;
        if is_own && replay.status == ReplayStatus::Finished {
            let end = reported_end(replay);
            self.apply(id, Event::Ended, |_| end.clone()).await?;
        }
        Ok(is_own)
    }

    /// Creates the row of a browser's recording if there is none. Returns false if the id belongs
    /// to another browser, or if the browser has too many: clients can make an agent report
    /// anything, and leave any file.
    async fn ensure_row(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        id: &ReplayId,
        started_at: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let store = &self.inner.store;
        let mut found = store.find_replay(id).await?;
        if found.is_none() {
            if self.is_full(browser).await? {
                tracing::warn!(%browser, replay = %id, "ignored recording above the limit of the browser");
                return Ok(false);
            }
            let started_at = started_at.min(Utc::now());
            store.add_replay(id, project, browser, started_at).await?;
            found = store.find_replay(id).await?;
        }
        let is_own = found.is_some_and(|row| row.is_of(project, browser));
        if !is_own {
            tracing::warn!(%browser, replay = %id, "ignored recording with the id of another browser's replay");
        }
        Ok(is_own)
    }

    /// Reconciles the rows with the blob store after an earlier run, and starts to take over
    /// orphaned recordings in the background. Must run before the first request. Refuses a blob
    /// store that has no file of any stored replay.
    ///
    /// Blobs without a row stay: the database may be older than they are, because it was damaged or
    /// restored from a backup. [`Self::delete_older_than`] deletes them.
    pub async fn recover(&self) -> Result<(), ReplayError> {
        let Inner { store, blobs, .. } = &*self.inner;
        let mut expected: Vec<String> =
            store.stored_replays().await?.iter().map(blob_key).collect();
        expected.sort_unstable();
        let (count, mut unrecorded) = (expected.len(), 0_u64);
        for blob in blobs.list(BLOBS.prefix).await? {
            match expected.binary_search(&blob) {
                Ok(position) => {
                    expected.remove(position);
                }
                // With a row, the transfer was interrupted, or the row is older than the blob:
                // `take_over_all` fetches the file again or takes the blob as it is.
                Err(_) if self.has_row(&blob).await? => {}
                Err(_) => unrecorded += 1,
            }
        }
        if unrecorded > 0 {
            tracing::error!(
                count = unrecorded,
                "the blob store has replays that the database does not have; they are kept for the retention period of replays"
            );
        }
        if count > 0 && expected.len() == count {
            let blobs = blobs.to_string();
            return Err(ReplayError::WrongBlobStore { blobs, count });
        }
        for missing in expected {
            // A network file system may list what it had a minute ago.
            if blobs.size(&missing).await?.is_some() {
                continue;
            }
            tracing::error!(blob = missing, "the file of a stored replay is missing");
            if let Some(id) = replay_id(&missing) {
                self.mark_lost(&id).await?;
            }
        }
        self.take_over_all().await?;
        Ok(())
    }

    /// Deletes the replays that ended before `before`. So are blobs without a row and recordings of
    /// unknown browsers that were stored before. Returns how many.
    pub async fn delete_older_than(&self, before: DateTime<Utc>) -> Result<u64, ReplayError> {
        let recorded = self.delete_recorded(before).await?;
        let unrecorded = self.delete_unrecorded(before).await?;
        Ok(recorded + unrecorded + self.delete_unknown(before).await?)
    }

    /// Removes what interrupted uploads left in the blob store.
    pub async fn abort_interrupted_uploads(&self) {
        self.inner.blobs.abort_interrupted_uploads().await;
    }

    /// Deletes the old blobs without a row.
    async fn delete_unrecorded(&self, before: DateTime<Utc>) -> Result<u64, ReplayError> {
        let blobs = &self.inner.blobs;
        let mut count = 0;
        for blob in blobs.list_older_than(BLOBS.prefix, before).await? {
            if replay_id(&blob).is_some() && !self.has_row(&blob).await? {
                blobs.remove(&blob).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Returns whether a blob is that of a replay in the database.
    async fn has_row(&self, blob: &str) -> Result<bool, StoreError> {
        match replay_id(blob) {
            Some(id) => Ok(self.inner.store.find_replay(&id).await?.is_some()),
            None => Ok(false),
        }
    }

    async fn delete_recorded(&self, before: DateTime<Utc>) -> Result<u64, ReplayError> {
        let Inner { store, blobs, .. } = &*self.inner;
        let mut count = 0;
        loop {
            let expired = store.old_replays(before, PURGE_BATCH).await?;
            if expired.is_empty() {
                return Ok(count);
            }
            for id in expired {
                blobs.remove(&blob_key(&id)).await?;
                store.remove_replay(&id).await?;
                count += 1;
            }
        }
    }

    /// Stores a replay's file of that size. The caller must hold a transfer permit and the lock of
    /// the replay.
    async fn store_file<E: Into<TransferError>>(
        &self,
        id: &ReplayId,
        size: u64,
        content: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(), TransferError> {
        let Inner {
            store,
            blobs,
            quota,
            ..
        } = &*self.inner;
        // Recordings that were started below the limit are stored above it, up to twice the limit.
        let total = store.stored_replay_bytes(None).await?.saturating_add(size);
        if total > quota.total_bytes.saturating_mul(2) {
            return Err(TransferError::StorageFull(size));
        }
        let limits = PutLimits {
            bytes: size,
            time: BASE_TRANSFER_TIMEOUT + Duration::from_secs(size / MIN_TRANSFER_RATE),
        };
        let received = blobs.put(&blob_key(id), content, limits).await?;
        if received == size {
            return Ok(());
        }
        blobs.remove(&blob_key(id)).await?;
        Err(TransferError::Truncated { size, received })
    }

    /// Applies an event to a replay if it changes the state. `end` returns the facts to add.
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
            // Fails if another task has changed the state since it was read.
            if store.move_replay(id, (row.state, next), &end(&row)).await? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a replay as stored if the blob store has its file. Returns whether it has.
    async fn adopt_blob(&self, id: &ReplayId) -> Result<bool, TransferError> {
        let Some(size) = self.inner.blobs.size(&blob_key(id)).await? else {
            return Ok(false);
        };
        let end = |row: &ReplayRow| ReplayEnd {
            finished_at: row.end.finished_at.or_else(|| Some(Utc::now())),
            reason: row.end.reason.or(Some(ReplayEndReason::AgentEnded)),
            size_bytes: Some(size),
            ..row.end.clone()
        };
        self.apply(id, Event::Fetched, end).await?;
        Ok(true)
    }

    /// Records that a replay's file exists nowhere.
    async fn mark_lost(&self, id: &ReplayId) -> Result<(), StoreError> {
        let end = |row: &ReplayRow| ReplayEnd {
            finished_at: row.end.finished_at.or_else(|| Some(Utc::now())),
            // If nothing was ever recorded, the reason for that is more useful.
            reason: match row.end.reason {
                Some(reason) if row.end.size_bytes == Some(0) => Some(reason),
                _ => Some(ReplayEndReason::Lost),
            },
            ..ReplayEnd::default()
        };
        self.apply(id, Event::Missing, end).await
    }
}

fn blob_key(id: &ReplayId) -> String {
    format!("{}/{id}.mp4", BLOBS.prefix)
}

fn replay_id(blob_key: &str) -> Option<ReplayId> {
    let name = blob_key.rsplit('/').next()?;
    name.strip_suffix(".mp4")?.parse().ok()
}

/// Returns the end of a recording as its agent reports it, but not later than now.
fn reported_end(replay: &Replay) -> ReplayEnd {
    let now = Utc::now();
    ReplayEnd {
        finished_at: Some(replay.finished_at.map_or(now, |time| time.0.min(now))),
        reason: replay.end_reason,
        duration_ms: replay.duration_ms,
        size_bytes: replay.size_bytes,
    }
}
