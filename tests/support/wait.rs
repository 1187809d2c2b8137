//! Bounded waits.

use std::{future::Future, time::Duration};

use tokio::time::{interval, timeout};

/// The bound of every wait: long enough for a loaded machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until there is a value; panics with the description after [`WAIT_TIMEOUT`].
pub async fn until<T>(description: &str, poll: impl AsyncFnMut() -> Option<T>) -> T {
    in_time(description, polled(poll)).await
}

/// Polls until there is a value, without a bound.
pub async fn polled<T>(mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let mut ticks = interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        if let Some(found) = poll().await {
            return found;
        }
    }
}

/// Awaits a future; panics with the description after [`WAIT_TIMEOUT`].
pub async fn in_time<T>(description: &str, future: impl Future<Output = T>) -> T {
    within(WAIT_TIMEOUT, description, future).await
}

/// Awaits a future; panics with the description after the bound.
pub async fn within<T>(bound: Duration, description: &str, future: impl Future<Output = T>) -> T {
    match timeout(bound, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out waiting for {description}"),
    }
}
