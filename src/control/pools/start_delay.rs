//! The delay of starts of browsers of a pool after one has failed.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// The first and the longest delay after a failed start.
const FAILURE_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The delay after which a host is looked for again.
const NO_HOST_DELAY: Duration = Duration::from_secs(1);

/// The kind of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartKind {
    /// On a host that is reserved for the pool already.
    Adopt,
    /// On a further host.
    Add,
}

/// The delay of starts of one kind.
pub(super) struct StartDelay {
    delays: Backoff,
    until: Option<Instant>,
}

impl Default for StartDelay {
    fn default() -> Self {
        StartDelay {
            delays: Backoff::new(FAILURE_DELAY.0, FAILURE_DELAY.1),
            until: None,
        }
    }
}

impl StartDelay {
    /// Returns whether a browser may be started.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Notes that no host was free.
    pub(super) fn no_host(&mut self, now: Instant) {
        self.until = Some(now + NO_HOST_DELAY);
    }

    /// Notes that a start has failed. Those that fail together count once.
    pub(super) fn failed(&mut self, now: Instant) {
        if self.is_over(now) {
            self.until = Some(now + self.delays.next_delay());
        }
    }
}
