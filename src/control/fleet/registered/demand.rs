//! The demand for hosts, for the autoscaler of an engine.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use metrics::gauge;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time for which a browser that got no host counts. Its client may have given up after that.
const WINDOW: Duration = Duration::from_secs(60);
/// The most browsers that are counted.
const MAX_COUNT: usize = 10_000;

/// The browsers that got no host. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct HostDemand {
    /// When each was refused, the oldest first.
    refusals: Arc<Mutex<VecDeque<Instant>>>,
}

impl HostDemand {
    /// Counts a browser that got no host.
    pub fn record(&self) {
        self.record_at(Instant::now());
        self.publish();
    }

    /// Updates the metric.
    pub(super) fn publish(&self) {
        gauge!("berth_hosts_wanted").set(self.count_at(Instant::now()) as f64);
    }

    fn record_at(&self, now: Instant) {
        let mut refusals = self.refusals.lock();
        if refusals.len() == MAX_COUNT {
            refusals.pop_front();
        }
        refusals.push_back(now);
    }

    fn count_at(&self, now: Instant) -> usize {
        let mut refusals = self.refusals.lock();
        while refusals
            .front()
            .is_some_and(|refused| now.duration_since(*refused) >= WINDOW)
        {
            refusals.pop_front();
        }
        refusals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_counts_refusals_of_the_window_up_to_the_bound() {
        let demand = HostDemand::default();
        let start = Instant::now();
        assert_eq!(demand.count_at(start), 0);
        demand.record_at(start);
        demand.record_at(start + WINDOW / 2);
        assert_eq!(demand.count_at(start + WINDOW / 2), 2);
        assert_eq!(demand.count_at(start + WINDOW), 1);
        assert_eq!(demand.count_at(start + 2 * WINDOW), 0);
        for _ in 0..=MAX_COUNT {
            demand.record_at(start);
        }
        assert_eq!(demand.count_at(start), MAX_COUNT);
    }
}
