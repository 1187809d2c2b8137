//! Whether a browser is in use, and since when it is not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Counts what is under way with one browser: requests until their answer's last byte, and upgraded connections.
#[derive(Debug)]
pub struct Activity {
    state: Mutex<State>,
    /// Told each time that nothing is under way any more.
    rested: Notify,
}

#[derive(Debug)]
struct State {
    under_way: usize,
    idle_since: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

impl Activity {
    /// Idle from now on.
    pub fn new() -> Self {
        let state = State {
            under_way: 0,
            idle_since: Instant::now(),
        };
        Self {
            state: Mutex::new(state),
            rested: Notify::new(),
        }
    }

    /// Something begins, and lasts until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> ActivityGuard {
        self.with(|state| state.under_way += 1);
        ActivityGuard(self.clone())
    }

    /// Something happened that takes no time: the idle time starts anew.
    pub fn touch(&self) {
        self.with(|state| state.idle_since = Instant::now());
    }

    /// How long nothing has been under way; `None` while something is.
    pub fn idle_for(&self) -> Option<Duration> {
        self.idle_at(Instant::now())
    }

    fn idle_at(&self, now: Instant) -> Option<Duration> {
        self.with(|state| {
            (state.under_way == 0).then(|| now.saturating_duration_since(state.idle_since))
        })
    }

    /// Resolves once nothing has been under way for `limit`.
    pub async fn idle_at_least(&self, limit: Duration) {
        loop {
            let rested = self.rested.notified();
            match self.with(|state| (state.under_way == 0).then_some(state.idle_since)) {
                // Something may begin and end meanwhile; then the time is counted from there.
                Some(since) if since.elapsed() < limit => sleep_until(since + limit).await,
                Some(_) => return,
                None => rested.await,
            }
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // Nothing in here can panic half-way, so a poisoned lock guards a sound state.
        f(&mut self.state.lock())
    }
}

/// Something that is under way; dropping it ends it.
#[derive(Debug)]
#[must_use = "it ends what has begun as soon as it is dropped"]
pub struct ActivityGuard(Arc<Activity>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let rested = self.0.with(|state| {
            state.under_way -= 1;
            state.idle_since = Instant::now();
            state.under_way == 0
        });
        if rested {
            self.0.rested.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Short, for the tests wait for it; nothing depends on how exactly it is kept.
    const LIMIT: Duration = Duration::from_millis(40);

    #[test]
    fn idle_time_counts_from_the_last_end() {
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
    async fn the_idle_end_comes_at_the_limit_and_not_before() {
        let activity = Arc::new(Activity::new());
        let start = activity.with(|state| state.idle_since);
        activity.idle_at_least(LIMIT).await;
        assert!(start.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn no_idle_end_while_something_is_under_way() {
        let activity = Arc::new(Activity::new());
        let guard = activity.begin();
        timeout(2 * LIMIT, activity.idle_at_least(LIMIT))
            .await
            .expect_err("it is in use");
        let waiting = wait_for_the_end(&activity);
        let released = Instant::now();
        drop(guard);
        waiting.await.unwrap();
        assert!(released.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn a_short_call_within_the_wait_starts_it_anew() {
        let activity = Arc::new(Activity::new());
        let mut end = wait_for_the_end(&activity);
        timeout(LIMIT / 4, &mut end)
            .await
            .expect_err("not yet idle");
        drop(activity.begin());
        let called = activity.with(|state| state.idle_since);
        end.await.unwrap();
        assert!(called.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn a_limit_that_has_passed_already_resolves_at_once() {
        let activity = Arc::new(Activity::new());
        timeout(Duration::ZERO, activity.idle_at_least(Duration::ZERO))
            .await
            .unwrap();
    }

    fn wait_for_the_end(activity: &Arc<Activity>) -> tokio::task::JoinHandle<()> {
        let activity = activity.clone();
        tokio::spawn(async move { activity.idle_at_least(LIMIT).await })
    }
}
