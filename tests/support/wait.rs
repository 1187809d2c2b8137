//! Waiting for what a test waits for, with an end.

use std::future::Future;
use std::time::Duration;

use tokio::time::{interval, timeout};

/// Long enough for a machine with much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// Looks until there is something; panics with `what` after [`PATIENCE`].
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    in_time(what, looking).await
}

/// Waits for what ends by itself; panics with `what` after [`PATIENCE`].
pub async fn in_time<T>(what: &str, done: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, done).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain: {what}"),
    }
}
