//! How long to wait before starting again what has died.

use std::time::Duration;

/// Who has run for so long is taken for sound.
const STABLE_AFTER: Duration = Duration::from_secs(30);
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);

/// Nothing after a single death, then doubling.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    pub fn after_failure(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= STABLE_AFTER {
            self.failures = 0;
        }
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => FIRST
                .saturating_mul(1 << (failures - 1).min(16))
                .min(LONGEST),
        };
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_limit_and_begins_anew_after_a_stable_run() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..9)
            .map(|_| backoff.after_failure(Duration::ZERO).as_millis())
            .collect();
        assert_eq!(pauses, [0, 250, 500, 1000, 2000, 4000, 8000, 15000, 15000]);
        assert_eq!(backoff.after_failure(STABLE_AFTER), Duration::ZERO);
        assert_eq!(backoff.after_failure(Duration::ZERO), FIRST);
    }
}
