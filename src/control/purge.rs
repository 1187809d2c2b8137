//! Removing what has been kept long enough.

use std::{fmt::Display, time::Duration};

use chrono::{DateTime, Utc};

use crate::shutdown::Shutdown;

/// Between two looks for it.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Has removed what ended longer than `keep` ago, now and every hour, until the stop: `remove` does so for all that ended before a time, and
/// says how many there were.
pub async fn purge<F, E>(
    what: &'static str,
    keep: Duration,
    shutdown: &Shutdown,
    remove: impl Fn(DateTime<Utc>) -> F,
) where
    F: Future<Output = Result<u64, E>>,
    E: Display,
{
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.stopped() => return,
        }
        match remove(Utc::now() - keep).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "{what} that were kept long enough are removed"),
            Err(error) => tracing::error!(%error, "cannot remove old {what}"),
        }
    }
}
