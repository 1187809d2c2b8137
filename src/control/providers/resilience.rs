//! Repeats requests within bounds: providers that start, limit requests or fail for a moment.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    ProviderError,
    circuit_breaker::{CircuitBreaker, CircuitPermit},
    error::Health,
};
use crate::backoff::Backoff;

/// The most attempts at a request to a provider that is ready.
const MAX_ATTEMPTS: u32 = 3;
/// The most waits for a provider to become ready.
const MAX_READY_WAITS: u32 = 10;
/// The longest pause that a provider can demand.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The times of requests to providers.
#[derive(Debug, Clone, Copy)]
pub struct ProviderTimings {
    /// The time for one attempt at a request.
    pub request_timeout: Duration,
    /// The time for a list, with all of its requests, attempts and waits.
    pub list_timeout: Duration,
    /// The time for the values of an item, with all attempts and waits.
    pub fetch_timeout: Duration,
    /// The delay before the second attempt. It doubles, and a random part of it is added.
    pub first_retry_delay: Duration,
    pub longest_retry_delay: Duration,
    /// The delay between attempts while the provider is not ready.
    pub ready_delay: Duration,
    /// The time after its first response of 403 or 500 in which a provider may be not ready.
    pub ready_window: Duration,
    /// The longest pause demanded by the provider (`Retry-After`) that is waited for. A longer one
    /// fails the request.
    pub longest_wait: Duration,
    /// The time for which the circuit stays open at first. It doubles with each failed probe.
    pub circuit_interval: Duration,
    pub longest_circuit_interval: Duration,
}

impl Default for ProviderTimings {
    fn default() -> Self {
        ProviderTimings {
            request_timeout: Duration::from_secs(10),
            list_timeout: Duration::from_secs(60),
            fetch_timeout: Duration::from_secs(20),
            first_retry_delay: Duration::from_millis(250),
            longest_retry_delay: Duration::from_secs(4),
            ready_delay: Duration::from_secs(1),
            ready_window: Duration::from_secs(10),
            longest_wait: Duration::from_secs(10),
            circuit_interval: Duration::from_secs(5),
            longest_circuit_interval: Duration::from_secs(300),
        }
    }
}

/// Repeats the requests of one provider. The state covers all of its requests.
pub(super) struct Resilience {
    provider: String,
    timings: ProviderTimings,
    state: Mutex<ResilienceState>,
}

struct ResilienceState {
    breaker: CircuitBreaker,
    readiness: Readiness,
    /// Until when the provider has demanded a pause.
    paused_until: Option<Instant>,
}

/// Whether the provider has ever responded successfully.
#[derive(Debug, Clone, Copy)]
enum Readiness {
    Unknown,
    Waiting { since: Instant, waits: u32 },
    Ready,
}

impl Readiness {
    /// Counts a wait of a provider that responds 403 or 500, and returns whether it is allowed.
    fn try_wait(&mut self, now: Instant, window: Duration) -> bool {
        match self {
            Readiness::Ready => false,
            Readiness::Unknown => {
                let (since, waits) = (now, 1);
                *self = Readiness::Waiting { since, waits };
                true
            }
            Readiness::Waiting { since, waits } => {
                let is_allowed = *waits < MAX_READY_WAITS && now < *since + window;
                *waits += u32::from(is_allowed);
                is_allowed
            }
        }
    }
}

/// The reaction to a failed attempt.
enum NextStep {
    /// Another attempt after the delay. If the deadline does not permit it, the error.
    Retry(Duration, ProviderError),
    Fail(ProviderError),
}

impl Resilience {
    pub(super) fn new(provider: &str, timings: ProviderTimings) -> Resilience {
        let breaker =
            CircuitBreaker::new(timings.circuit_interval, timings.longest_circuit_interval);
        Resilience {
            provider: provider.to_owned(),
            timings,
            state: Mutex::new(ResilienceState {
                breaker,
                readiness: Readiness::Unknown,
                paused_until: None,
            }),
        }
    }

    /// Makes attempts at an idempotent request until one succeeds or the bounds are reached.
    /// `attempt` gets the time that it may take.
    pub(super) async fn run<T, F, Fut>(
        &self,
        deadline: Instant,
        attempt: F,
    ) -> Result<T, ProviderError>
    where
        F: Fn(Duration) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, ProviderError>> + Send,
        T: Send,
    {
        let result = match self.acquire() {
            Ok(mut permit) => {
                let is_probe = permit.permit.is_probe;
                let result = self.make_attempts(deadline, is_probe, attempt).await;
                permit.health = result
                    .as_ref()
                    .map_or_else(ProviderError::health, |_| Health::Up);
                result
            }
            Err(retry_after) => Err(ProviderError::CircuitOpen { retry_after }),
        };
        let outcome = result
            .as_ref()
            .map_or_else(ProviderError::outcome, |_| "ok");
        metrics::counter!("berth_provider_requests_total", "outcome" => outcome).increment(1);
        result
    }

    async fn make_attempts<T, F, Fut>(
        &self,
        deadline: Instant,
        is_probe: bool,
        attempt: F,
    ) -> Result<T, ProviderError>
    where
        F: Fn(Duration) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, ProviderError>> + Send,
        T: Send,
    {
        let timings = &self.timings;
        let delays = Backoff::new(timings.first_retry_delay, timings.longest_retry_delay);
        let mut delays = delays.with_jitter();
        let mut failures = 0;
        loop {
            self.wait_while_paused(deadline).await?;
            let remaining = deadline.saturating_duration_since(Instant::now());
            let error = match attempt(remaining.min(timings.request_timeout)).await {
                Ok(value) => {
                    self.state.lock().readiness = Readiness::Ready;
                    return Ok(value);
                }
                Err(error) => error,
            };
            tracing::debug!(provider = self.provider, %error, "request to a provider failed");
            let may_retry = !is_probe && failures + 1 < MAX_ATTEMPTS;
            match self.next_step(error, may_retry, is_probe) {
                NextStep::Fail(error) => return Err(error),
                NextStep::Retry(delay, error) => {
                    let is_ordinary = !matches!(error, ProviderError::NotReady { .. });
                    failures += u32::from(is_ordinary);
                    let delay = if delay.is_zero() && is_ordinary {
                        delays.next_delay()
                    } else {
                        delay
                    };
                    if Instant::now() + delay >= deadline {
                        return Err(error);
                    }
                    sleep(delay).await;
                }
            }
        }
    }

    fn next_step(&self, error: ProviderError, may_retry: bool, is_probe: bool) -> NextStep {
        let now = Instant::now();
        let mut state = self.state.lock();
        let window = self.timings.ready_window;
        match error {
            ProviderError::RateLimited { retry_after } => {
                let retry_after = retry_after.min(MAX_PAUSE);
                state.paused_until = Some(now + retry_after);
                let error = ProviderError::RateLimited { retry_after };
                if may_retry && retry_after <= self.timings.longest_wait {
                    NextStep::Retry(retry_after, error)
                } else {
                    NextStep::Fail(error)
                }
            }
            ProviderError::Forbidden | ProviderError::Unavailable { status: 500 }
                if !is_probe && state.readiness.try_wait(now, window) =>
            {
                let status = if error == ProviderError::Forbidden {
                    403
                } else {
                    500
                };
                NextStep::Retry(self.timings.ready_delay, ProviderError::NotReady { status })
            }
            ProviderError::Unavailable { .. }
            | ProviderError::Unreachable(_)
            | ProviderError::Timeout
                if may_retry =>
            {
                NextStep::Retry(Duration::ZERO, error)
            }
            error => NextStep::Fail(error),
        }
    }

    /// Waits for the end of a pause that the provider has demanded.
    async fn wait_while_paused(&self, deadline: Instant) -> Result<(), ProviderError> {
        let paused_until = self.state.lock().paused_until;
        let now = Instant::now();
        let Some(until) = paused_until.filter(|until| *until > now) else {
            return Ok(());
        };
        let retry_after = until - now;
        if retry_after > self.timings.longest_wait || until >= deadline {
            return Err(ProviderError::RateLimited { retry_after });
        }
        sleep_until(until).await;
        Ok(())
    }

    fn acquire(&self) -> Result<PermitGuard<'_>, Duration> {
        let permit = self.state.lock().breaker.try_acquire(Instant::now())?;
        Ok(PermitGuard {
            resilience: self,
            permit,
            health: Health::Unknown,
        })
    }
}

/// Passes the result of a request to the circuit breaker, also if the request is cancelled.
struct PermitGuard<'a> {
    resilience: &'a Resilience,
    permit: CircuitPermit,
    health: Health,
}

impl Drop for PermitGuard<'_> {
    fn drop(&mut self) {
        let breaker = &mut self.resilience.state.lock().breaker;
        let now = Instant::now();
        match self.health {
            Health::Up => breaker.on_success(self.permit),
            Health::Unknown => breaker.on_cancel(self.permit, now),
            Health::Down => {
                if let Some(interval) = breaker.on_failure(self.permit, now) {
                    let provider = &self.resilience.provider;
                    tracing::warn!(provider, ?interval, "a provider failed repeatedly: pausing");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
