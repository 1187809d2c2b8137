//! Deletes what has passed its retention period.

use std::{fmt::Display, time::Duration};

use chrono::{DateTime, Utc};

use crate::shutdown::Shutdown;

const PURGE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes what ended longer than `keep` ago, now and hourly until shutdown.
///
/// `delete` deletes what ended before a time and returns how many there were. `subject` names it
/// in the log.
pub(super) async fn purge<F, E>(
    subject: &'static str,
    keep: Duration,
    shutdown: &Shutdown,
    delete: impl Fn(DateTime<Utc>) -> F,
) where
    F: Future<Output = Result<u64, E>>,
    E: Display,
{
    let mut ticks = tokio::time::interval(PURGE_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.requested() => return,
        }
        match delete(Utc::now() - keep).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "purged {subject}"),
            Err(error) => tracing::error!(%error, "cannot purge {subject}"),
        }
    }
}
