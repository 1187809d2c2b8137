//! The calls of a run, by session, and the conclusions from them.

use std::{collections::BTreeMap, time::Duration};

use super::{Run, ends_sessions, idle_after};
use crate::flows::system::history::{
    Call, Kill, Observation, Operation, Outcome, ProcessKind, TestProject, Time,
};

/// A session that a client knows.
pub(super) struct SessionHistory<'a> {
    pub(super) id: String,
    pub(super) project: TestProject,
    /// When its creation was requested.
    pub(super) invoked: Time,
    /// When its client first knew of it.
    pub(super) returned: Time,
    pub(super) idle_timeout: Duration,
    /// Whether its client left before the creation had a response, which ends the session.
    pub(super) is_abandoned: bool,
    /// The calls for it, by the time of their outcome.
    pub(super) calls: Vec<&'a Call>,
    /// The earliest time at which a kill could have ended it.
    pub(super) lost_from: Option<Time>,
    /// The earliest time at which something could have ended it.
    pub(super) may_end: Time,
    /// The earliest time at which it had certainly ended.
    pub(super) has_ended: Time,
}

impl SessionHistory<'_> {
    /// Returns the calls that read where the session runs.
    pub(super) fn observations(&self) -> Vec<(&Call, &Observation)> {
        let calls = self.calls.iter();
        calls
            .filter_map(|call| match &call.outcome {
                Outcome::Observed(observation) => Some((*call, observation)),
                _ => None,
            })
            .collect()
    }

    /// Returns the host that served the session, if it was observed.
    pub(super) fn host(&self) -> Option<&str> {
        let observations = self.observations();
        let (_, first) = observations.first()?;
        Some(&first.tenancy.host)
    }

    pub(super) fn exists_at(&self, at: Time) -> bool {
        self.returned <= at && at < self.may_end
    }

    /// Returns whether a client has requested the end of the session.
    pub(super) fn is_deleted_by_client(&self) -> bool {
        self.is_abandoned || self.calls.iter().any(|call| is_delete(call))
    }

    /// Returns whether a client knows that its request has ended the session.
    pub(super) fn is_deletion_confirmed(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| is_delete(call) && call.outcome == Outcome::Done)
    }

    /// Returns the time from which the session may be ended as idle.
    pub(super) fn idle_from(&self) -> Time {
        let uses = self.calls.iter().filter(|call| call.outcome.is_success());
        let last_use = uses.map(|call| call.invoked).max();
        idle_after(last_use.unwrap_or(self.invoked), self.idle_timeout)
    }
}

fn is_delete(call: &Call) -> bool {
    matches!(call.operation, Operation::Delete { .. })
}

impl Outcome {
    fn is_success(&self) -> bool {
        matches!(
            self,
            Outcome::Session(_) | Outcome::Done | Outcome::Observed(_)
        )
    }
}

/// Collects the sessions that clients know, by their ids.
pub(super) fn of(run: &Run) -> BTreeMap<String, SessionHistory<'_>> {
    let mut sessions = created(run);
    for call in &run.calls {
        let (Operation::Use { session }
        | Operation::Observe { session }
        | Operation::Fill { session, .. }
        | Operation::Delete { session }) = &call.operation
        else {
            continue;
        };
        let history = sessions.get_mut(session);
        history
            .expect("a client uses sessions that it knows")
            .calls
            .push(call);
    }
    for session in sessions.values_mut() {
        session.calls.sort_unstable_by_key(|call| call.returned);
        session.lost_from = lost_from(run, session);
        session.may_end = may_end(run, session);
        session.has_ended = has_ended(run, session);
    }
    sessions
}

fn created(run: &Run) -> BTreeMap<String, SessionHistory<'_>> {
    let mut creations = BTreeMap::new();
    let mut sessions = BTreeMap::new();
    for call in &run.calls {
        if let Operation::Create { name, idle_timeout } = &call.operation {
            creations.insert(name, (call, *idle_timeout));
        }
    }
    for call in &run.calls {
        let (Operation::Create { name, .. } | Operation::Find { name }) = &call.operation else {
            continue;
        };
        let (Outcome::Session(id), Some((creation, idle_timeout))) =
            (&call.outcome, creations.get(name))
        else {
            continue;
        };
        let session = sessions.entry(id.clone()).or_insert(SessionHistory {
            id: id.clone(),
            project: creation.project,
            invoked: creation.invoked,
            returned: call.returned,
            idle_timeout: *idle_timeout,
            is_abandoned: !matches!(creation.outcome, Outcome::Session(_)),
            calls: Vec::new(),
            lost_from: None,
            may_end: Time::MAX,
            has_ended: Time::MAX,
        });
        session.calls.push(call);
    }
    sessions
}

fn may_end(run: &Run, session: &SessionHistory<'_>) -> Time {
    let requests = session.calls.iter().filter(|call| is_delete(call));
    let requested = requests.map(|call| call.invoked).min();
    let abandoned = session.is_abandoned.then_some(session.invoked);
    let times = [requested, abandoned, session.lost_from];
    let earliest = times.into_iter().flatten().min();
    let others = session.idle_from().min(run.stopped);
    earliest.map_or(others, |earliest| earliest.min(others))
}

fn lost_from(run: &Run, session: &SessionHistory<'_>) -> Option<Time> {
    let kills = run.kills.iter().filter(|kill| ends_sessions(run, kill));
    let since = kills.filter(|kill| kill.done >= session.invoked);
    let killed = since.map(|kill| kill.sent);
    killed.chain(given_up(run, session)).min()
}

/// Returns when the agent of the session had been killed too often to be started again.
fn given_up(run: &Run, session: &SessionHistory<'_>) -> Option<Time> {
    let of_host =
        |kill: &&Kill| kill.kind == ProcessKind::Agent && kill.host.as_deref() == session.host();
    let kills = run.kills.iter().filter(of_host);
    kills.map(|kill| kill.sent).nth(run.rules.agent_restarts)
}

fn has_ended(run: &Run, session: &SessionHistory<'_>) -> Time {
    let confirmed = session.calls.iter().filter(|call| {
        call.outcome == Outcome::NotFound || (is_delete(call) && call.outcome == Outcome::Done)
    });
    let confirmed = confirmed.map(|call| call.returned);
    let existed = |kill: &&Kill| ends_sessions(run, kill) && kill.sent >= session.returned;
    let killed = run.kills.iter().filter(existed).map(|kill| kill.done);
    confirmed.chain(killed).min().unwrap_or(Time::MAX)
}
