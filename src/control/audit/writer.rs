//! The task that stores audit records in batches.
//!
//! A failing database delays records and loses none, until the queue is full. What is lost then is
//! counted, and recorded when the database works again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use chrono::Utc;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::record::{AuditRecord, LossReason};
use crate::{backoff::Backoff, control::store::Store};

/// The most records that one statement inserts.
const MAX_BATCH: usize = 256;
/// The time for which records are collected before they are stored, so that a busy server stores
/// many at once.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// The interval at which the number of lost records is recorded.
const LOSS_INTERVAL: Duration = Duration::from_secs(10);
/// The first and the longest delay between attempts to store a batch.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The numbers of records that were lost and are not recorded yet.
#[derive(Debug, Default)]
pub(super) struct LostRecords {
    queue_full: AtomicU64,
    rate_limit: AtomicU64,
}

impl LostRecords {
    pub(super) fn add(&self, count: u64, reason: LossReason) {
        let reason_label = reason.as_str();
        metrics::counter!("berth_audit_records_lost_total", "reason" => reason_label)
            .increment(count);
        self.counter(reason).fetch_add(count, Relaxed);
    }

    /// Returns a record for each reason for which records were lost since the last time.
    fn take(&self) -> impl Iterator<Item = AuditRecord> {
        [LossReason::QueueFull, LossReason::RateLimit]
            .into_iter()
            .map(|reason| (self.counter(reason).swap(0, Relaxed), reason))
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| {
                let reason_label = reason.as_str();
                tracing::warn!(count, reason = reason_label, "audit records were lost");
                AuditRecord::of_lost(count, reason, Utc::now())
            })
    }

    fn counter(&self, reason: LossReason) -> &AtomicU64 {
        match reason {
            LossReason::QueueFull => &self.queue_full,
            LossReason::RateLimit => &self.rate_limit,
        }
    }
}

/// The state of the task.
pub(super) struct Writer {
    store: Store,
    records: mpsc::Receiver<AuditRecord>,
    lost: Arc<LostRecords>,
    /// Cancelled when the last records are queued.
    closing: CancellationToken,
    retry: Backoff,
}

impl Writer {
    pub(super) fn new(
        store: Store,
        records: mpsc::Receiver<AuditRecord>,
        lost: Arc<LostRecords>,
        closing: CancellationToken,
    ) -> Writer {
        Writer {
            store,
            records,
            lost,
            closing,
            retry: Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1),
        }
    }

    /// Stores records until the log is closed and all are stored.
    pub(super) async fn run(mut self) {
        let mut loss_ticks = interval(LOSS_INTERVAL);
        loss_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while !self.closing.is_cancelled() {
            tokio::select! {
                received = self.records.recv() => {
                    batch.extend(received);
                    tokio::select! {
                        () = sleep(BATCH_DELAY) => {}
                        () = self.closing.cancelled() => {}
                    }
                }
                _ = loss_ticks.tick() => batch.extend(self.lost.take()),
                () = self.closing.cancelled() => {}
            }
            self.write_queued(&mut batch).await;
        }
        // Records that are queued from now on are counted as lost.
        self.records.close();
        batch.extend(self.lost.take());
        self.write_queued(&mut batch).await;
    }

    /// Stores the batch and everything that is queued.
    async fn write_queued(&mut self, batch: &mut Vec<AuditRecord>) {
        loop {
            while batch.len() < MAX_BATCH
                && let Ok(record) = self.records.try_recv()
            {
                batch.push(record);
            }
            if batch.is_empty() {
                return;
            }
            self.write(batch).await;
            batch.clear();
        }
    }

    /// Stores a batch, however many attempts that takes.
    async fn write(&mut self, batch: &[AuditRecord]) {
        while let Err(error) = self.store.insert_audit_records(batch).await {
            metrics::counter!("berth_audit_write_failures_total").increment(1);
            let waiting = batch.len() + self.records.len();
            tracing::error!(%error, waiting, "cannot store audit records; retrying");
            sleep(self.retry.next_delay()).await;
        }
        self.retry.reset();
        metrics::counter!("berth_audit_records_total").increment(batch.len() as u64);
    }
}
