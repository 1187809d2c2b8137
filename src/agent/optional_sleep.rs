//! Waits for times that may not be set.

use tokio::time::{Instant, sleep_until};

/// Sleeps until `deadline`, or forever if there is none.
pub(super) async fn sleep_until_some(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
