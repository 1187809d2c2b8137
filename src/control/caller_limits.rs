//! Limits of each API key: requests per second, and open streams. Session tokens count for the key
//! that they were issued for.
//!
//! The state is in the memory of this process, so that each of several processes on one database
//! grants the limits.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{api::ids::KeyId, rate_limit::RateLimit};

/// The time by which the requests of a key may run ahead of its rate.
const BURST_WINDOW: Duration = Duration::from_secs(10);
/// The most keys with state, more than there can be connections. Beyond it, the rates of keys
/// without streams start anew.
const MAX_CALLERS: usize = 16_384;

/// The limits of each key.
#[derive(Debug, Clone, Copy)]
pub struct CallerQuota {
    pub requests_per_second: NonZeroU32,
    pub streams: usize,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallerLimitError {
    #[error("request rate limit of the API key exceeded ({0} per second)")]
    Requests(NonZeroU32),
    #[error("stream limit of the API key reached ({0})")]
    Streams(usize),
}

/// The requests and streams of all keys. Clones share them.
#[derive(Clone)]
pub struct CallerLimits {
    shared: Arc<Shared>,
}

struct Shared {
    quota: CallerQuota,
    callers: Mutex<HashMap<KeyId, Caller>>,
}

struct Caller {
    requests: RateLimit,
    streams: usize,
}

/// An open stream, until the last clone is dropped.
#[derive(Clone)]
pub struct StreamPermit {
    _stream: Arc<OpenStream>,
}

struct OpenStream {
    shared: Arc<Shared>,
    key: KeyId,
}

impl CallerLimits {
    pub fn new(quota: CallerQuota) -> CallerLimits {
        CallerLimits {
            shared: Arc::new(Shared {
                quota,
                callers: Mutex::default(),
            }),
        }
    }

    /// Counts a request of a key.
    pub fn count_request(&self, key: &KeyId) -> Result<(), CallerLimitError> {
        self.count_request_at(key, Instant::now())
    }

    fn count_request_at(&self, key: &KeyId, now: Instant) -> Result<(), CallerLimitError> {
        if self.with_caller(key, now, |caller| caller.requests.try_acquire(now)) {
            return Ok(());
        }
        metrics::counter!("berth_limit_refusals_total", "limit" => "requests").increment(1);
        let limit = self.shared.quota.requests_per_second;
        Err(CallerLimitError::Requests(limit))
    }

    /// Counts a stream of a key until the permit is dropped.
    pub fn open_stream(&self, key: &KeyId) -> Result<StreamPermit, CallerLimitError> {
        let limit = self.shared.quota.streams;
        let is_open = self.with_caller(key, Instant::now(), |caller| {
            let has_room = caller.streams < limit;
            caller.streams += usize::from(has_room);
            has_room
        });
        if !is_open {
            metrics::counter!("berth_limit_refusals_total", "limit" => "streams").increment(1);
            return Err(CallerLimitError::Streams(limit));
        }
        metrics::gauge!("berth_streams_open").increment(1.0);
        let stream = OpenStream {
            shared: self.shared.clone(),
            key: key.clone(),
        };
        Ok(StreamPermit {
            _stream: Arc::new(stream),
        })
    }

    fn with_caller<T>(&self, key: &KeyId, now: Instant, f: impl FnOnce(&mut Caller) -> T) -> T {
        let mut callers = self.shared.callers.lock();
        if let Some(caller) = callers.get_mut(key) {
            return f(caller);
        }
        if callers.len() >= MAX_CALLERS {
            callers.retain(|_, caller| caller.streams > 0 || !caller.requests.is_idle(now));
            // Keeps the next removal far enough away for its cost not to matter.
            if callers.len() > MAX_CALLERS / 2 {
                callers.retain(|_, caller| caller.streams > 0);
            }
        }
        let interval = Duration::from_secs(1) / self.shared.quota.requests_per_second.get();
        let caller = callers.entry(key.clone()).or_insert_with(|| Caller {
            requests: RateLimit::new(interval, BURST_WINDOW),
            streams: 0,
        });
        f(caller)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::gauge!("berth_streams_open").decrement(1.0);
        if let Some(caller) = self.shared.callers.lock().get_mut(&self.key) {
            caller.streams -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests_per_second: u32, streams: usize) -> CallerLimits {
        CallerLimits::new(CallerQuota {
            requests_per_second: NonZeroU32::new(requests_per_second).unwrap(),
            streams,
        })
    }

    #[test]
    fn requests_of_each_key_are_limited_on_their_own() {
        let limits = limits(5, 1);
        let (one, other) = (KeyId::generate(), KeyId::generate());
        let now = Instant::now();
        let accepted = |key: &KeyId, now: Instant| {
            let requests = (0..1000).filter(|_| limits.count_request_at(key, now).is_ok());
            requests.count()
        };
        assert_eq!(accepted(&one, now), 50);
        assert_eq!(accepted(&other, now), 50);
        assert_eq!(
            limits.count_request_at(&one, now),
            Err(CallerLimitError::Requests(NonZeroU32::new(5).unwrap()))
        );
        assert_eq!(accepted(&one, now + Duration::from_secs(1)), 5);
    }

    #[test]
    fn stream_is_released_once_with_its_last_clone() {
        let limits = limits(1, 2);
        let key = KeyId::generate();
        let first = limits.open_stream(&key).ok().unwrap();
        let second = limits.open_stream(&key).ok().unwrap();
        let clone = first.clone();
        drop(first);
        assert_eq!(
            limits.open_stream(&key).err(),
            Some(CallerLimitError::Streams(2))
        );
        limits.open_stream(&KeyId::generate()).ok().unwrap();
        drop(clone);
        let third = limits.open_stream(&key).ok().unwrap();
        assert!(limits.open_stream(&key).is_err());
        drop((second, third));
        assert_eq!(limits.shared.callers.lock()[&key].streams, 0);
    }

    #[test]
    fn streams_opened_by_many_threads_do_not_exceed_the_limit() {
        let limits = limits(1, 10);
        let key = KeyId::generate();
        let opened: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let opened = (0..100).filter_map(|_| limits.open_stream(&key).ok());
                        opened.collect::<Vec<_>>()
                    })
                })
                .collect();
            let permits: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            permits.iter().map(Vec::len).sum()
        });
        assert_eq!(opened, 10);
        assert_eq!(limits.shared.callers.lock()[&key].streams, 0);
    }

    #[test]
    fn number_of_keys_with_state_is_bounded_and_those_with_streams_stay() {
        let limits = limits(1, 1);
        let kept = KeyId::generate();
        let stream = limits.open_stream(&kept).ok().unwrap();
        for _ in 0..MAX_CALLERS + 10 {
            limits.count_request(&KeyId::generate()).unwrap();
        }
        assert!(limits.shared.callers.lock().len() <= MAX_CALLERS);
        assert!(limits.open_stream(&kept).is_err());
        drop(stream);
        limits.open_stream(&kept).ok().unwrap();
    }
}
