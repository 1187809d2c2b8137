//! Compares the values that pages have received with the calls, the records and the audit log.

use std::collections::BTreeMap;

use super::{Run, Violation};
use crate::flows::system::history::{
    Call, DeliveredValue, Delivery, Operation, Outcome, TestProject,
};

pub(super) fn check(run: &Run, violations: &mut Vec<Violation>) {
    check_codes(run, violations);
    violations.extend(run.deliveries.iter().filter_map(|it| foreign(run, it)));
    check_calls(run, violations);
    violations.extend(run.calls.iter().filter_map(|call| not_audited(run, call)));
}

/// Checks that no code of a time step was used twice.
fn check_codes(run: &Run, violations: &mut Vec<Violation>) {
    let mut uses: BTreeMap<(TestProject, &str, u64), Vec<String>> = BTreeMap::new();
    for delivery in &run.deliveries {
        if let DeliveredValue::Code(step) = delivery.value {
            let code = (delivery.project, &*delivery.login, step);
            uses.entry(code).or_default().push(delivery.session.clone());
        }
    }
    for ((project, login, step), sessions) in uses {
        if sessions.len() > 1 {
            violations.push(Violation::CodeUsedTwice {
                project,
                login: login.to_owned(),
                step,
                sessions,
            });
        }
    }
}

/// Returns a violation if the session is recorded as one of another project than the value.
fn foreign(run: &Run, delivery: &Delivery) -> Option<Violation> {
    let mut records = run.records.iter();
    let record = records.find(|record| record.id == delivery.session)?;
    (record.project != delivery.project).then(|| Violation::ForeignValue {
        delivery: delivery.clone(),
    })
}

/// Checks that each value was written by a call which has not failed. A call writes one code at
/// most.
fn check_calls(run: &Run, violations: &mut Vec<Violation>) {
    let mut received: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for delivery in &run.deliveries {
        let codes = received
            .entry((&delivery.session, &delivery.login))
            .or_default();
        *codes += usize::from(matches!(delivery.value, DeliveredValue::Code(_)));
    }
    for ((session, login), received) in received {
        let calls = run.calls.iter();
        let explained = calls.filter(|call| may_write(call, session, login)).count();
        // Without a code, a user name or a password was received.
        if explained < received.max(1) {
            violations.push(Violation::UnexplainedValue {
                session: session.to_owned(),
                login: login.to_owned(),
                received,
                explained,
            });
        }
    }
}

fn may_write(call: &Call, in_session: &str, of_login: &str) -> bool {
    let Operation::Fill { session, login, .. } = &call.operation else {
        return false;
    };
    let has_failed = matches!(call.outcome, Outcome::NotFound | Outcome::Refused(_));
    session == in_session && login == of_login && !has_failed
}

/// Returns a violation for a fill that has succeeded and is not in the audit log. A control process
/// that is killed loses its last records. They are stored in order: if it has stored a later one,
/// or was not killed, it has stored them all.
fn not_audited(run: &Run, call: &Call) -> Option<Violation> {
    let Operation::Fill {
        session,
        process,
        request_id,
        ..
    } = &call.operation
    else {
        return None;
    };
    if call.outcome != Outcome::Done || run.audited_fills.contains(request_id) {
        return None;
    }
    let is_stored_later = |later: &Call| match &later.operation {
        Operation::Fill {
            process: other,
            request_id,
            ..
        } => {
            let is_later = later.invoked > call.returned;
            other == process && is_later && run.audited_fills.contains(request_id)
        }
        _ => false,
    };
    let is_lost =
        !run.stopped_processes.contains(process) && !run.calls.iter().any(is_stored_later);
    (!is_lost).then(|| Violation::NotAudited {
        session: session.clone(),
        request_id: request_id.clone(),
    })
}
