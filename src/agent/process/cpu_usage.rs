//! The CPU usage of a process over a recent period.

use std::time::{Duration, Instant};

/// The shortest period for a useful percentage: the kernel counts CPU time in 1/100 s.
const MIN_PERIOD: Duration = Duration::from_millis(500);

/// CPU time consumed up to a point in time.
type Sample = (Instant, Duration);

/// The two samples that usage is computed from. The newer one may be too recent to compare with.
#[derive(Debug)]
pub(super) struct CpuUsage {
    older: Sample,
    newer: Sample,
}

impl CpuUsage {
    /// Starts with a sample of zero CPU time.
    pub(super) fn new(started_at: Instant) -> Self {
        let zero = (started_at, Duration::ZERO);
        CpuUsage {
            older: zero,
            newer: zero,
        }
    }

    /// Adds a sample and returns the percentage of one core used since an earlier sample that is
    /// at least [`MIN_PERIOD`] old, or else since the start.
    pub(super) fn sample(&mut self, now: Instant, cpu_time: Duration) -> f64 {
        if now.saturating_duration_since(self.newer.0) >= MIN_PERIOD {
            self.older = std::mem::replace(&mut self.newer, (now, cpu_time));
        }
        let period = now.saturating_duration_since(self.older.0).as_secs_f64();
        // CPU time decreases when a process ends without being waited for.
        let used = cpu_time.saturating_sub(self.older.1).as_secs_f64();
        if period > 0.0 {
            (used / period * 1000.0).round() / 10.0
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_covers_the_time_since_the_last_sample_that_is_old_enough() {
        let started_at = Instant::now();
        let mut usage = CpuUsage::new(started_at);
        let mut sample = |at: u64, cpu: u64| {
            let now = started_at + Duration::from_millis(at);
            usage.sample(now, Duration::from_millis(cpu))
        };
        assert_eq!(sample(0, 0), 0.0);
        assert_eq!(sample(100, 50), 50.0);
        assert_eq!(sample(1000, 1000), 100.0);
        // The sample at 1000 ms is too recent, so this covers the time since the start.
        assert_eq!(sample(1100, 1000), 90.9);
        assert_eq!(sample(2000, 3000), 200.0);
        // CPU time that decreases counts as zero.
        assert_eq!(sample(3000, 1000), 0.0);
    }
}
