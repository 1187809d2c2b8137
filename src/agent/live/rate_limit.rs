//! Limits the rate of one viewer's actions to what a human can produce.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The average interval between actions: 500 per second.
const ACTION_INTERVAL: Duration = Duration::from_millis(2);
/// The time by which a burst may run ahead of the average rate.
const BURST_WINDOW: Duration = Duration::from_millis(500);

/// A leaky-bucket rate limit.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    /// When the actions performed so far would have finished at the average rate.
    drained_at: Option<Instant>,
}

impl RateLimit {
    /// Waits until one more action is allowed. Callers do not read further input meanwhile, so
    /// back-pressure reaches the sender.
    pub(super) async fn wait(&mut self) {
        if let Some(time) = self.reserve(Instant::now()) {
            sleep_until(time).await;
        }
    }

    /// Counts one action and returns the time it is allowed at, or `None` if that is now.
    fn reserve(&mut self, now: Instant) -> Option<Instant> {
        let drained_at = self.drained_at.map_or(now, |at| at.max(now)) + ACTION_INTERVAL;
        self.drained_at = Some(drained_at);
        let allowed_at = drained_at - BURST_WINDOW;
        (allowed_at > now).then_some(allowed_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_allowed_up_to_the_window() {
        let (mut limit, now) = (RateLimit::default(), Instant::now());
        let allowed = (0..1000).take_while(|_| limit.reserve(now).is_none());
        assert_eq!(allowed.count(), 250);
        let later = now + Duration::from_secs(60);
        assert_eq!(limit.reserve(later), None);
    }
}
