//! Tests of repetitions, with attempts that have scripted results.

use std::{
    future::{pending, ready},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::system::outbound::OutboundError;

const OPERATION: Duration = Duration::from_secs(60);

/// Times with which no test waits for long. The circuit stays open.
fn timings() -> ProviderTimings {
    ProviderTimings {
        first_retry_delay: Duration::from_millis(1),
        longest_retry_delay: Duration::from_millis(2),
        ready_delay: Duration::from_millis(1),
        ready_window: OPERATION,
        circuit_interval: OPERATION,
        longest_circuit_interval: OPERATION,
        ..ProviderTimings::default()
    }
}

fn resilience() -> Resilience {
    Resilience::new("prov_test", timings())
}

/// Attempts with one result after another. The last one is repeated.
struct Scripted {
    results: Vec<Result<(), ProviderError>>,
    count: AtomicUsize,
    started_at: Instant,
}

impl Scripted {
    fn new(results: impl IntoIterator<Item = Result<(), ProviderError>>) -> Scripted {
        Scripted {
            results: results.into_iter().collect(),
            count: AtomicUsize::new(0),
            started_at: Instant::now(),
        }
    }

    async fn run(&self, resilience: &Resilience) -> Result<(), ProviderError> {
        let deadline = Instant::now() + OPERATION;
        let attempt = |_| {
            let number = self.count.fetch_add(1, Ordering::SeqCst);
            let result = self.results.get(number).or(self.results.last());
            ready(result.unwrap().clone())
        };
        resilience.run(deadline, attempt).await
    }

    fn attempts(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }
}

async fn become_ready(resilience: &Resilience) {
    Scripted::new([Ok(())]).run(resilience).await.unwrap();
}

fn rate_limited(milliseconds: u64) -> ProviderError {
    let retry_after = Duration::from_millis(milliseconds);
    ProviderError::RateLimited { retry_after }
}

fn unreachable() -> ProviderError {
    let host = "vault.example".to_owned();
    ProviderError::Unreachable(OutboundError::Resolve { host })
}

#[tokio::test]
async fn first_403_and_500_mean_not_ready() {
    for error in [
        ProviderError::Forbidden,
        ProviderError::Unavailable { status: 500 },
    ] {
        let resilience = resilience();
        let failures = vec![Err(error.clone()); 6];
        let script = Scripted::new(failures.into_iter().chain([Ok(())]));
        assert_eq!(script.run(&resilience).await, Ok(()));
        assert_eq!(script.attempts(), 7);
        assert!(script.elapsed() >= Duration::from_millis(6));
    }
}

#[tokio::test]
async fn wait_for_a_provider_that_is_not_ready_is_bounded() {
    let one_wait = ProviderTimings {
        ready_window: Duration::ZERO,
        ..timings()
    };
    for (timings, attempts) in [(timings(), 11), (one_wait, 2)] {
        let resilience = Resilience::new("prov_test", timings);
        let script = Scripted::new([Err(ProviderError::Forbidden)]);
        assert_eq!(script.run(&resilience).await, Err(ProviderError::Forbidden));
        assert_eq!(script.attempts(), attempts);
        // The next request does not wait again.
        assert_eq!(script.run(&resilience).await, Err(ProviderError::Forbidden));
        assert_eq!(script.attempts(), attempts + 1);
    }
}

#[tokio::test]
async fn deadline_ends_the_wait_for_a_provider_that_is_not_ready() {
    let slow = ProviderTimings {
        ready_delay: 2 * OPERATION,
        ..timings()
    };
    for (error, status) in [
        (ProviderError::Forbidden, 403),
        (ProviderError::Unavailable { status: 500 }, 500),
    ] {
        let script = Scripted::new([Err(error)]);
        let result = script.run(&Resilience::new("prov_test", slow)).await;
        assert_eq!(result, Err(ProviderError::NotReady { status }));
        assert_eq!(script.attempts(), 1);
    }
}

#[tokio::test]
async fn later_403_is_final() {
    let resilience = resilience();
    become_ready(&resilience).await;
    let script = Scripted::new([Err(ProviderError::Forbidden)]);
    assert_eq!(script.run(&resilience).await, Err(ProviderError::Forbidden));
    assert_eq!(script.attempts(), 1);
}

#[tokio::test]
async fn refused_token_is_final_from_the_start() {
    for error in [
        ProviderError::TokenRefused,
        ProviderError::NotFound,
        ProviderError::InvalidResponse("the item"),
    ] {
        let script = Scripted::new([Err(error.clone()), Ok(())]);
        assert_eq!(script.run(&resilience()).await, Err(error));
        assert_eq!(script.attempts(), 1);
    }
}

#[tokio::test]
async fn temporary_failure_is_retried_with_growing_delays() {
    for error in [
        ProviderError::Unavailable { status: 503 },
        ProviderError::Timeout,
        unreachable(),
    ] {
        let resilience = resilience();
        become_ready(&resilience).await;
        let script = Scripted::new([Err(error.clone()), Err(error.clone()), Ok(())]);
        assert_eq!(script.run(&resilience).await, Ok(()));
        assert!(script.elapsed() >= Duration::from_millis(3));

        let script = Scripted::new([Err(error.clone())]);
        assert_eq!(script.run(&resilience).await, Err(error));
        assert_eq!(script.attempts(), 3);
    }
}

#[tokio::test]
async fn retry_after_holds_for_all_requests() {
    let resilience = resilience();
    let limited = Scripted::new([Err(rate_limited(40)), Ok(())]);
    let other = Scripted::new([Ok(())]);
    let (first, second) = tokio::join!(limited.run(&resilience), other.run(&resilience));
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!((limited.attempts(), other.attempts()), (2, 1));
    for script in [limited, other] {
        assert!(script.elapsed() >= Duration::from_millis(40));
    }
}

#[tokio::test]
async fn long_retry_after_fails_without_a_wait() {
    let resilience = resilience();
    let script = Scripted::new([Err(rate_limited(3_600_000)), Ok(())]);
    // A provider cannot lock itself out for longer than a minute.
    assert_eq!(script.run(&resilience).await, Err(rate_limited(60_000)));
    let next = script.run(&resilience).await.unwrap_err();
    let retry_after = next.retry_after().unwrap();
    assert!(
        retry_after <= MAX_PAUSE && retry_after > MAX_PAUSE / 2,
        "{next}"
    );
    assert_eq!(script.attempts(), 1);
}

#[tokio::test]
async fn repeated_rate_limit_is_an_error_and_opens_no_circuit() {
    let resilience = resilience();
    let script = Scripted::new([Err(rate_limited(1))]);
    for requests in 1..=5 {
        assert_eq!(script.run(&resilience).await, Err(rate_limited(1)));
        assert_eq!(script.attempts(), requests * 3);
    }
}

#[tokio::test]
async fn deadline_bounds_the_attempts() {
    let slow = ProviderTimings {
        request_timeout: OPERATION,
        first_retry_delay: OPERATION,
        longest_retry_delay: OPERATION,
        ..timings()
    };
    let resilience = Resilience::new("prov_test", slow);
    become_ready(&resilience).await;
    for (time, expected) in [(OPERATION / 2, OPERATION / 2), (2 * OPERATION, OPERATION)] {
        let limits = Mutex::new(Vec::new());
        let attempt = |limit: Duration| {
            limits.lock().push(limit);
            ready(Err::<(), _>(ProviderError::NotFound))
        };
        let result = resilience.run(Instant::now() + time, attempt).await;
        assert_eq!(result, Err(ProviderError::NotFound));
        let limits = limits.into_inner();
        assert!(limits.len() == 1 && limits[0] <= expected && limits[0] > expected / 2);
    }
    // The delay before another attempt would end after the deadline.
    let script = Scripted::new([Err(ProviderError::Timeout)]);
    assert_eq!(script.run(&resilience).await, Err(ProviderError::Timeout));
    assert_eq!(script.attempts(), 1);
}

#[tokio::test]
async fn circuit_opens_after_requests_that_failed_with_all_attempts() {
    let resilience = resilience();
    become_ready(&resilience).await;
    let down = Scripted::new([Err(unreachable())]);
    for _ in 0..3 {
        assert_eq!(down.run(&resilience).await, Err(unreachable()));
    }
    assert_eq!(down.attempts(), 9);
    let open = down.run(&resilience).await.unwrap_err();
    assert!(matches!(open, ProviderError::CircuitOpen { .. }), "{open}");
    assert!(open.retry_after() <= Some(OPERATION));
    assert_eq!(down.attempts(), 9);
}

/// Returns an open circuit that admits a probe at once.
async fn admitting_a_probe() -> Resilience {
    let timings = ProviderTimings {
        circuit_interval: Duration::ZERO,
        longest_circuit_interval: Duration::ZERO,
        ..timings()
    };
    let resilience = Resilience::new("prov_test", timings);
    become_ready(&resilience).await;
    let down = Scripted::new([Err(unreachable())]);
    for _ in 0..3 {
        assert_eq!(down.run(&resilience).await, Err(unreachable()));
    }
    resilience
}

#[tokio::test]
async fn probe_is_one_attempt_and_closes_the_circuit() {
    let resilience = admitting_a_probe().await;
    let down = Scripted::new([Err(unreachable())]);
    for probes in 1..=3 {
        assert_eq!(down.run(&resilience).await, Err(unreachable()));
        assert_eq!(down.attempts(), probes);
    }
    become_ready(&resilience).await;
    let up = Scripted::new([Err(ProviderError::Timeout), Ok(())]);
    assert_eq!(up.run(&resilience).await, Ok(()));
    assert_eq!(up.attempts(), 2);
}

#[tokio::test]
async fn cancelled_probe_does_not_keep_the_circuit_open() {
    let resilience = admitting_a_probe().await;
    let deadline = Instant::now() + OPERATION;
    let attempt = |_| pending::<Result<(), ProviderError>>();
    let mut probe = Box::pin(resilience.run(deadline, attempt));
    assert!(futures::poll!(&mut probe).is_pending());
    let other = Scripted::new([Ok(())]).run(&resilience).await;
    assert!(
        matches!(other, Err(ProviderError::CircuitOpen { .. })),
        "{other:?}"
    );
    drop(probe);
    become_ready(&resilience).await;
}
