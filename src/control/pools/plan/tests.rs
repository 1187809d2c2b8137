//! Tests of the plan: single situations, and a model of a fleet that does what the plan says.

use proptest::prelude::*;

use super::*;
use crate::{
    api::ids::PoolId,
    control::{
        pools::config::PoolConfig,
        store::{ControlProcessId, PoolBrowserStart},
    },
};

const NO_PROCESS: Option<ControlProcessId> = None;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn pool(size: u32) -> PoolSummary {
    PoolSummary {
        id: PoolId::generate(),
        size,
        fill_rate_per_minute: 25,
        max_age_seconds: None,
        max_leases: None,
        mode: PoolConfig::sample().mode(),
        viewport: Viewport::default(),
        config_hash: "current".to_owned(),
        flush_count: 0,
        profile_version: None,
    }
}

fn host(state: State, session: Option<&BrowserId>) -> PoolHost {
    PoolHost {
        id: HostId::generate(),
        state,
        session: session.cloned(),
        mode: PoolConfig::sample().mode(),
        max_viewport: (None, None),
        is_draining: false,
        is_restarting: false,
        created_at: now(),
        changed_at: now(),
        lease_count: 0,
    }
}

fn browser(state: PoolBrowserState) -> PoolBrowserRow {
    PoolBrowserRow {
        id: BrowserId::generate(),
        pool: PoolId::generate(),
        state,
        start: PoolBrowserStart {
            config_hash: "current".to_owned(),
            flush_count: 0,
            profile_version: 0,
        },
        host: None,
        process: NO_PROCESS,
        changed_at: now(),
    }
}

/// Returns an idle browser with its host.
fn idle() -> (PoolBrowserRow, PoolHost) {
    let browser = browser(PoolBrowserState::Idle);
    let host = host(State::Leased, Some(&browser.id));
    (browser, host)
}

fn plan_of(pool: &PoolSummary, hosts: &[PoolHost], browsers: &[PoolBrowserRow]) -> Plan {
    plan(pool, hosts, browsers, now())
}

#[test]
fn missing_browsers_are_added_and_those_that_start_are_counted() {
    assert_eq!(plan_of(&pool(3), &[], &[]).add, 3);
    let (idle, idle_host) = idle();
    let filling = [
        browser(PoolBrowserState::Filling),
        browser(PoolBrowserState::Filling),
    ];
    let starting = host(State::Starting, Some(&filling[0].id));
    let client = host(State::Leased, Some(&BrowserId::generate()));
    let [first, second] = filling;
    let hosts = [idle_host, starting, client];
    let plan = plan_of(&pool(6), &hosts, &[idle, first, second]);
    // The idle one, the leased one, and two that start, of which one has a host already.
    let expected = Plan {
        add: 2,
        ..Plan::default()
    };
    assert_eq!(plan, expected);
}

#[test]
fn recycled_host_is_waited_for_and_adopted_when_it_is_ready() {
    let recycling = [host(State::Recycling, None)];
    assert_eq!(plan_of(&pool(1), &recycling, &[]), Plan::default());
    let ready = [host(State::Ready, None)];
    let expected = Plan {
        adopt: 1,
        ..Plan::default()
    };
    assert_eq!(plan_of(&pool(1), &ready, &[]), expected);
    // It is about to be leased, and counts once.
    let filling = [browser(PoolBrowserState::Filling)];
    assert_eq!(plan_of(&pool(1), &ready, &filling), Plan::default());
}

#[test]
fn surplus_is_given_up_where_nothing_is_lost() {
    let ready = host(State::Ready, None);
    let (browsers, hosts): (Vec<_>, Vec<_>) = [idle(), idle()].into_iter().unzip();
    let all = [hosts.clone(), vec![ready.clone()]].concat();
    let plan = plan_of(&pool(2), &all, &browsers);
    assert_eq!((plan.unreserve, plan.discard), (vec![ready], vec![]));
    let plan = plan_of(&pool(1), &hosts, &browsers);
    let discarded: Vec<_> = plan.discard.iter().map(|discard| &discard.id).collect();
    assert_eq!(discarded, [&browsers[0].id]);
    // One of them is already on its way.
    let all = [hosts, vec![host(State::Recycling, None)]].concat();
    assert_eq!(plan_of(&pool(2), &all, &browsers), Plan::default());
}

#[test]
fn browser_that_starts_is_counted_once() {
    let (idle, idle_host) = idle();
    let filling = browser(PoolBrowserState::Filling);
    let starting = host(State::Starting, Some(&filling.id));
    let plan = plan_of(&pool(2), &[idle_host, starting], &[idle, filling]);
    assert_eq!(plan, Plan::default());
}

#[test]
fn browsers_that_end_already_are_not_ended_again() {
    let mut browsers = Vec::new();
    let mut hosts = Vec::new();
    for state in [PoolBrowserState::Idle, PoolBrowserState::Discarding] {
        for _ in 0..2 {
            let browser = browser(state);
            hosts.push(host(State::Leased, Some(&browser.id)));
            browsers.push(browser);
        }
    }
    assert_eq!(plan_of(&pool(2), &hosts, &browsers), Plan::default());
}

#[test]
fn idle_browser_ends_for_the_restart_of_its_agent() {
    let (browser, mut host) = idle();
    host.is_restarting = true;
    let plan = plan_of(
        &pool(1),
        std::slice::from_ref(&host),
        std::slice::from_ref(&browser),
    );
    let discard = Discard {
        id: browser.id,
        retires_host: false,
    };
    // The host comes back: no other one is added.
    assert_eq!((plan.add, plan.discard), (0, vec![discard]));
}

#[test]
fn host_whose_agent_is_started_again_counts_for_a_while() {
    let (browser, other) = idle();
    let mut starting = host(State::Starting, None);
    let plan = |starting: &PoolHost, size| {
        plan_of(
            &pool(size),
            &[starting.clone(), other.clone()],
            std::slice::from_ref(&browser),
        )
    };
    // It is given up once it is ready, instead of a browser that can be leased.
    assert_eq!(plan(&starting, 1), Plan::default());
    assert_eq!(plan(&starting, 2), Plan::default());
    starting.changed_at = now() - RESTART_TIMEOUT - TimeDelta::seconds(1);
    assert_eq!(plan(&starting, 2).add, 1);
}

#[test]
fn idle_browser_of_a_drained_host_is_replaced_once_another_one_serves() {
    let (drained, mut drained_host) = idle();
    drained_host.is_draining = true;
    let alone = plan_of(
        &pool(1),
        std::slice::from_ref(&drained_host),
        std::slice::from_ref(&drained),
    );
    assert_eq!((alone.add, alone.discard), (1, vec![]));
    let (other, other_host) = idle();
    let plan = plan_of(
        &pool(1),
        &[drained_host, other_host],
        &[drained.clone(), other],
    );
    let expected = vec![Discard {
        id: drained.id,
        retires_host: true,
    }];
    assert_eq!((plan.add, plan.discard), (0, expected));
}

#[test]
fn leased_browsers_are_never_ended() {
    let leased: Vec<PoolHost> = (0..3)
        .map(|_| host(State::Leased, Some(&BrowserId::generate())))
        .collect();
    assert_eq!(plan_of(&pool(0), &leased, &[]), Plan::default());
}

#[test]
fn idle_browser_of_an_older_configuration_is_replaced() {
    let (mut browser, host) = idle();
    browser.start.config_hash = "older".to_owned();
    let plan = plan_of(&pool(1), &[host], std::slice::from_ref(&browser));
    let expected = Plan {
        discard: vec![Discard {
            id: browser.id,
            retires_host: false,
        }],
        ..Plan::default()
    };
    assert_eq!(plan, expected);
}

#[test]
fn idle_browser_of_an_older_flush_or_profile_version_is_replaced() {
    let (browser, host) = idle();
    let of_flush = PoolSummary {
        flush_count: 1,
        ..pool(1)
    };
    let of_version = |version| PoolSummary {
        profile_version: Some(version),
        ..pool(1)
    };
    for (pool, is_replaced) in [
        (of_flush, true),
        (of_version(1), true),
        (of_version(0), false),
        (pool(1), false),
    ] {
        let plan = plan_of(
            &pool,
            std::slice::from_ref(&host),
            std::slice::from_ref(&browser),
        );
        assert_eq!(!plan.discard.is_empty(), is_replaced, "{pool:?}");
    }
}

#[test]
fn ready_host_with_too_small_a_display_is_given_up() {
    let mut pool = pool(1);
    let mut small = host(State::Ready, None);
    small.max_viewport = (Some(pool.viewport.width), Some(pool.viewport.height));
    let plan = plan_of(&pool, std::slice::from_ref(&small), &[]);
    assert_eq!((plan.unreserve, plan.adopt, plan.add), (vec![], 1, 0));
    pool.viewport.height += 1;
    let plan = plan_of(&pool, std::slice::from_ref(&small), &[]);
    assert_eq!((plan.unreserve, plan.adopt, plan.add), (vec![small], 0, 1));
}

#[test]
fn ready_host_of_another_mode_is_given_up() {
    let mut other = host(State::Ready, None);
    other.mode.headless = false;
    let plan = plan_of(&pool(1), &[other.clone()], &[]);
    assert_eq!((plan.unreserve, plan.add), (vec![other], 1));
}

#[test]
fn idle_browser_whose_host_has_lost_it_is_removed() {
    let (browser, mut host) = idle();
    host.state = State::Lost;
    host.session = None;
    let plan = plan_of(&pool(1), &[host], std::slice::from_ref(&browser));
    assert_eq!((plan.forget, plan.add), (vec![browser.id], 1));
}

#[test]
fn old_host_is_replaced_once_another_one_serves() {
    let mut pool = pool(1);
    pool.max_age_seconds = Some(100);
    let (old, mut old_host) = idle();
    old_host.created_at = now() - TimeDelta::seconds(101);
    let alone = plan_of(&pool, &[old_host.clone()], std::slice::from_ref(&old));
    let expected = Plan {
        add: 1,
        ..Plan::default()
    };
    assert_eq!(alone, expected);
    let (new, new_host) = idle();
    let both = plan_of(&pool, &[old_host, new_host], &[old.clone(), new]);
    let expected = Plan {
        discard: vec![Discard {
            id: old.id,
            retires_host: true,
        }],
        ..Plan::default()
    };
    assert_eq!(both, expected);
}

#[test]
fn host_is_no_replacement_until_its_browser_can_be_leased() {
    let (drained, mut drained_host) = idle();
    drained_host.is_draining = true;
    for state in [PoolBrowserState::Filling, PoolBrowserState::Discarding] {
        let other = browser(state);
        let hosts = [drained_host.clone(), host(State::Leased, Some(&other.id))];
        let plan = plan_of(&pool(1), &hosts, &[drained.clone(), other]);
        assert_eq!(plan.discard, [], "{state:?}");
    }
    let client = host(State::Leased, Some(&BrowserId::generate()));
    let plan = plan_of(
        &pool(1),
        &[drained_host, client],
        std::slice::from_ref(&drained),
    );
    assert_eq!(plan.discard.len(), 1);
}

#[test]
fn leased_host_is_replaced_after_its_last_lease() {
    let mut pool = pool(1);
    pool.max_leases = Some(5);
    let mut leased = host(State::Leased, Some(&BrowserId::generate()));
    leased.lease_count = 4;
    assert_eq!(plan_of(&pool, &[leased.clone()], &[]), Plan::default());
    leased.lease_count = 5;
    let plan = plan_of(&pool, &[leased.clone()], &[]);
    assert_eq!((plan.retire, plan.add), (vec![leased.clone()], 1));
    leased.is_draining = true;
    let plan = plan_of(&pool, &[leased], &[]);
    assert_eq!((plan.retire, plan.add), (vec![], 1));
}

#[test]
fn ages_at_which_hosts_are_replaced_differ_by_up_to_a_tenth() {
    let mut pool = pool(1);
    pool.max_age_seconds = Some(1000);
    let host = |seconds| {
        let mut host = host(State::Leased, None);
        host.created_at = now() - TimeDelta::seconds(seconds);
        host
    };
    for _ in 0..100 {
        assert!(!is_expiring(&pool, &host(899), now()));
        assert!(is_expiring(&pool, &host(1000), now()));
    }
    let expiring = (0..1000).filter(|_| is_expiring(&pool, &host(950), now()));
    let count = expiring.count();
    assert!((300..700).contains(&count), "{count}");
}

/// An event beside the plan.
#[derive(Debug, Clone)]
enum Step {
    Pass,
    Acquire,
    Release,
    Recycled,
    Filled,
    Lost,
    Resize(u32),
    Reconfigure,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Pass),
        3 => Just(Step::Acquire),
        3 => Just(Step::Release),
        3 => Just(Step::Recycled),
        3 => Just(Step::Filled),
        1 => Just(Step::Lost),
        1 => (0_u32..6).prop_map(Step::Resize),
        1 => Just(Step::Reconfigure),
    ]
}

/// A fleet with room for any number of hosts, which does what the plan says.
#[derive(Default)]
struct Fleet {
    hosts: Vec<PoolHost>,
    browsers: Vec<PoolBrowserRow>,
}

impl Fleet {
    fn pass(&mut self, pool: &PoolSummary) -> Plan {
        let plan = plan_of(pool, &self.hosts, &self.browsers);
        let is_removed = |id: &BrowserId| plan.forget.contains(id);
        self.browsers.retain(|browser| !is_removed(&browser.id));
        for discard in &plan.discard {
            self.browsers.retain(|browser| browser.id != discard.id);
            let is_its = |host: &&mut PoolHost| host.session.as_ref() == Some(&discard.id);
            let host = self.hosts.iter_mut().find(is_its).unwrap();
            host.session = None;
            host.state = State::Recycling;
        }
        let is_unreserved =
            |host: &PoolHost| plan.unreserve.iter().any(|other| other.id == host.id);
        self.hosts.retain(|host| !is_unreserved(host));
        for _ in 0..plan.adopt + plan.add {
            self.browsers.push(browser(PoolBrowserState::Filling));
        }
        plan
    }

    /// Gives a browser that starts a host, and makes it idle.
    fn fill(&mut self, pool: &PoolSummary) {
        let is_filling = |browser: &&mut PoolBrowserRow| browser.state == PoolBrowserState::Filling;
        let Some(browser) = self.browsers.iter_mut().find(is_filling) else {
            return;
        };
        browser.state = PoolBrowserState::Idle;
        browser.start.config_hash = pool.config_hash.clone();
        let is_ready = |host: &&mut PoolHost| host.state == State::Ready;
        match self.hosts.iter_mut().find(is_ready) {
            Some(host) => {
                host.state = State::Leased;
                host.session = Some(browser.id.clone());
            }
            None => self.hosts.push(host(State::Leased, Some(&browser.id))),
        }
    }

    fn apply(&mut self, step: Step, pool: &mut PoolSummary) {
        match step {
            Step::Pass => {
                self.pass(pool);
            }
            Step::Acquire => {
                let is_idle = |browser: &PoolBrowserRow| {
                    browser.state == PoolBrowserState::Idle && pool.is_current(browser)
                };
                if let Some(index) = self.browsers.iter().position(is_idle) {
                    let leased = self.browsers.remove(index);
                    let its = |host: &&mut PoolHost| host.session.as_ref() == Some(&leased.id);
                    if let Some(host) = self.hosts.iter_mut().find(its) {
                        host.session = Some(BrowserId::generate());
                        host.lease_count += 1;
                    }
                }
            }
            Step::Release => {
                let pooled = self.browsers.iter().map(|browser| &browser.id);
                let pooled: HashSet<&BrowserId> = pooled.collect();
                let is_clients = |host: &&mut PoolHost| {
                    let session = host.session.as_ref();
                    session.is_some_and(|session| !pooled.contains(session))
                };
                if let Some(host) = self.hosts.iter_mut().find(is_clients) {
                    host.session = None;
                    host.state = State::Recycling;
                }
            }
            Step::Recycled => {
                let is_recycling = |host: &&mut PoolHost| host.state == State::Recycling;
                if let Some(host) = self.hosts.iter_mut().find(is_recycling) {
                    host.state = State::Ready;
                }
            }
            Step::Filled => self.fill(pool),
            Step::Lost => {
                if let Some(host) = self.hosts.first_mut() {
                    host.state = State::Lost;
                    host.session = None;
                }
            }
            Step::Resize(size) => pool.size = size,
            Step::Reconfigure => pool.config_hash.push('+'),
        }
    }

    /// Lets everything that is in progress end, and clients release what they have.
    fn settle(&mut self, pool: &mut PoolSummary) {
        for _ in 0..50 {
            for step in [Step::Release, Step::Recycled, Step::Filled, Step::Pass] {
                self.apply(step, pool);
            }
        }
    }
}

proptest! {
    #[test]
    fn pool_settles_at_its_size_after_any_steps(steps in proptest::collection::vec(step(), 0..60)) {
        let mut pool = pool(3);
        let mut fleet = Fleet::default();
        for step in steps {
            fleet.apply(step, &mut pool);
            let leased = |host: &&PoolHost| host.session.is_some();
            prop_assert!(fleet.hosts.iter().filter(leased).count() <= 64);
        }
        fleet.settle(&mut pool);
        prop_assert_eq!(fleet.pass(&pool), Plan::default());
        let is_current = |browser: &&PoolBrowserRow| {
            browser.state == PoolBrowserState::Idle && pool.is_current(browser)
        };
        prop_assert_eq!(fleet.browsers.iter().filter(is_current).count(), pool.size as usize);
        prop_assert_eq!(fleet.browsers.len(), pool.size as usize);
    }

    #[test]
    fn pool_never_adds_beyond_its_size(steps in proptest::collection::vec(step(), 0..60)) {
        let mut pool = pool(3);
        let mut fleet = Fleet::default();
        for step in steps {
            fleet.apply(step, &mut pool);
            let plan = plan_of(&pool, &fleet.hosts, &fleet.browsers);
            let counted = fleet.hosts.iter().filter(|host| host.state != State::Lost);
            if plan.add > 0 {
                prop_assert!(counted.count() + plan.add <= pool.size as usize);
            }
        }
    }
}
