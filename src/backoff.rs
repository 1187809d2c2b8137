//! Exponential back-off between attempts: each delay is twice the previous one, up to a bound.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The delays between attempts at an operation: from `first`, doubling, up to `longest`.
#[derive(Debug)]
pub struct Backoff {
    schedule: ExponentialBuilder,
    delays: ExponentialBackoff,
    longest: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        let schedule = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest)
            .with_factor(2.0)
            .without_max_times();
        Self {
            schedule,
            delays: schedule.build(),
            longest,
        }
    }

    /// Adds a random part to each delay, of up to as much, so that clients do not retry in step.
    #[must_use]
    pub fn with_jitter(mut self) -> Self {
        let seed = fastrand::u64(..);
        self.schedule = self.schedule.with_jitter().with_jitter_seed(seed);
        self.reset();
        self
    }

    /// Returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.delays.next().unwrap_or(self.longest)
    }

    /// Starts again with the first delay.
    pub fn reset(&mut self) {
        self.delays = self.schedule.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_its_bound_and_starts_again_after_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(15));
        let delays: Vec<u128> = (0..9).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(
            delays,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]
        );
        backoff.reset();
        assert_eq!(backoff.next_delay(), Duration::from_millis(250));
    }

    #[test]
    fn jitter_at_most_doubles_a_delay() {
        let delays = |_| {
            let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(1));
            let mut backoff = backoff.with_jitter();
            [250, 500, 1_000, 1_000].map(|expected| {
                let delay = backoff.next_delay();
                let expected = Duration::from_millis(expected);
                assert!((expected..2 * expected).contains(&delay), "{delay:?}");
                delay
            })
        };
        let distinct: std::collections::HashSet<_> = (0..8).map(delays).collect();
        assert!(distinct.len() > 1, "{distinct:?}");
    }
}
