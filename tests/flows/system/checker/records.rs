//! Compares the records in the database with what the clients know.

use std::collections::{BTreeMap, BTreeSet};

use super::{CLOCK_TOLERANCE, Run, SessionRecord, Violation, sessions::SessionHistory};
use crate::flows::system::history::{Operation, Outcome, Tenancy, Time};

pub(super) fn check(
    run: &Run,
    sessions: &BTreeMap<String, SessionHistory<'_>>,
    violations: &mut Vec<Violation>,
) {
    for id in sessions.keys() {
        if !run.records.iter().any(|record| record.id == *id) {
            let session = id.clone();
            violations.push(Violation::NotRecorded { session });
        }
    }
    for record in &run.records {
        if record.state != "deleted" {
            violations.push(Violation::NotEnded {
                session: record.id.clone(),
                state: record.state.clone(),
            });
        }
        match sessions.get(&record.id) {
            Some(session) => check_record(run, session, record, violations),
            None => violations.extend(unexplained(run, record)),
        }
    }
    check_tenancies(run, violations);
    check_names(run, violations);
}

/// Checks the record of a session that a client knows.
fn check_record(
    run: &Run,
    session: &SessionHistory<'_>,
    record: &SessionRecord,
    violations: &mut Vec<Violation>,
) {
    let reason = record.end_reason.as_deref();
    let is_explained = record
        .ended
        .is_some_and(|ended| is_possible(run, session, reason, ended));
    if !is_explained {
        violations.push(Violation::WrongEnd {
            session: record.id.clone(),
            reason: record.end_reason.clone(),
            ended: record.ended,
        });
    }
    let observations = session.observations();
    let observed = observations.iter().map(|(_, found)| &found.tenancy);
    let differs = |found: &&Tenancy| record.tenancy.as_ref() != Some(*found);
    if let Some(observed) = observed.into_iter().find(differs) {
        violations.push(Violation::WrongTenancy {
            session: record.id.clone(),
            recorded: record.tenancy.clone(),
            observed: observed.clone(),
        });
    }
}

/// Returns whether the session can have ended at this time for this reason.
fn is_possible(run: &Run, session: &SessionHistory<'_>, reason: Option<&str>, ended: Time) -> bool {
    let latest = ended + CLOCK_TOLERANCE;
    if latest < session.may_end {
        return false;
    }
    if session.is_deletion_confirmed() {
        return reason == Some("deleted");
    }
    match reason {
        Some("deleted") => session.is_deleted_by_client(),
        Some("idle") => latest >= session.idle_from(),
        // With its host or with control.
        Some("gone") => {
            let times = [session.lost_from, Some(run.stopped)];
            times.into_iter().flatten().any(|time| latest >= time)
        }
        _ => false,
    }
}

/// Returns a violation unless a call without a definite outcome explains the record.
fn unexplained(run: &Run, record: &SessionRecord) -> Option<Violation> {
    let explains = run.calls.iter().any(|call| {
        let Operation::Create { name, .. } = &call.operation else {
            return false;
        };
        record.name.as_ref() == Some(name)
            && matches!(call.outcome, Outcome::Unknown | Outcome::NoResponse)
    });
    (!explains).then(|| Violation::Unexplained {
        session: record.id.clone(),
        name: record.name.clone(),
    })
}

fn check_tenancies(run: &Run, violations: &mut Vec<Violation>) {
    let mut tenants: BTreeMap<&Tenancy, BTreeSet<String>> = BTreeMap::new();
    for record in &run.records {
        if let Some(tenancy) = &record.tenancy {
            let tenants = tenants.entry(tenancy).or_default();
            tenants.insert(record.id.clone());
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
}

/// Checks that no call has created two sessions. Each call has a name of its own.
fn check_names(run: &Run, violations: &mut Vec<Violation>) {
    let mut by_name: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for record in &run.records {
        if let Some(name) = &record.name {
            by_name.entry(name).or_default().insert(record.id.clone());
        }
    }
    for sessions in by_name.into_values() {
        if sessions.len() > 1 {
            violations.push(Violation::CreatedTwice { sessions });
        }
    }
}
