//! A leaky-bucket rate limit.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Limits the rate of actions: an average rate, ahead of which a burst may run for some time.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// The average interval between actions.
    interval: Duration,
    /// The time by which a burst may run ahead of the average rate.
    burst_window: Duration,
    /// When the actions performed so far would have finished at the average rate.
    drained_at: Option<Instant>,
}

impl RateLimit {
    pub(crate) const fn new(interval: Duration, burst_window: Duration) -> Self {
        Self {
            interval,
            burst_window,
            drained_at: None,
        }
    }

    /// Waits until one more action is allowed. Callers do not read further input meanwhile, so
    /// back-pressure reaches the sender.
    pub(crate) async fn wait(&mut self) {
        let (drained_at, excess) = self.next(Instant::now());
        self.drained_at = Some(drained_at);
        if !excess.is_zero() {
            sleep_until(drained_at - self.burst_window).await;
        }
    }

    /// Counts one action if it is allowed at `now`, and returns whether it is.
    pub(crate) fn try_acquire(&mut self, now: Instant) -> bool {
        let (drained_at, excess) = self.next(now);
        let is_allowed = excess.is_zero();
        if is_allowed {
            self.drained_at = Some(drained_at);
        }
        is_allowed
    }

    /// Returns whether the actions so far have no influence on later ones.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.drained_at.is_none_or(|at| at <= now)
    }

    /// Returns when one more action would have finished, and by how much that exceeds the window.
    fn next(&self, now: Instant) -> (Instant, Duration) {
        let drained_at = self.drained_at.map_or(now, |at| at.max(now)) + self.interval;
        let ahead = drained_at.duration_since(now);
        (drained_at, ahead.saturating_sub(self.burst_window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_allowed_up_to_the_window() {
        let mut limit = RateLimit::new(Duration::from_millis(2), Duration::from_millis(500));
        let now = Instant::now();
        let allowed = (0..1000).filter(|_| limit.try_acquire(now));
        assert_eq!(allowed.count(), 250);
        assert!(!limit.is_idle(now));
        assert!(limit.try_acquire(now + Duration::from_millis(2)));
        assert!(!limit.try_acquire(now + Duration::from_millis(2)));
        let later = now + Duration::from_secs(60);
        assert!(limit.is_idle(later));
        let allowed = (0..1000).filter(|_| limit.try_acquire(later));
        assert_eq!(allowed.count(), 250);
    }
}
