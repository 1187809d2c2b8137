//! The activity of a browser: whether it is in use, and how long it has been idle.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Counts the operations in progress with one browser: requests until the last byte of their
/// response, and upgraded connections.
#[derive(Debug)]
pub struct Activity {
    state: Mutex<State>,
    /// Notified whenever the last operation ends.
    became_idle: Notify,
}

#[derive(Debug)]
struct State {
    in_progress: usize,
    idle_since: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

impl Activity {
    /// Returns the activity of a browser that is idle from now on.
    pub fn new() -> Self {
        let state = State {
            in_progress: 0,
            idle_since: Instant::now(),
        };
        Self {
            state: Mutex::new(state),
            became_idle: Notify::new(),
        }
    }

    /// Returns the activity of a browser that has been idle for some time, at most since the
    /// machine was booted.
    pub fn idle_since(idle: Duration) -> Self {
        let activity = Self::new();
        activity.with(|state| {
            state.idle_since = state
                .idle_since
                .checked_sub(idle)
                .unwrap_or(state.idle_since);
        });
        activity
    }

    /// Notes a use at some time, unless there was a later one.
    pub fn touch_at(&self, time: Instant) {
        self.with(|state| state.idle_since = state.idle_since.max(time));
    }

    /// Starts an operation that lasts until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> ActivityGuard {
        self.with(|state| state.in_progress += 1);
        ActivityGuard(self.clone())
    }

    /// Restarts the idle time.
    pub fn touch(&self) {
        self.with(|state| state.idle_since = Instant::now());
    }

    /// Returns how long the browser has been idle, or `None` while it is in use.
    pub fn idle_for(&self) -> Option<Duration> {
        self.idle_at(Instant::now())
    }

    fn idle_at(&self, now: Instant) -> Option<Duration> {
        self.with(|state| {
            (state.in_progress == 0).then(|| now.saturating_duration_since(state.idle_since))
        })
    }

    /// Resolves when the browser has been idle for `limit`.
    pub async fn idle_at_least(&self, limit: Duration) {
        loop {
            let became_idle = self.became_idle.notified();
            match self.with(|state| (state.in_progress == 0).then_some(state.idle_since)) {
                // An operation may start and end meanwhile, so the state is checked again.
                Some(since) if since.elapsed() < limit => sleep_until(since + limit).await,
                Some(_) => return,
                None => became_idle.await,
            }
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock())
    }
}

/// An operation in progress. Dropping the guard ends it.
#[derive(Debug)]
#[must_use = "dropping the guard ends the operation"]
pub struct ActivityGuard(Arc<Activity>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let is_idle = self.0.with(|state| {
            state.in_progress -= 1;
            state.idle_since = Instant::now();
            state.in_progress == 0
        });
        if is_idle {
            self.0.became_idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{task::yield_now, time::timeout};

    use super::*;

    /// Short, because the tests wait for it. No test depends on its precision.
    const LIMIT: Duration = Duration::from_millis(40);

    #[test]
    fn idle_time_starts_with_the_end_of_the_last_operation() {
        let activity = Arc::new(Activity::new());
        let second = Duration::from_secs(1);
        let start = activity.with(|state| state.idle_since);
        assert_eq!(activity.idle_at(start + 5 * second), Some(5 * second));

        let first = activity.begin();
        let other = activity.begin();
        drop(first);
        assert_eq!(activity.idle_for(), None);
        drop(other);
        let end = activity.with(|state| state.idle_since);
        assert!(end >= start);
        assert_eq!(activity.idle_at(end + 3 * second), Some(3 * second));
        activity.touch();
        assert!(activity.idle_at(end + 3 * second) <= Some(3 * second));
    }

    #[tokio::test]
    async fn idle_wait_resolves_at_the_limit_and_not_before() {
        let activity = Arc::new(Activity::new());
        let start = activity.with(|state| state.idle_since);
        activity.idle_at_least(LIMIT).await;
        assert!(start.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn idle_wait_does_not_resolve_while_in_use() {
        let activity = Arc::new(Activity::new());
        let guard = activity.begin();
        timeout(2 * LIMIT, activity.idle_at_least(LIMIT))
            .await
            .expect_err("in use");
        let waiting = spawn_idle_wait(&activity);
        let released = Instant::now();
        drop(guard);
        waiting.await.unwrap();
        assert!(released.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn short_operation_restarts_the_idle_time() {
        loop {
            let activity = Arc::new(Activity::new());
            let waiting = spawn_idle_wait(&activity);
            yield_now().await;
            drop(activity.begin());
            let called = activity.with(|state| state.idle_since);
            let resolved = waiting.await.unwrap();
            // On a slow machine the wait may have ended before the operation.
            if resolved > called {
                assert!(resolved >= called + LIMIT);
                return;
            }
        }
    }

    #[tokio::test]
    async fn idle_wait_resolves_at_once_if_the_limit_has_passed() {
        let activity = Arc::new(Activity::new());
        timeout(Duration::ZERO, activity.idle_at_least(Duration::ZERO))
            .await
            .unwrap();
    }

    /// Waits in a task, which returns when the wait has ended.
    fn spawn_idle_wait(activity: &Arc<Activity>) -> tokio::task::JoinHandle<Instant> {
        let activity = activity.clone();
        tokio::spawn(async move {
            activity.idle_at_least(LIMIT).await;
            Instant::now()
        })
    }
}
