//! The delay before Chromium is started again.

use std::time::Duration;

use crate::backoff::Backoff;

/// The run time after which a Chromium counts as stable.
const STABLE_RUN_TIME: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(15);

/// The delays of consecutive restarts: none after the first failure, then a back-off.
#[derive(Debug)]
pub(super) struct RestartDelay {
    has_failed: bool,
    backoff: Backoff,
}

impl RestartDelay {
    pub(super) fn new() -> Self {
        Self {
            has_failed: false,
            backoff: Backoff::new(FIRST_DELAY, MAX_DELAY),
        }
    }

    /// Returns the delay after a Chromium that has failed after `run_time`.
    pub(super) fn after_failure(&mut self, run_time: Duration) -> Duration {
        if run_time >= STABLE_RUN_TIME {
            self.has_failed = false;
            self.backoff.reset();
        }
        if std::mem::replace(&mut self.has_failed, true) {
            self.backoff.next_delay()
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_its_bound_and_is_zero_after_a_stable_run() {
        let mut delay = RestartDelay::new();
        let delays: Vec<_> = (0..9)
            .map(|_| delay.after_failure(Duration::ZERO).as_millis())
            .collect();
        assert_eq!(delays, [0, 250, 500, 1000, 2000, 4000, 8000, 15000, 15000]);
        assert_eq!(delay.after_failure(STABLE_RUN_TIME), Duration::ZERO);
        assert_eq!(delay.after_failure(Duration::ZERO), FIRST_DELAY);
    }
}
