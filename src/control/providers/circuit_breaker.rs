//! A circuit breaker: a provider that fails repeatedly is not asked for some time.
//!
//! ```text
//!            failures                    interval has passed
//! Closed ───────────────▶ Open ◀──────────────────────────────▶ HalfOpen: one probe
//!    ▲                            probe fails: twice the interval      │
//!    └─────────────────────────────────────────────────────────────────┘
//!                                 probe succeeds
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// The consecutive failures that open the circuit.
const FAILURES_TO_OPEN: u32 = 3;

/// A pure state machine. The caller passes the time.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    first_interval: Duration,
    longest_interval: Duration,
    state: State,
    /// Grows with each transition, so that results of requests from before it are ignored.
    generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, interval: Duration },
    HalfOpen { interval: Duration },
}

/// The permission to send one request. Its result must be passed to the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CircuitPermit {
    generation: u64,
    /// Whether the request decides if the circuit is closed.
    pub(super) is_probe: bool,
}

impl CircuitBreaker {
    pub(super) fn new(first_interval: Duration, longest_interval: Duration) -> CircuitBreaker {
        CircuitBreaker {
            first_interval,
            longest_interval,
            state: State::Closed { failures: 0 },
            generation: 0,
        }
    }

    /// Returns a permit, or how long to wait for one.
    pub(super) fn try_acquire(&mut self, now: Instant) -> Result<CircuitPermit, Duration> {
        let is_probe = match self.state {
            State::Closed { .. } => false,
            State::Open { until, .. } if until > now => return Err(until - now),
            State::Open { interval, .. } => {
                self.enter(State::HalfOpen { interval });
                true
            }
            // The probe is under way.
            State::HalfOpen { .. } => return Err(self.first_interval),
        };
        Ok(CircuitPermit {
            generation: self.generation,
            is_probe,
        })
    }

    pub(super) fn on_success(&mut self, permit: CircuitPermit) {
        if self.is_current(permit) {
            match self.state {
                State::Closed { .. } => self.state = State::Closed { failures: 0 },
                State::Open { .. } | State::HalfOpen { .. } => {
                    self.enter(State::Closed { failures: 0 });
                }
            }
        }
    }

    /// Returns the interval if the failure opened the circuit.
    pub(super) fn on_failure(&mut self, permit: CircuitPermit, now: Instant) -> Option<Duration> {
        if !self.is_current(permit) {
            return None;
        }
        let interval = match self.state {
            State::Closed { failures } if failures + 1 < FAILURES_TO_OPEN => {
                let failures = failures + 1;
                self.state = State::Closed { failures };
                return None;
            }
            State::Closed { .. } => self.first_interval,
            State::Open { interval, .. } => interval,
            State::HalfOpen { interval } => (interval * 2).min(self.longest_interval),
        };
        let until = now + interval;
        self.enter(State::Open { until, interval });
        Some(interval)
    }

    /// Returns a permit whose request has no result, such as one that was cancelled. After a probe
    /// the next request is one.
    pub(super) fn on_cancel(&mut self, permit: CircuitPermit, now: Instant) {
        if let (true, State::HalfOpen { interval }) = (self.is_current(permit), self.state) {
            let until = now;
            self.enter(State::Open { until, interval });
        }
    }

    fn is_current(&self, permit: CircuitPermit) -> bool {
        permit.generation == self.generation
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(5);
    const LONGEST: Duration = Duration::from_secs(15);

    /// Returns a breaker that has just opened, and the time.
    fn opened() -> (CircuitBreaker, Instant) {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::new(FIRST, LONGEST);
        for failure in 1..=FAILURES_TO_OPEN {
            let permit = breaker.try_acquire(now).unwrap();
            assert!(!permit.is_probe);
            let opened = breaker.on_failure(permit, now);
            assert_eq!(opened.is_some(), failure == FAILURES_TO_OPEN);
        }
        (breaker, now)
    }

    #[test]
    fn circuit_opens_after_consecutive_failures_only() {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::new(FIRST, LONGEST);
        for _ in 0..10 {
            let permit = breaker.try_acquire(now).unwrap();
            assert_eq!(breaker.on_failure(permit, now), None);
            let permit = breaker.try_acquire(now).unwrap();
            assert_eq!(breaker.on_failure(permit, now), None);
            let permit = breaker.try_acquire(now).unwrap();
            breaker.on_success(permit);
        }
        let (mut breaker, now) = opened();
        assert_eq!(breaker.try_acquire(now), Err(FIRST));
        let later = now + FIRST / 2;
        assert_eq!(breaker.try_acquire(later), Err(FIRST / 2));
    }

    #[test]
    fn one_probe_decides_after_the_interval() {
        let (mut breaker, now) = opened();
        let later = now + FIRST;
        let probe = breaker.try_acquire(later).unwrap();
        assert!(probe.is_probe);
        assert_eq!(breaker.try_acquire(later), Err(FIRST));
        breaker.on_success(probe);
        assert!(!breaker.try_acquire(later).unwrap().is_probe);
    }

    #[test]
    fn interval_doubles_up_to_its_bound_with_each_failed_probe() {
        let (mut breaker, mut now) = opened();
        let mut interval = FIRST;
        for expected in [10, 15, 15].map(Duration::from_secs) {
            now += interval;
            let probe = breaker.try_acquire(now).unwrap();
            assert_eq!(breaker.on_failure(probe, now), Some(expected));
            assert_eq!(breaker.try_acquire(now), Err(expected));
            interval = expected;
        }
        // A success starts again with the first interval.
        now += interval;
        let probe = breaker.try_acquire(now).unwrap();
        breaker.on_success(probe);
        for _ in 0..FAILURES_TO_OPEN {
            let permit = breaker.try_acquire(now).unwrap();
            breaker.on_failure(permit, now);
        }
        assert_eq!(breaker.try_acquire(now), Err(FIRST));
    }

    #[test]
    fn cancelled_probe_makes_room_for_another_one() {
        let (mut breaker, now) = opened();
        let later = now + FIRST;
        let probe = breaker.try_acquire(later).unwrap();
        breaker.on_cancel(probe, later);
        let probe = breaker.try_acquire(later).unwrap();
        assert!(probe.is_probe);
        // The interval has not grown.
        assert_eq!(breaker.on_failure(probe, later), Some(2 * FIRST));
    }

    #[test]
    fn result_from_before_a_transition_is_ignored() {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::new(FIRST, LONGEST);
        let early = breaker.try_acquire(now).unwrap();
        for _ in 0..FAILURES_TO_OPEN {
            let permit = breaker.try_acquire(now).unwrap();
            breaker.on_failure(permit, now);
        }
        breaker.on_success(early);
        assert_eq!(breaker.try_acquire(now), Err(FIRST));
        let probe = breaker.try_acquire(now + FIRST).unwrap();
        assert_eq!(breaker.on_failure(early, now + FIRST), None);
        breaker.on_cancel(early, now + FIRST);
        breaker.on_success(probe);
        assert!(breaker.try_acquire(now + FIRST).is_ok());
    }
}
