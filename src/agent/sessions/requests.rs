//! The requests of a session that are in progress.

use std::sync::Arc;

use parking_lot::Mutex;

/// A count of requests. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    count: usize,
    is_closed: bool,
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub struct RequestGuard(Requests);

impl Requests {
    /// Counts a request. Returns `None` if no further ones are accepted.
    #[must_use]
    pub fn begin(&self) -> Option<RequestGuard> {
        let mut state = self.0.lock();
        if state.is_closed {
            return None;
        }
        state.count += 1;
        Some(RequestGuard(self.clone()))
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().count
    }

    /// Accepts no further requests, if none is in progress. Returns whether that is so.
    #[must_use]
    pub fn close_if_none(&self) -> bool {
        let mut state = self.0.lock();
        state.is_closed = state.count == 0;
        state.is_closed
    }

    /// Accepts requests again.
    pub fn reopen(&self) {
        self.0.lock().is_closed = false;
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.lock().count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_only_after_the_last_one_has_ended() {
        let requests = Requests::default();
        let first = requests.begin().unwrap();
        assert!(!requests.close_if_none());
        let second = requests.begin().unwrap();
        assert_eq!(requests.count(), 2);
        drop((first, second));
        assert!(requests.close_if_none());
        assert!(requests.begin().is_none());
        assert_eq!(requests.count(), 0);
        requests.reopen();
        assert!(requests.begin().is_some());
    }
}
