//! The audit log: who requested what, from where, and with which result.
//!
//! A request is recorded when it has ended, without waiting for the database:
//!
//! ```text
//! request ─▶ AuditLog::record ─▶ bounded queue ─▶ writer ─▶ store
//!                   │ full                          ▲
//!                   └─▶ LostRecords, counted ───────┘ one record for all that were lost
//! ```
//!
//! [`record`] is a record and how it is made, [`writer`] the task that stores records, [`export`]
//! the encoding of many.

mod export;
mod record;
mod writer;

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{JoinError, JoinHandle},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use export::Chunk;
pub use record::{Actor, AuditRecord, EndedRequest, LossReason};

use self::{
    export::ChunkEncoder,
    writer::{LostRecords, Writer},
};
use super::store::{Store, StoreError};
use crate::{
    api::audit_logs::{AuditLogFilter, AuditLogPosition, ExportFormat},
    rate_limit::RateLimit,
    request_scope::inherit,
};

/// The most records that wait to be stored.
pub const QUEUE_LENGTH: usize = 8192;
/// The average interval between the records of failed authentications, which anyone can cause.
const FAILED_AUTHENTICATION_INTERVAL: Duration = Duration::from_secs(1);
/// The time by which a burst of these may run ahead of the average rate: 100 records.
const FAILED_AUTHENTICATION_WINDOW: Duration = Duration::from_secs(100);
/// The most searches and exports at once. Each may have to read the whole log.
const MAX_READERS: usize = 4;
/// The number of records that an export reads from the database at once.
const EXPORT_BATCH: u64 = 1000;

/// Why the audit log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditLogError {
    #[error("{0} searches and exports are in progress")]
    Busy(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot encode the export: {0}")]
    Encode(std::io::Error),
    #[error("background task failed: {0}")]
    Task(#[from] JoinError),
}

/// The audit log. Clones share its queue.
#[derive(Clone)]
pub struct AuditLog {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    queue: mpsc::Sender<AuditRecord>,
    lost: Arc<LostRecords>,
    failed_authentications: Mutex<RateLimit>,
    readers: Arc<Semaphore>,
    closing: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Records of the log, newest first.
#[derive(Debug)]
pub struct AuditPage {
    pub records: Vec<AuditRecord>,
    /// The position of the next page, or `None` on the last one.
    pub next: Option<AuditLogPosition>,
}

impl AuditLog {
    /// Starts the task that stores records. It runs until [`Self::close`], because requests are
    /// recorded until the end of a shutdown.
    pub fn start(store: Store) -> AuditLog {
        let (queue, records) = mpsc::channel(QUEUE_LENGTH);
        let lost = Arc::<LostRecords>::default();
        let closing = CancellationToken::new();
        let writer = Writer::new(store.clone(), records, lost.clone(), closing.clone());
        AuditLog {
            inner: Arc::new(Inner {
                store,
                queue,
                lost,
                failed_authentications: Mutex::new(RateLimit::new(
                    FAILED_AUTHENTICATION_INTERVAL,
                    FAILED_AUTHENTICATION_WINDOW,
                )),
                readers: Arc::new(Semaphore::new(MAX_READERS)),
                closing,
                writer: Mutex::new(Some(tokio::spawn(writer.run()))),
            }),
        }
    }

    /// Records a request that has ended. Those without an actor are limited in their rate. Never
    /// waits: a record for which the queue has no room is counted as lost.
    pub fn record(&self, request: &EndedRequest<'_>) {
        let is_limited = request.actor.is_none()
            && !self
                .inner
                .failed_authentications
                .lock()
                .try_acquire(Instant::now());
        if is_limited {
            self.inner.lost.add(1, LossReason::RateLimit);
            return;
        }
        let record = AuditRecord::new(request, Utc::now());
        if self.inner.queue.try_send(record).is_err() {
            self.inner.lost.add(1, LossReason::QueueFull);
        }
    }

    /// Returns a page of up to `limit` records that match a filter.
    pub async fn list(
        &self,
        filter: AuditLogFilter,
        position: Option<AuditLogPosition>,
        limit: u64,
    ) -> Result<AuditPage, AuditLogError> {
        let (this, permit) = (self.clone(), self.reader()?);
        // A task, so that the query of a client that disconnects counts as long as it runs.
        let reading = tokio::spawn(inherit(async move {
            let _permit = permit;
            this.page(&filter, position.as_ref(), limit).await
        }));
        reading.await?
    }

    /// Encodes up to `limit` records that match a filter. The chunk has fewer if they are longer
    /// than [`export::MAX_TEXT`].
    pub async fn export(
        &self,
        filter: AuditLogFilter,
        position: Option<AuditLogPosition>,
        limit: u64,
        format: ExportFormat,
    ) -> Result<Chunk, AuditLogError> {
        let (this, permit) = (self.clone(), self.reader()?);
        let exporting = tokio::spawn(inherit(async move {
            let _permit = permit;
            this.chunk(&filter, position, limit, format).await
        }));
        exporting.await?
    }

    async fn chunk(
        &self,
        filter: &AuditLogFilter,
        position: Option<AuditLogPosition>,
        limit: u64,
        format: ExportFormat,
    ) -> Result<Chunk, AuditLogError> {
        let mut encoder = ChunkEncoder::new(format);
        let mut next = position;
        loop {
            let batch = EXPORT_BATCH.min(limit - encoder.rows());
            let page = self.page(filter, next.as_ref(), batch).await?;
            // Compression takes too long for a thread that serves requests.
            let encoding = tokio::task::spawn_blocking(move || {
                let encoded = encoder.add(page.records);
                encoded.map(|()| encoder)
            });
            encoder = encoding.await?.map_err(AuditLogError::Encode)?;
            next = page.next;
            if next.is_none() || encoder.rows() >= limit || encoder.is_full() {
                return encoder.finish(next).map_err(AuditLogError::Encode);
            }
        }
    }

    /// Stores the records that are queued, within `timeout`, and ends the task. Must be called when
    /// no more requests are served.
    pub async fn close(&self, timeout: Duration) {
        self.inner.closing.cancel();
        let Some(mut writer) = self.inner.writer.lock().take() else {
            return;
        };
        if tokio::time::timeout(timeout, &mut writer).await.is_err() {
            writer.abort();
            let queue = &self.inner.queue;
            let waiting = queue.max_capacity() - queue.capacity();
            tracing::error!(
                waiting,
                "audit records were not stored before the end of the server"
            );
        }
    }

    fn reader(&self) -> Result<OwnedSemaphorePermit, AuditLogError> {
        let permit = self.inner.readers.clone().try_acquire_owned();
        permit.map_err(|_| AuditLogError::Busy(MAX_READERS))
    }

    async fn page(
        &self,
        filter: &AuditLogFilter,
        position: Option<&AuditLogPosition>,
        limit: u64,
    ) -> Result<AuditPage, AuditLogError> {
        let found = self.inner.store.audit_records(filter, position, limit + 1);
        let mut records = found.await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = records.len() > limit;
        records.truncate(limit);
        let last = records.last().filter(|_| has_more);
        let next = last.map(|record| AuditLogPosition {
            time: record.time,
            id: record.id.clone(),
        });
        Ok(AuditPage { records, next })
    }
}

#[cfg(test)]
mod tests;
