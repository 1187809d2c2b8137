//! Bounded waits.

use std::{future::Future, time::Duration};

use tokio::time::{interval, timeout};

/// The bound of every wait: long enough for a loaded machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two polls of a wait.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until there is a value; panics with the description after [`WAIT_TIMEOUT`].
pub async fn until<T>(description: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let polling = async {
        let mut ticks = interval(POLL_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(found) = poll().await {
                return found;
            }
        }
    };
    in_time(description, polling).await
}

/// Awaits a future; panics with the description after [`WAIT_TIMEOUT`].
pub async fn in_time<T>(description: &str, future: impl Future<Output = T>) -> T {
    match timeout(WAIT_TIMEOUT, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out waiting for {description}"),
    }
}
