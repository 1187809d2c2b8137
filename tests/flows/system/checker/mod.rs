//! Decides whether the history of a run and the records in the database agree. Pure.
//!
//! Only definite outcomes count. A session certainly exists from the time at which its client knew
//! of it until the earliest time at which something could have ended it: a request to delete it, a
//! kill that ends sessions, its idle timeout, or the end of the run. Between the two a client must
//! find it, and after a certain end nothing may.

mod fills;
mod records;
mod sessions;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use self::sessions::SessionHistory;
use super::history::{
    Call, DeliveredValue, Delivery, Kill, Operation, Outcome, ProcessKind, Tenancy, TestProject,
    Time,
};

/// The largest difference between the monotonic clock and the wall clock, which the records have.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A run: the knowledge of its clients, and the database after it.
#[derive(Clone, Debug)]
pub struct Run {
    pub calls: Vec<Call>,
    pub kills: Vec<Kill>,
    /// When control was requested to stop, which ends all sessions.
    pub stopped: Time,
    /// The control processes that were requested to stop. All others were killed.
    pub stopped_processes: BTreeSet<usize>,
    /// The values that pages have received, each event once.
    pub deliveries: Vec<Delivery>,
    pub records: Vec<SessionRecord>,
    /// The ids of the successful requests to fill a page in the audit log.
    pub audited_fills: BTreeSet<String>,
    pub rules: Rules,
}

/// Facts about the installation.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The most sessions of the default project at once.
    pub max_sessions: usize,
    /// The most sessions of the other project at once.
    pub other_max_sessions: usize,
    /// Whether the sessions end with the control process.
    pub sessions_end_with_control: bool,
    /// The kills of its agent that a host survives.
    pub agent_restarts: usize,
}

impl Rules {
    fn max_sessions_of(&self, project: TestProject) -> usize {
        match project {
            TestProject::Default => self.max_sessions,
            TestProject::Other => self.other_max_sessions,
        }
    }
}

/// The record of a session in the database.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub id: String,
    pub name: Option<String>,
    pub project: TestProject,
    pub state: String,
    pub end_reason: Option<String>,
    /// When it ended, by the wall clock.
    pub ended: Option<Time>,
    pub tenancy: Option<Tenancy>,
}

/// A contradiction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("{tenancy:?} served {sessions:?}")]
    DoubleLease {
        tenancy: Tenancy,
        sessions: BTreeSet<String>,
    },
    #[error("host {host} served {sessions:?} at the same time")]
    Overlap { host: String, sessions: [String; 2] },
    #[error("{session} was served by {tenancies:?}")]
    SeveralTenancies {
        session: String,
        tenancies: BTreeSet<Tenancy>,
    },
    #[error("{session} was not found at {at:?}, and nothing had ended it")]
    Lost { session: String, at: Time },
    #[error("{session} was not listed at {at:?}, and nothing had ended it")]
    NotListed { session: String, at: Time },
    #[error("{session} was found at {at:?}, after its end")]
    FoundAfterEnd { session: String, at: Time },
    #[error("{session} of another project was listed for project {project:?} at {at:?}")]
    ForeignSession {
        session: String,
        project: TestProject,
        at: Time,
    },
    #[error("{session} has the markers {markers:?}")]
    ForeignMarkers {
        session: String,
        markers: BTreeSet<String>,
    },
    #[error("{session} has lost its marker at {at:?}")]
    LostMarker { session: String, at: Time },
    #[error("{} sessions existed at {at:?}: {sessions:?}", .sessions.len())]
    LimitExceeded {
        sessions: BTreeSet<String>,
        at: Time,
    },
    #[error("client {client} had no response: {operation:?} at {at:?}")]
    NoResponse {
        client: usize,
        operation: Operation,
        at: Time,
    },
    #[error("the database does not know {session}")]
    NotRecorded { session: String },
    #[error("{session} ({name:?}) is recorded, and no call explains it")]
    Unexplained {
        session: String,
        name: Option<String>,
    },
    #[error("{sessions:?} were created by the same call")]
    CreatedTwice { sessions: BTreeSet<String> },
    #[error("{session} is recorded as {state} after the end of the run")]
    NotEnded { session: String, state: String },
    #[error("{session} is recorded as ended by {reason:?} at {ended:?}, which is impossible")]
    WrongEnd {
        session: String,
        reason: Option<String>,
        ended: Option<Time>,
    },
    #[error("{session} is recorded at {recorded:?}, and was served by {observed:?}")]
    WrongTenancy {
        session: String,
        recorded: Option<Tenancy>,
        observed: Tenancy,
    },
    #[error("the code of {login} of project {project:?} for step {step} was used in {sessions:?}")]
    CodeUsedTwice {
        project: TestProject,
        login: String,
        step: u64,
        sessions: Vec<String>,
    },
    #[error("{} has received a value of another project: {delivery:?}", .delivery.session)]
    ForeignValue { delivery: Delivery },
    #[error("{session} has received {received} codes of {login}, and {explained} calls explain it")]
    UnexplainedValue {
        session: String,
        login: String,
        received: usize,
        explained: usize,
    },
    #[error("{request_id} has filled a page of {session} and is not in the audit log")]
    NotAudited { session: String, request_id: String },
}

/// Returns all contradictions in a run.
pub fn check(run: &Run) -> Vec<Violation> {
    let sessions = sessions::of(run);
    let mut violations = Vec::new();
    for session in sessions.values() {
        check_session(run, session, &mut violations);
    }
    check_tenancies(&sessions, &mut violations);
    check_lists(run, &sessions, &mut violations);
    check_limit(run, &sessions, &mut violations);
    violations.extend(run.calls.iter().filter_map(no_response));
    fills::check(run, &mut violations);
    records::check(run, &sessions, &mut violations);
    violations
}

fn no_response(call: &Call) -> Option<Violation> {
    (call.outcome == Outcome::NoResponse).then(|| Violation::NoResponse {
        client: call.client,
        operation: call.operation.clone(),
        at: call.invoked,
    })
}

/// Checks that a session is found while it exists and not afterwards, in one place, and with its
/// own markers alone.
fn check_session(run: &Run, session: &SessionHistory<'_>, violations: &mut Vec<Violation>) {
    let id = &session.id;
    let mut tenancies = BTreeSet::new();
    for call in &session.calls {
        match &call.outcome {
            Outcome::NotFound if call.returned < session.may_end => {
                violations.push(Violation::Lost {
                    session: id.clone(),
                    at: call.returned,
                });
            }
            Outcome::Session(_) | Outcome::Done | Outcome::Observed(_)
                if call.invoked > session.has_ended =>
            {
                violations.push(Violation::FoundAfterEnd {
                    session: id.clone(),
                    at: call.invoked,
                });
            }
            _ => {}
        }
        let Outcome::Observed(observation) = &call.outcome else {
            continue;
        };
        tenancies.insert(observation.tenancy.clone());
        let found = observation.cookies.union(&observation.files);
        let foreign: BTreeSet<String> = found.filter(|marker| *marker != id).cloned().collect();
        if !foreign.is_empty() {
            violations.push(Violation::ForeignMarkers {
                session: id.clone(),
                markers: foreign,
            });
        }
        let keeps_cookies = !loses_cookies(run, session, call);
        if !observation.files.contains(id) || (keeps_cookies && !observation.cookies.contains(id)) {
            violations.push(Violation::LostMarker {
                session: id.clone(),
                at: call.returned,
            });
        }
    }
    if tenancies.len() > 1 {
        violations.push(Violation::SeveralTenancies {
            session: id.clone(),
            tenancies,
        });
    }
}

/// Returns whether a kill may have ended a browser before it had stored its cookies.
fn loses_cookies(run: &Run, session: &SessionHistory<'_>, call: &Call) -> bool {
    run.kills.iter().any(|kill| {
        let ends_browser = matches!(
            kill.kind,
            ProcessKind::Agent
                | ProcessKind::Chromium
                | ProcessKind::ChromiumHelper
                | ProcessKind::Display
        );
        ends_browser
            && kill.sent <= call.returned
            && kill.done >= session.invoked
            && (kill.host.as_deref() == session.host() || kill.host.is_none())
    })
}

/// Checks that no tenancy served two sessions, and no host two at the same time.
fn check_tenancies(
    sessions: &BTreeMap<String, SessionHistory<'_>>,
    violations: &mut Vec<Violation>,
) {
    let mut tenants: BTreeMap<&Tenancy, BTreeSet<String>> = BTreeMap::new();
    let mut service: BTreeMap<&str, Vec<(Time, Time, &str)>> = BTreeMap::new();
    for session in sessions.values() {
        for (_, observation) in session.observations() {
            let tenants = tenants.entry(&observation.tenancy).or_default();
            tenants.insert(session.id.clone());
        }
        let observed = session.observations();
        // Between these two the host certainly served the session.
        let from = observed.iter().map(|(call, _)| call.returned).min();
        let until = observed.iter().map(|(call, _)| call.invoked).max();
        if let (Some(host), Some(from), Some(until)) = (session.host(), from, until)
            && from < until
        {
            let times = service.entry(host).or_default();
            times.push((from, until, &session.id));
        }
    }
    for (tenancy, sessions) in tenants {
        if sessions.len() > 1 {
            violations.push(Violation::DoubleLease {
                tenancy: tenancy.clone(),
                sessions,
            });
        }
    }
    for (host, mut times) in service {
        times.sort_unstable();
        for pair in times.windows(2) {
            if let [(_, until, first), (from, _, second)] = pair
                && from < until
            {
                violations.push(Violation::Overlap {
                    host: host.to_owned(),
                    sessions: [(*first).to_owned(), (*second).to_owned()],
                });
            }
        }
    }
}

/// Checks that a list has each session that existed all the time, and none that had ended.
fn check_lists(
    run: &Run,
    sessions: &BTreeMap<String, SessionHistory<'_>>,
    violations: &mut Vec<Violation>,
) {
    for call in &run.calls {
        let Outcome::Listed(listed) = &call.outcome else {
            continue;
        };
        for (id, session) in sessions {
            if session.project != call.project {
                if listed.contains(id) {
                    violations.push(Violation::ForeignSession {
                        session: id.clone(),
                        project: call.project,
                        at: call.invoked,
                    });
                }
                continue;
            }
            let exists = session.returned <= call.invoked && call.returned < session.may_end;
            if exists && !listed.contains(id) {
                violations.push(Violation::NotListed {
                    session: id.clone(),
                    at: call.invoked,
                });
            }
            if listed.contains(id) && call.invoked > session.has_ended {
                violations.push(Violation::FoundAfterEnd {
                    session: id.clone(),
                    at: call.invoked,
                });
            }
        }
        if listed.len() > run.rules.max_sessions_of(call.project) {
            violations.push(Violation::LimitExceeded {
                sessions: listed.clone(),
                at: call.invoked,
            });
        }
    }
}

/// Checks that no more sessions of a project existed at once than its limit.
fn check_limit(
    run: &Run,
    sessions: &BTreeMap<String, SessionHistory<'_>>,
    violations: &mut Vec<Violation>,
) {
    for session in sessions.values() {
        let at = session.returned;
        let project = session.project;
        let existing = sessions.values();
        let existing = existing.filter(|other| other.project == project && other.exists_at(at));
        let existing: BTreeSet<String> = existing.map(|other| other.id.clone()).collect();
        if existing.len() > run.rules.max_sessions_of(project) {
            violations.push(Violation::LimitExceeded {
                sessions: existing,
                at,
            });
        }
    }
}

/// Returns whether a kill ends all sessions.
fn ends_sessions(run: &Run, kill: &Kill) -> bool {
    kill.kind == ProcessKind::Control && run.rules.sessions_end_with_control
}

/// Returns when a session without further calls may be ended as idle.
fn idle_after(last_use: Time, timeout: Duration) -> Time {
    last_use.saturating_add(timeout)
}
