//! Decides what has to happen to the hosts of a pool, from its settings and its rows alone.
//!
//! Every host that is reserved for the pool and gets further sessions counts towards its size: one
//! that starts, is idle, is leased to a client or is recycled. Too few are added, those too many
//! given up. A host that has reached its age or number of leases does not count, so that its
//! replacement comes first.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    api::{
        ids::{BrowserId, HostId},
        viewport::Viewport,
    },
    control::{
        hosts::state::{RESTART_TIMEOUT, State},
        store::{HostMode, PoolBrowserRow, PoolBrowserState, PoolHost, PoolSummary},
    },
};

/// The share of the maximum age over which the replacements of hosts are spread, so that hosts that
/// started together are not replaced together.
const AGE_JITTER: f64 = 0.1;

/// The changes that the hosts of a pool need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Idle browsers whose hosts have lost them.
    pub(super) forget: Vec<BrowserId>,
    /// Idle browsers to end.
    pub(super) discard: Vec<Discard>,
    /// Ready hosts that the pool does not need.
    pub(super) unreserve: Vec<PoolHost>,
    /// Leased hosts that are to be replaced when their clients are done.
    pub(super) retire: Vec<PoolHost>,
    /// The number of browsers to start on ready hosts that are reserved for the pool.
    pub(super) adopt: usize,
    /// The number of browsers to start on further hosts.
    pub(super) add: usize,
}

/// An idle browser to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Discard {
    pub(super) id: BrowserId,
    /// Whether its host is replaced, too.
    pub(super) retires_host: bool,
}

/// Returns what has to happen. `browsers` were read before `hosts`.
pub(super) fn plan(
    pool: &PoolSummary,
    hosts: &[PoolHost],
    browsers: &[PoolBrowserRow],
    now: DateTime<Utc>,
) -> Plan {
    let with_session = hosts
        .iter()
        .filter_map(|host| Some((host.session.as_ref()?, host)));
    let reserved: HashMap<&BrowserId, &PoolHost> = with_session.collect();
    let mut ending = 0;
    let mut plan = Plan::default();
    let mut idle: Vec<(&PoolBrowserRow, &PoolHost)> = Vec::new();
    let mut waiting_for_host = 0;
    for browser in browsers {
        match (browser.state, reserved.get(&browser.id)) {
            (PoolBrowserState::Idle, Some(host)) if host.state == State::Leased => {
                idle.push((browser, host));
            }
            (PoolBrowserState::Idle, _) => plan.forget.push(browser.id.clone()),
            (PoolBrowserState::Filling, None) => waiting_for_host += 1,
            (PoolBrowserState::Discarding, Some(host)) => ending += usize::from(!host.is_draining),
            (PoolBrowserState::Filling | PoolBrowserState::Discarding, _) => {}
        }
    }
    let (outdated, current): (Vec<_>, Vec<_>) = idle
        .into_iter()
        // An agent that is to be started again waits for the end of its browser.
        .partition(|(browser, host)| !pool.is_current(browser) || host.is_restarting);
    plan.discard
        .extend(outdated.iter().map(|(browser, _)| Discard {
            id: browser.id.clone(),
            retires_host: false,
        }));
    let pooled: HashSet<&BrowserId> = browsers.iter().map(|browser| &browser.id).collect();
    let counted = plan.sort_hosts(pool, hosts, &pooled, now);
    plan.replace(pool, hosts, (&current, &pooled), now);
    plan.balance(pool, &counted, &current, (waiting_for_host, ending));
    plan
}

impl Plan {
    /// Returns the hosts that count towards the size of the pool. Gives up those of another mode or
    /// with too small a display, and has those retire that are leased and to be replaced.
    fn sort_hosts<'h>(
        &mut self,
        pool: &PoolSummary,
        hosts: &'h [PoolHost],
        pooled: &HashSet<&BrowserId>,
        now: DateTime<Utc>,
    ) -> Vec<&'h PoolHost> {
        let mut counted = Vec::new();
        for host in hosts {
            let is_pooled = host.session.as_ref().is_some_and(|id| pooled.contains(id));
            match host.state {
                State::Lost | State::Retiring | State::Gone => {}
                _ if host.is_draining => {}
                State::Starting
                    if host.session.is_none() && now - host.changed_at > RESTART_TIMEOUT => {}
                State::Ready if !suits(pool, host) => self.unreserve.push(host.clone()),
                State::Leased if !is_pooled && is_expiring(pool, host, now) => {
                    self.retire.push(host.clone());
                }
                // Replaced once there are enough others.
                State::Leased if is_expiring(pool, host, now) => {}
                _ => counted.push(host),
            }
        }
        counted
    }

    /// Ends idle browsers on hosts that are to be replaced or drained, if there are enough others:
    /// hosts of idle browsers that can be leased, and of clients. One whose browser still starts is
    /// no replacement yet.
    fn replace(
        &mut self,
        pool: &PoolSummary,
        hosts: &[PoolHost],
        (idle, pooled): (&[(&PoolBrowserRow, &PoolHost)], &HashSet<&BrowserId>),
        now: DateTime<Utc>,
    ) {
        let is_serving = |host: &&PoolHost| {
            host.state == State::Leased && !host.is_draining && !is_expiring(pool, host, now)
        };
        let idle_ids: HashSet<&HostId> = idle.iter().map(|(_, host)| &host.id).collect();
        let is_used = |host: &&PoolHost| {
            let session = host.session.as_ref();
            idle_ids.contains(&host.id) || session.is_some_and(|id| !pooled.contains(id))
        };
        let serving = hosts.iter().filter(is_serving).filter(is_used).count();
        if serving < pool.size as usize {
            return;
        }
        let is_replaced = |host: &PoolHost| host.is_draining || is_expiring(pool, host, now);
        let expiring = idle.iter().filter(|(_, host)| is_replaced(host));
        let discard: Vec<Discard> = expiring
            .map(|(browser, _)| Discard {
                id: browser.id.clone(),
                retires_host: true,
            })
            .collect();
        self.discard.extend(discard);
    }

    /// Adds hosts if there are too few, and gives some up if there are too many.
    fn balance(
        &mut self,
        pool: &PoolSummary,
        counted: &[&PoolHost],
        idle: &[(&PoolBrowserRow, &PoolHost)],
        (waiting_for_host, ending): (usize, usize),
    ) {
        let size = pool.size as usize;
        let in_state = |state| counted.iter().filter(move |host| host.state == state);
        let ready = in_state(State::Ready).count();
        // Browsers that start lease ready hosts first, which count already.
        let count = counted.len() + waiting_for_host.saturating_sub(ready);
        let mut surplus = count.saturating_sub(size);
        let unneeded: Vec<PoolHost> = in_state(State::Ready)
            .take(surplus)
            .map(|host| (*host).clone())
            .collect();
        surplus -= unneeded.len();
        self.adopt = (ready - unneeded.len()).saturating_sub(waiting_for_host);
        self.unreserve.extend(unneeded);
        // They are given up when they are ready.
        let starting = in_state(State::Starting).filter(|host| host.session.is_none());
        let unready = in_state(State::Recycling).count() + starting.count();
        surplus = surplus.saturating_sub(unready);
        surplus = surplus.saturating_sub(self.discard.len() + ending);
        let counted: HashSet<&HostId> = counted.iter().map(|host| &host.id).collect();
        let spare = idle.iter().filter(|(_, host)| counted.contains(&host.id));
        let discard: Vec<Discard> = spare
            .take(surplus)
            .map(|(browser, _)| Discard {
                id: browser.id.clone(),
                retires_host: false,
            })
            .collect();
        self.discard.extend(discard);
        self.add = size.saturating_sub(count);
    }
}

/// Returns whether a host is of the pool's mode, and has room for its viewport.
fn suits(pool: &PoolSummary, host: &PoolHost) -> bool {
    let has_room = |max: Option<u32>, side: u32| max.is_none_or(|max| side <= max);
    let (max_width, max_height) = host.max_viewport;
    host.mode == pool.mode
        && has_room(max_width, pool.viewport.width)
        && has_room(max_height, pool.viewport.height)
}

/// Returns whether a host has reached its age or number of leases.
fn is_expiring(pool: &PoolSummary, host: &PoolHost, now: DateTime<Utc>) -> bool {
    let is_old = pool.max_age_seconds.is_some_and(|seconds| {
        let share = 1.0 - AGE_JITTER * fraction(&host.id);
        let max_age = TimeDelta::milliseconds((f64::from(seconds) * share * 1000.0) as i64);
        now - host.created_at >= max_age
    });
    let is_used_up = pool
        .max_leases
        .is_some_and(|leases| host.lease_count >= leases.into());
    is_old || is_used_up
}

/// Returns a number from 0 to 1 that is always the same for a host.
fn fraction(id: &HostId) -> f64 {
    let sum = id.as_str().bytes().rev().take(4);
    let number = sum.fold(0_u32, |number, byte| number * 37 + u32::from(byte));
    f64::from(number % 1000) / 1000.0
}

/// The part of a pool that [`plan`] needs of one that is deleted: everything is given up.
pub(super) fn deleted(id: &crate::api::ids::PoolId) -> PoolSummary {
    PoolSummary {
        id: id.clone(),
        size: 0,
        fill_rate_per_minute: 0,
        max_age_seconds: None,
        max_leases: None,
        mode: HostMode {
            headless: false,
            kiosk_mode: false,
        },
        viewport: Viewport::default(),
        config_hash: String::new(),
        flush_count: 0,
        profile_version: None,
    }
}

#[cfg(test)]
mod tests;
