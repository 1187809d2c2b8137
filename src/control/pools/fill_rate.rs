//! The rate at which browsers are added to a pool.

use tokio::time::Instant;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// A token bucket: a minute's worth of browsers may be added at once, further ones as time passes.
#[derive(Debug, Clone)]
pub(super) struct FillRate {
    tokens: f64,
    updated_at: Instant,
}

impl FillRate {
    /// Returns a full bucket.
    pub(super) fn new(now: Instant) -> FillRate {
        FillRate {
            tokens: f64::INFINITY,
            updated_at: now,
        }
    }

    /// Takes up to `missing` browsers of a pool of `size`, of which `percent` may be added per
    /// minute.
    pub(super) fn take(&mut self, missing: usize, size: u32, percent: u32, now: Instant) -> usize {
        // At least one per minute, whatever the percentage of a small pool is.
        let per_minute = (f64::from(size) * f64::from(percent) / 100.0).max(1.0);
        let elapsed = now.saturating_duration_since(self.updated_at);
        let gained = per_minute * elapsed.as_secs_f64() / SECONDS_PER_MINUTE;
        self.tokens = (self.tokens + gained).min(per_minute);
        self.updated_at = now;
        let taken = missing.min(self.tokens as usize);
        self.tokens -= taken as f64;
        taken
    }

    /// Returns browsers that were taken and not added.
    pub(super) fn give_back(&mut self, count: usize) {
        self.tokens += count as f64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn quarter_of_the_size_is_added_per_minute() {
        let start = Instant::now();
        let mut rate = FillRate::new(start);
        assert_eq!(rate.take(100, 100, 25, start), 25);
        assert_eq!(rate.take(100, 100, 25, start), 0);
        let later = start + Duration::from_secs(30);
        assert_eq!(rate.take(100, 100, 25, later), 12);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(rate.take(3, 100, 25, much_later), 3);
        assert_eq!(rate.take(100, 100, 25, much_later), 22);
    }

    #[test]
    fn small_pool_gets_one_per_minute() {
        let start = Instant::now();
        let mut rate = FillRate::new(start);
        assert_eq!(rate.take(2, 2, 25, start), 1);
        let almost = start + Duration::from_secs(59);
        assert_eq!(rate.take(1, 2, 25, almost), 0);
        assert_eq!(rate.take(1, 2, 25, start + Duration::from_secs(60)), 1);
    }

    #[test]
    fn browser_that_was_not_added_is_given_back() {
        let start = Instant::now();
        let mut rate = FillRate::new(start);
        assert_eq!(rate.take(4, 4, 100, start), 4);
        rate.give_back(1);
        assert_eq!(rate.take(4, 4, 100, start), 1);
    }
}
