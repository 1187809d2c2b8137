//! The demand for hosts, for the autoscaler of an engine.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use metrics::gauge;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::control::fleet::LaunchOptions;

/// The time for which a browser that got no host counts. Its client may have given up after that.
const WINDOW: Duration = Duration::from_secs(60);
/// The interval in which a client repeats a creation, which is its `Retry-After`. In this time each
/// client that waits for a host is counted once.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The most browsers that are counted.
const MAX_COUNT: usize = 10_000;

/// The browsers that got no host. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct HostDemand {
    /// The oldest first.
    refusals: Arc<Mutex<VecDeque<Refusal>>>,
    /// Notified when a browser got no host.
    recorded: Arc<Notify>,
}

/// A browser that got no host.
#[derive(Debug, Clone)]
struct Refusal {
    at: Instant,
    options: LaunchOptions,
}

/// The browsers of one mode that got no host within [`RETRY_INTERVAL`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModeDemand {
    pub(super) count: usize,
    /// The options of the browser with the largest screen.
    pub(super) options: LaunchOptions,
}

impl HostDemand {
    /// Counts a browser that got no host.
    pub fn record(&self, options: LaunchOptions) {
        self.record_at(Instant::now(), options);
        self.publish();
        self.recorded.notify_one();
    }

    /// Returns the signal that a browser got no host.
    pub(super) fn recorded(&self) -> &Notify {
        &self.recorded
    }

    /// Returns the demand of each mode at the moment.
    pub(super) fn by_mode(&self) -> Vec<ModeDemand> {
        self.by_mode_at(Instant::now())
    }

    fn by_mode_at(&self, now: Instant) -> Vec<ModeDemand> {
        let area = |options: &LaunchOptions| options.viewport.width * options.viewport.height;
        let mut modes: Vec<ModeDemand> = Vec::new();
        for refusal in self.refusals.lock().iter() {
            if now.duration_since(refusal.at) >= RETRY_INTERVAL {
                continue;
            }
            let options = refusal.options.clone();
            let is_same = |known: &&mut ModeDemand| known.options.mode == options.mode;
            match modes.iter_mut().find(is_same) {
                Some(found) => {
                    found.count += 1;
                    if area(&options) > area(&found.options) {
                        found.options = options;
                    }
                }
                None => modes.push(ModeDemand { count: 1, options }),
            }
        }
        modes
    }

    /// Updates the metric.
    pub(super) fn publish(&self) {
        gauge!("berth_hosts_wanted").set(self.count_at(Instant::now()) as f64);
    }

    fn record_at(&self, at: Instant, options: LaunchOptions) {
        let mut refusals = self.refusals.lock();
        if refusals.len() == MAX_COUNT {
            refusals.pop_front();
        }
        refusals.push_back(Refusal { at, options });
    }

    fn count_at(&self, now: Instant) -> usize {
        let mut refusals = self.refusals.lock();
        while refusals
            .front()
            .is_some_and(|refusal| now.duration_since(refusal.at) >= WINDOW)
        {
            refusals.pop_front();
        }
        refusals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::viewport::Viewport, control::store::HostMode};

    fn options(headless: bool, width: u32) -> LaunchOptions {
        LaunchOptions {
            mode: HostMode {
                headless,
                kiosk_mode: false,
            },
            viewport: Viewport {
                width,
                ..Viewport::default()
            },
        }
    }

    #[test]
    fn demand_counts_refusals_of_the_window_up_to_the_bound() {
        let demand = HostDemand::default();
        let start = Instant::now();
        assert_eq!(demand.count_at(start), 0);
        let record = |at| demand.record_at(at, options(true, 800));
        record(start);
        record(start + WINDOW / 2);
        assert_eq!(demand.count_at(start + WINDOW / 2), 2);
        assert_eq!(demand.count_at(start + WINDOW), 1);
        assert_eq!(demand.count_at(start + 2 * WINDOW), 0);
        for _ in 0..=MAX_COUNT {
            record(start);
        }
        assert_eq!(demand.count_at(start), MAX_COUNT);
    }

    #[test]
    fn demand_of_a_mode_counts_each_waiting_client_once() {
        let demand = HostDemand::default();
        let start = Instant::now();
        for seconds in [0, 5, 10] {
            let at = start + Duration::from_secs(seconds);
            demand.record_at(at, options(true, 800));
        }
        let now = start + Duration::from_secs(11);
        demand.record_at(now, options(true, 1024));
        demand.record_at(now, options(true, 640));
        demand.record_at(now, options(false, 800));
        let expected = [
            ModeDemand {
                count: 3,
                options: options(true, 1024),
            },
            ModeDemand {
                count: 1,
                options: options(false, 800),
            },
        ];
        assert_eq!(demand.by_mode_at(now), expected);
        assert_eq!(demand.by_mode_at(now + RETRY_INTERVAL), []);
    }
}
