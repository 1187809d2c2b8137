//! Waiting for what a test waits for, with an end.

use std::future::Future;
use std::time::Duration;

use tokio::time::{interval, timeout};

/// Long enough for a machine with much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// Looks until there is something; panics with `what` after [`PATIENCE`].
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = async {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    match timeout(PATIENCE, looking).await {
        Ok(found) => found,
        Err(_) => panic!("waited in vain: {what}"),
    }
}
