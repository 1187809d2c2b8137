//! The task that gives each pool as many browsers as it is to have.
//!
//! The process that leads runs it. What it does follows from the rows, so that another process
//! continues at any time; only the fill rates and the delays after failures are in memory.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use super::{
    Pools,
    fill::FillError,
    fill_rate::FillRate,
    plan::{Plan, deleted, plan},
    start_delay::{StartDelay, StartKind},
};
use crate::{
    api::ids::{BrowserId, PoolId},
    control::{
        processes::Leadership,
        store::{
            ControlProcessId, Fleet, PoolBrowserRow, PoolBrowserState, PoolRow, PoolSummary,
            PoolsOverview, StoreError,
        },
    },
};

/// Between two passes, unless a change is known earlier.
const PASS_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest delay of a pass after a change, in which others join it.
const HINT_DELAY: Duration = Duration::from_millis(10);
/// The delay of a pass after a change, as a multiple of the time in which the pass before has read
/// all pools. Passes after every lease would keep the database busy.
const HINT_DELAY_FACTOR: u32 = 2;
/// Between two records of the hosts that a pool lacks: an autoscaler counts each one once.
const DEMAND_INTERVAL: Duration = Duration::from_secs(5);
/// The most browsers that are started on registered hosts at once.
const MAX_REGISTERED_FILLS: usize = 32;
/// The time after which the end of a browser is tried again, whichever process has failed.
const DISCARD_TIMEOUT: TimeDelta = TimeDelta::minutes(2);
/// The time after which a start counts as failed, although its process runs: longer than any takes.
const FILL_TIMEOUT: TimeDelta = TimeDelta::minutes(10);

/// The memory of the reconciler about a pool.
struct FillState {
    rate: FillRate,
    /// The delays of starts on further hosts.
    add: StartDelay,
    /// The delays of starts on hosts that are reserved already. A lack of further hosts does not
    /// hold them up.
    adopt: StartDelay,
    demand_recorded_at: Option<Instant>,
}

impl FillState {
    fn new(now: Instant) -> FillState {
        FillState {
            rate: FillRate::new(now),
            add: StartDelay::default(),
            adopt: StartDelay::default(),
            demand_recorded_at: None,
        }
    }

    /// Returns how many browsers to start now of those to adopt and to add.
    fn take(
        &mut self,
        pool: &PoolSummary,
        (adopt, add): (usize, usize),
        permits: usize,
        now: Instant,
    ) -> (usize, usize) {
        let adopt = match self.adopt.is_over(now) {
            true => adopt,
            false => 0,
        };
        let added = match self.add.is_over(now) {
            true => {
                let add = add.min(permits.saturating_sub(adopt));
                self.rate
                    .take(add, pool.size, pool.fill_rate_per_minute, now)
            }
            false => 0,
        };
        (adopt, added)
    }

    fn delay(&mut self, kind: StartKind) -> &mut StartDelay {
        match kind {
            StartKind::Add => &mut self.add,
            StartKind::Adopt => &mut self.adopt,
        }
    }
}

/// The reconciler, as far as its tasks use it.
#[derive(Clone)]
struct Reconciler {
    pools: Pools,
    states: Arc<Mutex<HashMap<PoolId, FillState>>>,
    /// Has a permit for each browser that may start.
    starts: Arc<Semaphore>,
    /// The processes that ran in the pass before.
    last_live: Arc<Mutex<HashSet<ControlProcessId>>>,
    /// Whether the pass before has found nothing, so that there is nothing before there is a pool.
    was_empty: Arc<AtomicBool>,
}

impl Pools {
    /// Fills pools, whenever this process leads, until shutdown.
    pub async fn reconcile(self, leadership: Leadership) {
        let max_starts = match self.inner.hosts.fleet() {
            Fleet::Local => available_parallelism().map_or(1, usize::from),
            Fleet::Registered => MAX_REGISTERED_FILLS,
        };
        let shutdown = self.inner.shutdown.clone();
        let hosts = self.inner.hosts.clone();
        let reconciler = Reconciler {
            starts: Arc::new(Semaphore::new(max_starts)),
            states: Arc::default(),
            last_live: Arc::default(),
            was_empty: Arc::default(),
            pools: self,
        };
        loop {
            let host_changed = hosts.changed().notified();
            tokio::pin!(host_changed);
            host_changed.as_mut().enable();
            let mut reading = Duration::ZERO;
            if leadership.leads() {
                if let Err(error) = reconciler.pass(&mut reading).await {
                    tracing::error!(%error, "cannot fill pools");
                }
            } else {
                reconciler.states.lock().clear();
                reconciler.was_empty.store(false, Ordering::Relaxed);
            }
            let delay = hint_delay(reading);
            tokio::select! {
                () = reconciler.pools.inner.changed.notified() => {}
                () = host_changed => {}
                () = sleep(PASS_INTERVAL) => continue,
                () = shutdown.requested() => return,
            }
            if !shutdown.sleep(delay).await {
                return;
            }
        }
    }
}

impl Reconciler {
    /// Gives each pool what it lacks. Sets `reading` to the time in which all pools were read.
    async fn pass(&self, reading: &mut Duration) -> Result<(), StoreError> {
        let store = &self.pools.inner.store;
        if self.was_empty.load(Ordering::Relaxed) && !store.has_pools().await? {
            return Ok(());
        }
        let started = Instant::now();
        let overview = store.pools_overview().await;
        *reading = started.elapsed();
        let overview = overview?;
        self.was_empty.store(overview.is_empty(), Ordering::Relaxed);
        self.finish_abandoned(&overview).await?;
        let PoolsOverview {
            mut pools,
            hosts,
            browsers,
            waited_for,
        } = overview;
        let known: HashSet<PoolId> = pools.iter().map(|pool| pool.id.clone()).collect();
        self.states.lock().retain(|id, _| known.contains(id));
        let with_rows: HashSet<&PoolId> = hosts.keys().chain(browsers.keys()).collect();
        pools.extend(
            with_rows
                .into_iter()
                .filter(|id| !known.contains(id))
                .map(deleted),
        );
        // Those that clients wait for are filled first.
        pools.sort_by_key(|pool| !waited_for.contains(&pool.id));
        let now = Utc::now();
        for pool in &pools {
            let hosts = hosts.get(&pool.id).map_or(&[][..], Vec::as_slice);
            let browsers = browsers.get(&pool.id).map_or(&[][..], Vec::as_slice);
            let plan = plan(pool, hosts, browsers, now);
            if plan != Plan::default() {
                self.execute(pool, plan).await?;
            }
        }
        Ok(())
    }

    async fn execute(&self, pool: &PoolSummary, plan: Plan) -> Result<(), StoreError> {
        let inner = &self.pools.inner;
        for id in &plan.forget {
            inner.store.remove_pool_browser(id).await?;
        }
        for discard in &plan.discard {
            let discarding =
                inner
                    .store
                    .discard_pool_browsers(&pool.id, Some(&discard.id), Utc::now());
            // Empty if a client has it now.
            let discarded = discarding.await?;
            self.pools.end_discarded(discarded, discard.retires_host);
        }
        for host in &plan.unreserve {
            inner.hosts.unreserve(host, &pool.id).await?;
        }
        for host in &plan.retire {
            if let Some(session) = &host.session {
                inner.hosts.retire_after_session(&host.id, session).await?;
            }
        }
        if plan.adopt + plan.add > 0 {
            self.start(pool, plan.adopt, plan.add).await?;
        }
        Ok(())
    }

    /// Starts browsers: on hosts that are reserved already, and on further ones at the pool's rate.
    async fn start(&self, pool: &PoolSummary, adopt: usize, add: usize) -> Result<(), StoreError> {
        let (adopt, count) = {
            let now = Instant::now();
            let mut states = self.states.lock();
            let state = states
                .entry(pool.id.clone())
                .or_insert_with(|| FillState::new(now));
            let permits = self.starts.available_permits();
            let (adopt, added) = state.take(pool, (adopt, add), permits, now);
            (adopt, adopt + added)
        };
        if count == 0 {
            return Ok(());
        }
        let Some(row) = self.pools.inner.store.find_any_pool(&pool.id).await? else {
            return Ok(());
        };
        let row = Arc::new(row);
        let permit = |_| self.starts.clone().try_acquire_owned().ok();
        let permits: Vec<_> = (0..count).map_while(permit).collect();
        let not_started = count - permits.len().max(adopt);
        self.with_state(&pool.id, |state| state.rate.give_back(not_started));
        // Before the next pass, which counts them.
        let ids = match self.pools.begin_fills(&row, permits.len()).await {
            Ok(ids) => ids,
            Err(error) => {
                let added = permits.len().saturating_sub(adopt);
                self.with_state(&pool.id, |state| state.rate.give_back(added));
                return Err(error);
            }
        };
        for (index, (id, permit)) in ids.into_iter().zip(permits).enumerate() {
            let (this, row) = (self.clone(), row.clone());
            let kind = match index < adopt {
                true => StartKind::Adopt,
                false => StartKind::Add,
            };
            self.pools.inner.shutdown.spawn(async move {
                this.start_one(&id, &row, kind, add).await;
                drop(permit);
                this.pools.inner.changed.notify_one();
            });
        }
        Ok(())
    }

    async fn start_one(&self, id: &BrowserId, pool: &PoolRow, kind: StartKind, missing: usize) {
        let filled = self.pools.fill(id, pool).await;
        let now = Instant::now();
        match filled {
            Ok(()) => {
                metrics::counter!("berth_pool_fills_total").increment(1);
                self.with_state(&pool.id, |state| *state.delay(kind) = StartDelay::default());
            }
            Err(FillError::ShuttingDown) => {}
            Err(FillError::NoHost) => {
                let mut is_due = false;
                self.with_state(&pool.id, |state| {
                    state.delay(kind).no_host(now);
                    if kind == StartKind::Add {
                        state.rate.give_back(1);
                    }
                    is_due = state
                        .demand_recorded_at
                        .is_none_or(|at| now.duration_since(at) >= DEMAND_INTERVAL);
                    if is_due {
                        state.demand_recorded_at = Some(now);
                    }
                });
                if is_due && self.pools.inner.hosts.fleet() == Fleet::Registered {
                    let launch = pool.settings.config.launch_options();
                    self.pools.inner.hosts.record_demand(&launch, missing);
                }
            }
            Err(error) => {
                metrics::counter!("berth_pool_fill_failures_total").increment(1);
                tracing::error!(pool = %pool.id, %error, "cannot start a browser of a pool");
                self.with_state(&pool.id, |state| {
                    if kind == StartKind::Add {
                        state.rate.give_back(1);
                    }
                    state.delay(kind).failed(now);
                });
            }
        }
    }

    fn with_state(&self, pool: &PoolId, change: impl FnOnce(&mut FillState)) {
        if let Some(state) = self.states.lock().get_mut(pool) {
            change(state);
        }
    }

    /// Ends the browsers whose processes will not finish their start or their end, because they
    /// have died or failed. Removes the tickets of clients of processes that died.
    async fn finish_abandoned(&self, overview: &PoolsOverview) -> Result<(), StoreError> {
        let inner = &self.pools.inner;
        let now = Utc::now();
        let is_unfinished = |browser: &&PoolBrowserRow| match browser.state {
            PoolBrowserState::Idle => false,
            PoolBrowserState::Filling | PoolBrowserState::Discarding => {
                browser.process != inner.store.process() || is_overdue(browser, now)
            }
        };
        let is_discarded_here = |browser: &&PoolBrowserRow| inner.discards.contains(&browser.id);
        let unfinished: Vec<&PoolBrowserRow> = overview
            .browsers
            .values()
            .flatten()
            .filter(is_unfinished)
            .filter(|browser| !is_discarded_here(browser))
            .collect();
        if unfinished.is_empty() && overview.waited_for.is_empty() {
            return Ok(());
        }
        let running = inner.store.live_processes().await?;
        // Otherwise the locks of this process are lost, as perhaps those of the others.
        if !inner
            .store
            .process()
            .is_some_and(|own| running.contains(&own))
        {
            return Ok(());
        }
        // One that acquires its locks again is missing in a pass or two.
        let before = std::mem::replace(&mut *self.last_live.lock(), running.clone());
        let live: HashSet<ControlProcessId> = running.union(&before).copied().collect();
        for pool in inner.store.remove_lost_waiters(&live).await? {
            inner.queue.serve(&pool);
        }
        for browser in unfinished {
            if is_abandoned(browser, &live, now)
                && inner.store.adopt_pool_browser(browser, now).await?
            {
                tracing::info!(browser = %browser.id, "ends an abandoned browser of a pool");
                self.pools.end_discarded(vec![browser.clone()], false);
            }
        }
        Ok(())
    }
}

/// Returns the delay of a pass after a change, if the pass before has read for so long.
fn hint_delay(reading: Duration) -> Duration {
    (reading * HINT_DELAY_FACTOR).clamp(HINT_DELAY, PASS_INTERVAL)
}

/// Returns whether a browser that starts or ends should have done so by now.
fn is_overdue(browser: &PoolBrowserRow, now: DateTime<Utc>) -> bool {
    let timeout = match browser.state {
        PoolBrowserState::Idle => return false,
        PoolBrowserState::Filling => FILL_TIMEOUT,
        PoolBrowserState::Discarding => DISCARD_TIMEOUT,
    };
    now - browser.changed_at > timeout
}

/// Returns whether the process that starts or ends a browser will not finish that: it has died, or
/// has failed. A process that does not lead does not try again.
fn is_abandoned(
    browser: &PoolBrowserRow,
    live: &HashSet<ControlProcessId>,
    now: DateTime<Utc>,
) -> bool {
    let has_died = browser
        .process
        .is_none_or(|process| !live.contains(&process));
    has_died || is_overdue(browser, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::store::PoolBrowserStart;

    fn changed_ago(state: PoolBrowserState, age: TimeDelta) -> PoolBrowserRow {
        PoolBrowserRow {
            id: BrowserId::generate(),
            pool: PoolId::generate(),
            state,
            start: PoolBrowserStart {
                config_hash: String::new(),
                flush_count: 0,
                profile_version: 0,
            },
            host: None,
            process: Some(ControlProcessId::sample(2)),
            changed_at: DateTime::UNIX_EPOCH - age,
        }
    }

    #[test]
    fn passes_that_read_longer_are_further_apart() {
        for (reading, delay) in [(0, 10), (5, 10), (50, 100), (800, 1000)] {
            let delay = Duration::from_millis(delay);
            assert_eq!(hint_delay(Duration::from_millis(reading)), delay);
        }
    }

    #[test]
    fn lack_of_further_hosts_does_not_hold_up_reserved_ones() {
        let pool = PoolSummary {
            size: 10,
            fill_rate_per_minute: 10_000,
            ..deleted(&PoolId::generate())
        };
        let now = Instant::now();
        let mut state = FillState::new(now);
        assert_eq!(state.take(&pool, (2, 3), 32, now), (2, 3));
        state.delay(StartKind::Add).no_host(now);
        assert_eq!(state.take(&pool, (2, 3), 32, now), (2, 0));
        state.delay(StartKind::Add).failed(now);
        assert_eq!(state.take(&pool, (2, 3), 32, now), (2, 0));
        state.delay(StartKind::Adopt).failed(now);
        assert_eq!(state.take(&pool, (2, 3), 32, now), (0, 0));
        let later = now + Duration::from_secs(60);
        assert_eq!(state.take(&pool, (2, 3), 32, later), (2, 3));
    }

    #[test]
    fn browser_of_a_live_process_is_abandoned_after_its_timeout() {
        let now = DateTime::UNIX_EPOCH;
        let live = HashSet::from([ControlProcessId::sample(2)]);
        let second = TimeDelta::seconds(1);
        for (state, timeout) in [
            (PoolBrowserState::Filling, FILL_TIMEOUT),
            (PoolBrowserState::Discarding, DISCARD_TIMEOUT),
        ] {
            let recent = changed_ago(state, timeout - second);
            assert!(!is_abandoned(&recent, &live, now), "{state:?}");
            let late = changed_ago(state, timeout + second);
            assert!(is_abandoned(&late, &live, now), "{state:?}");
            // Without its process, at once.
            assert!(is_abandoned(&recent, &HashSet::new(), now), "{state:?}");
        }
    }
}
