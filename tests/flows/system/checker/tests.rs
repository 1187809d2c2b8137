//! Each kind of contradiction is planted in a history that has none, and is found.

use super::*;
use crate::flows::system::history::Observation;

const RULES: Rules = Rules {
    max_sessions: 2,
    other_max_sessions: 1,
    sessions_end_with_control: true,
    agent_restarts: 2,
};

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn call(invoked: u64, operation: Operation, outcome: Outcome) -> Call {
    Call {
        client: 0,
        project: TestProject::Default,
        invoked: at(invoked),
        returned: at(invoked + 1),
        operation,
        outcome,
    }
}

fn create(invoked: u64, session: &str) -> Call {
    let operation = Operation::Create {
        name: format!("name-of-{session}"),
        idle_timeout: at(600),
    };
    call(invoked, operation, Outcome::Session(session.to_owned()))
}

fn used(invoked: u64, session: &str, outcome: Outcome) -> Call {
    let session = session.to_owned();
    call(invoked, Operation::Use { session }, outcome)
}

fn delete(invoked: u64, session: &str, outcome: Outcome) -> Call {
    let session = session.to_owned();
    call(invoked, Operation::Delete { session }, outcome)
}

fn tenancy(host: &str, generation: u64) -> Tenancy {
    let host = host.to_owned();
    Tenancy { host, generation }
}

fn observe(invoked: u64, session: &str, host: &str, generation: u64) -> Call {
    let markers = BTreeSet::from([session.to_owned()]);
    let observation = Observation {
        tenancy: tenancy(host, generation),
        cookies: markers.clone(),
        files: markers,
    };
    let session = session.to_owned();
    let operation = Operation::Observe { session };
    call(invoked, operation, Outcome::Observed(observation))
}

fn fill(invoked: u64, session: &str, process: usize, id: &str, outcome: Outcome) -> Call {
    let operation = Operation::Fill {
        session: session.to_owned(),
        login: "shared".to_owned(),
        process,
        request_id: id.to_owned(),
    };
    call(invoked, operation, outcome)
}

fn delivery(session: &str, value: DeliveredValue) -> Delivery {
    Delivery {
        session: session.to_owned(),
        project: TestProject::Default,
        login: "shared".to_owned(),
        value,
    }
}

fn list(invoked: u64, sessions: &[&str]) -> Call {
    let listed = sessions.iter().map(ToString::to_string).collect();
    call(invoked, Operation::List, Outcome::Listed(listed))
}

fn record(session: &str, reason: &str, ended: u64, host: &str, generation: u64) -> SessionRecord {
    SessionRecord {
        id: session.to_owned(),
        name: Some(format!("name-of-{session}")),
        project: TestProject::Default,
        state: "deleted".to_owned(),
        end_reason: Some(reason.to_owned()),
        ended: Some(at(ended)),
        tenancy: Some(tenancy(host, generation)),
    }
}

fn kill(kind: ProcessKind, host: Option<&str>, sent: u64) -> Kill {
    Kill {
        kind,
        host: host.map(str::to_owned),
        sent: at(sent),
        done: at(sent + 1),
    }
}

/// Two sessions at once on two hosts, then a third on the first host again, until the end.
fn consistent() -> Run {
    Run {
        calls: vec![
            create(10, "a"),
            create(12, "b"),
            observe(20, "a", "one", 1),
            observe(20, "b", "two", 1),
            list(25, &["a", "b"]),
            observe(30, "a", "one", 1),
            delete(40, "a", Outcome::Done),
            used(42, "a", Outcome::NotFound),
            create(50, "c"),
            observe(60, "c", "one", 2),
            observe(70, "c", "one", 2),
            observe(70, "b", "two", 1),
            list(75, &["b", "c"]),
            fill(32, "a", 1, "f1", Outcome::Done),
            fill(34, "b", 1, "f2", Outcome::Done),
            fill(76, "b", 2, "f3", Outcome::Done),
        ],
        kills: vec![
            kill(ProcessKind::Renderer, Some("one"), 22),
            kill(ProcessKind::Agent, Some("two"), 23),
        ],
        stopped: at(100),
        stopped_processes: BTreeSet::from([2]),
        deliveries: vec![
            delivery("a", DeliveredValue::UserName),
            delivery("a", DeliveredValue::Code(1)),
            delivery("b", DeliveredValue::Code(2)),
            delivery("b", DeliveredValue::Code(3)),
        ],
        records: vec![
            record("a", "deleted", 41, "one", 1),
            record("b", "gone", 101, "two", 1),
            record("c", "gone", 101, "one", 2),
        ],
        audited_fills: ["f1", "f2", "f3"].map(str::to_owned).into(),
        rules: RULES,
    }
}

/// Checks the run after a change, and returns the only contradiction.
fn violation(change: impl FnOnce(&mut Run)) -> Violation {
    let mut run = consistent();
    change(&mut run);
    let mut found = check(&run);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn observation(run: &mut Run, index: usize) -> &mut Observation {
    match &mut run.calls[index].outcome {
        Outcome::Observed(observation) => observation,
        other => panic!("{other:?}"),
    }
}

fn session(id: &str) -> String {
    id.to_owned()
}

#[test]
fn consistent_history_has_no_violation() {
    assert_eq!(check(&consistent()), []);
}

#[test]
fn one_generation_of_a_host_with_two_sessions_is_a_double_lease() {
    // Although the database agrees with each client.
    let mut run = consistent();
    run.calls[3] = observe(20, "b", "one", 1);
    run.calls[11] = observe(70, "b", "one", 1);
    run.records[1] = record("b", "gone", 101, "one", 1);
    let found = check(&run);
    let lease = Violation::DoubleLease {
        tenancy: tenancy("one", 1),
        sessions: BTreeSet::from([session("a"), session("b")]),
    };
    // By the clients, and by the database.
    assert_eq!(found.iter().filter(|other| **other == lease).count(), 2);
    let overlap = Violation::Overlap {
        host: session("one"),
        sessions: [session("a"), session("b")],
    };
    assert!(found.contains(&overlap), "{found:?}");
}

#[test]
fn host_with_two_sessions_at_once_is_found_also_with_two_generations() {
    let found = violation(|run| {
        run.calls[3] = observe(20, "b", "one", 7);
        run.calls[11] = observe(35, "b", "one", 7);
        run.records[1] = record("b", "gone", 101, "one", 7);
    });
    let sessions = [session("a"), session("b")];
    let host = session("one");
    assert_eq!(found, Violation::Overlap { host, sessions });
}

#[test]
fn double_lease_in_the_database_alone_is_found() {
    let found = violation(|run| {
        let name = session("left");
        run.records.push(SessionRecord {
            name: Some(name.clone()),
            ..record("d", "deleted", 90, "one", 1)
        });
        let idle_timeout = at(600);
        let operation = Operation::Create { name, idle_timeout };
        run.calls.push(call(80, operation, Outcome::Unknown));
    });
    assert!(matches!(found, Violation::DoubleLease { .. }), "{found}");
}

#[test]
fn session_on_two_hosts_is_found() {
    let mut run = consistent();
    run.calls[5] = observe(30, "a", "three", 1);
    let found = check(&run);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(matches!(found[0], Violation::SeveralTenancies { .. }));
    assert!(matches!(found[1], Violation::WrongTenancy { .. }));
}

#[test]
fn session_that_is_not_found_is_lost() {
    let found = violation(|run| {
        run.calls.drain(11..13);
        run.calls.push(used(80, "b", Outcome::NotFound));
    });
    let (session, at) = (session("b"), at(81));
    assert_eq!(found, Violation::Lost { session, at });
}

#[test]
fn session_that_is_not_listed_is_found() {
    let found = violation(|run| run.calls.push(list(80, &["c"])));
    let (session, at) = (session("b"), at(80));
    assert_eq!(found, Violation::NotListed { session, at });
}

#[test]
fn session_that_was_never_used_again_is_lost_if_the_database_ended_it() {
    let found = violation(|run| run.records[1] = record("b", "gone", 90, "two", 1));
    assert!(matches!(found, Violation::WrongEnd { .. }), "{found}");
}

#[test]
fn kill_of_control_explains_the_end_of_all_sessions() {
    let mut run = consistent();
    run.kills.push(kill(ProcessKind::Control, None, 80));
    run.records[1] = record("b", "gone", 83, "two", 1);
    run.records[2] = record("c", "gone", 83, "one", 2);
    run.calls.push(used(85, "b", Outcome::NotFound));
    run.calls.push(list(85, &[]));
    assert_eq!(check(&run), []);
    // Unless sessions outlive control.
    run.rules.sessions_end_with_control = false;
    assert!(!check(&run).is_empty());
}

#[test]
fn session_ends_with_its_agent_only_after_too_many_kills() {
    let lose = |run: &mut Run| {
        run.records[1] = record("b", "gone", 90, "two", 1);
        run.kills.push(kill(ProcessKind::Agent, Some("two"), 80));
    };
    assert!(matches!(violation(lose), Violation::WrongEnd { .. }));
    let mut run = consistent();
    lose(&mut run);
    run.kills.push(kill(ProcessKind::Agent, Some("two"), 85));
    assert_eq!(check(&run), []);
}

#[test]
fn idle_session_may_end_only_after_its_timeout() {
    let mut run = consistent();
    let Operation::Create { idle_timeout, .. } = &mut run.calls[8].operation else {
        panic!("not a creation");
    };
    *idle_timeout = at(10);
    run.records[2] = record("c", "idle", 82, "one", 2);
    assert_eq!(check(&run), []);
    run.records[2] = record("c", "idle", 75, "one", 2);
    assert_eq!(check(&run).len(), 1);
}

#[test]
fn session_that_is_found_after_its_end_is_found() {
    let found = violation(|run| run.calls.push(used(45, "a", Outcome::Done)));
    assert!(matches!(found, Violation::FoundAfterEnd { .. }), "{found}");
}

#[test]
fn ended_session_in_a_list_is_found() {
    let mut run = consistent();
    run.calls.push(list(80, &["a", "b", "c"]));
    let found = check(&run);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(matches!(found[0], Violation::FoundAfterEnd { .. }));
    assert!(matches!(found[1], Violation::LimitExceeded { .. }));
}

#[test]
fn marker_of_another_session_is_found_among_cookies_and_files() {
    for files in [false, true] {
        let found = violation(|run| {
            let observation = observation(run, 9);
            match files {
                true => observation.files.insert(session("a")),
                false => observation.cookies.insert(session("a")),
            };
        });
        let markers = BTreeSet::from([session("a")]);
        let session = session("c");
        assert_eq!(found, Violation::ForeignMarkers { session, markers });
    }
}

#[test]
fn lost_marker_is_found_unless_a_kill_explains_it() {
    let found = violation(|run| observation(run, 10).cookies.clear());
    assert!(matches!(found, Violation::LostMarker { .. }), "{found}");
    let mut run = consistent();
    // Its agent was killed. Files must survive that.
    observation(&mut run, 11).cookies.clear();
    assert_eq!(check(&run), []);
    observation(&mut run, 11).files.clear();
    assert_eq!(check(&run).len(), 1);
}

#[test]
fn exceeded_limit_is_found() {
    let found = violation(|run| {
        run.calls.push(create(80, "d"));
        run.records.push(record("d", "gone", 101, "three", 1));
    });
    let sessions = BTreeSet::from(["b", "c", "d"].map(session));
    let at = at(81);
    assert_eq!(found, Violation::LimitExceeded { sessions, at });
}

#[test]
fn limit_is_that_of_each_project() {
    let mut run = consistent();
    let mut creation = create(80, "d");
    creation.project = TestProject::Other;
    run.calls.push(creation);
    let mut other = record("d", "gone", 101, "three", 1);
    other.project = TestProject::Other;
    run.records.push(other);
    assert_eq!(check(&run), []);
    run.rules.other_max_sessions = 0;
    let found = check(&run);
    assert!(
        matches!(found[..], [Violation::LimitExceeded { .. }]),
        "{found:?}"
    );
}

#[test]
fn session_in_a_list_of_another_project_is_found() {
    let found = violation(|run| {
        let mut call = list(80, &["b"]);
        call.project = TestProject::Other;
        run.calls.push(call);
    });
    let (session, project, at) = (session("b"), TestProject::Other, at(80));
    let expected = Violation::ForeignSession {
        session,
        project,
        at,
    };
    assert_eq!(found, expected);
}

#[test]
fn code_that_is_used_twice_is_found() {
    let found = violation(|run| run.deliveries[2].value = DeliveredValue::Code(1));
    let expected = Violation::CodeUsedTwice {
        project: TestProject::Default,
        login: "shared".to_owned(),
        step: 1,
        sessions: vec![session("a"), session("b")],
    };
    assert_eq!(found, expected);
    // Also by the page that has it already.
    let found = violation(|run| run.deliveries[3].value = DeliveredValue::Code(2));
    assert!(matches!(found, Violation::CodeUsedTwice { .. }), "{found}");
}

#[test]
fn value_of_another_project_is_found() {
    let found = violation(|run| run.deliveries[0].project = TestProject::Other);
    assert!(matches!(found, Violation::ForeignValue { .. }), "{found}");
}

#[test]
fn value_that_no_call_may_have_written_is_found() {
    let fail = |run: &mut Run| run.calls[15].outcome = Outcome::Refused(503);
    let found = violation(fail);
    let expected = Violation::UnexplainedValue {
        session: session("b"),
        login: "shared".to_owned(),
        received: 2,
        explained: 1,
    };
    assert_eq!(found, expected);
    let found = violation(|run| run.calls[13].outcome = Outcome::Refused(409));
    assert!(
        matches!(found, Violation::UnexplainedValue { .. }),
        "{found}"
    );
    let mut run = consistent();
    run.calls[15].outcome = Outcome::Unknown;
    assert_eq!(check(&run), []);
}

#[test]
fn fill_that_is_not_in_the_audit_log_is_found_unless_a_kill_explains_it() {
    // The process was not killed, or has stored a later one.
    for id in ["f3", "f1"] {
        let found = violation(|run| assert!(run.audited_fills.remove(id)));
        let Violation::NotAudited { request_id, .. } = &found else {
            panic!("{found}");
        };
        assert_eq!(request_id, id);
    }
    let mut run = consistent();
    run.audited_fills.remove("f2");
    assert_eq!(check(&run), []);
}

#[test]
fn session_without_record_is_found() {
    let found = violation(|run| drop(run.records.remove(1)));
    let session = session("b");
    assert_eq!(found, Violation::NotRecorded { session });
}

#[test]
fn record_without_creation_is_found_unless_a_call_explains_it() {
    let stray = || record("d", "deleted", 90, "three", 1);
    let found = violation(|run| run.records.push(stray()));
    assert!(matches!(found, Violation::Unexplained { .. }), "{found}");
    for (outcome, violations) in [(Outcome::Unknown, 0), (Outcome::Refused(429), 1)] {
        let mut run = consistent();
        run.records.push(stray());
        let mut creation = create(80, "d");
        creation.outcome = outcome;
        run.calls.push(creation);
        assert_eq!(check(&run).len(), violations);
    }
}

#[test]
fn two_sessions_of_one_creation_are_found() {
    let found = violation(|run| {
        let name = run.records[1].name.clone();
        run.calls[1].outcome = Outcome::Unknown;
        let find = Operation::Find {
            name: name.clone().unwrap(),
        };
        run.calls
            .push(call(14, find, Outcome::Session(session("b"))));
        run.records.push(SessionRecord {
            name,
            ..record("d", "deleted", 90, "three", 1)
        });
    });
    assert!(matches!(found, Violation::CreatedTwice { .. }), "{found}");
}

#[test]
fn record_of_a_session_that_has_not_ended_is_found() {
    let found = violation(|run| run.records[1].state = "active".to_owned());
    assert!(matches!(found, Violation::NotEnded { .. }), "{found}");
}

#[test]
fn confirmed_deletion_that_is_recorded_for_another_reason_is_found() {
    let found = violation(|run| run.records[0] = record("a", "gone", 41, "one", 1));
    assert!(matches!(found, Violation::WrongEnd { .. }), "{found}");
    let found = violation(|run| run.records[1] = record("b", "deleted", 101, "two", 1));
    assert!(matches!(found, Violation::WrongEnd { .. }), "{found}");
}

#[test]
fn call_without_response_is_found() {
    let found = violation(|run| run.calls.push(used(80, "b", Outcome::NoResponse)));
    assert!(matches!(found, Violation::NoResponse { .. }), "{found}");
}
