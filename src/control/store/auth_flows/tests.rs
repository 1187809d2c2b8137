//! Tests of the tables of login flows.

use chrono::TimeDelta;

use super::*;
use crate::{
    api::{
        auth_connections::{AuthConnectionStatus, AuthEventStatus, AuthEventType},
        auth_flow::{FlowErrorCode, FlowStep, FlowType},
        ids::{AuthTimelineId, BrowserId, ProjectId, ReplayId},
    },
    control::{
        auth_connections::{
            flow::{FlowEvent, FlowSettings, tests::welcome},
            health::ConnectionHealth,
        },
        store::{
            AuthConnectionRow, AuthConnectionSettings, HealthChange,
            entity::auth_timeline_entry,
            from_millis,
            test_database::{TestDatabase, explain, is_sorting},
        },
    },
};

const LIMIT: u64 = 1000;

struct Fixture {
    _database: TestDatabase,
    store: Store,
    connection: AuthConnectionRow,
}

impl Fixture {
    async fn create() -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let project = store.default_project("default", Utc::now()).await.unwrap();
        let connection = connection(&project.id, "example.com");
        store
            .create_auth_connection(&connection, LIMIT)
            .await
            .unwrap();
        Fixture {
            _database: database,
            store,
            connection,
        }
    }

    async fn begin(&self) -> AuthFlowRow {
        let (row, begun) = begun(&self.connection);
        self.store
            .create_auth_flow(&row, &begun, None)
            .await
            .unwrap();
        row
    }

    async fn apply(&self, row: AuthFlowRow, event: FlowEvent) -> AuthFlowRow {
        let now = now();
        let transition = row.flow.apply(event, now);
        let advanced = self.store.advance_auth_flow(row, &transition, now).await;
        advanced.unwrap().unwrap()
    }

    async fn connection(&self) -> AuthConnectionRow {
        let AuthConnectionRow { project_id, id, .. } = &self.connection;
        let found = self.store.find_auth_connection(project_id, id).await;
        found.unwrap().unwrap()
    }

    async fn found(&self, id: &FlowId) -> AuthFlowRow {
        self.store.find_auth_flow(id).await.unwrap().unwrap()
    }
}

fn connection(project: &ProjectId, domain: &str) -> AuthConnectionRow {
    let now = from_millis(1_700_000_000_000).unwrap();
    AuthConnectionRow {
        id: AuthConnectionId::generate(),
        project_id: project.clone(),
        domain: domain.to_owned(),
        profile_name: "profile".to_owned(),
        status: AuthConnectionStatus::NeedsAuth,
        settings: AuthConnectionSettings {
            credential: None,
            allowed_domains: Vec::new(),
            login_url: None,
            health_checks: true,
            health_check_interval: 3600,
            auto_reauth: true,
            save_credentials: true,
            record_session: false,
        },
        post_login_url: None,
        last_auth_at: None,
        last_auth_check_at: None,
        browser_id: None,
        revision: 1,
        created_at: now,
        updated_at: now,
        health: ConnectionHealth::default(),
    }
}

/// Returns the time to the millisecond, as the database stores it.
fn now() -> DateTime<Utc> {
    from_millis(to_millis(Utc::now())).unwrap()
}

/// Returns the row of a flow that begins now.
fn begun(connection: &AuthConnectionRow) -> (AuthFlowRow, Transition) {
    let now = now();
    let settings = FlowSettings {
        flow_type: FlowType::Login,
        is_attended: true,
        save_credentials: true,
    };
    let begun = Flow::begin(FlowId::generate(), settings, now);
    let row = AuthFlowRow {
        project_id: connection.project_id.clone(),
        connection_id: connection.id.clone(),
        flow: begun.flow.clone(),
        version: 1,
        page_mark: Some("{}".to_owned()),
        answers: Some(SealedAnswers {
            key_version: 3,
            bytes: vec![1, 2, 3],
        }),
        started_by: Some("abc".to_owned()),
        handoff: Some(HandoffCode {
            digest: "digest".to_owned(),
            expires_at: now + TimeDelta::minutes(10),
        }),
        record_session: true,
        replay_id: Some(ReplayId::generate()),
        driver: None,
        created_at: now,
        ended_at: None,
    };
    (row, begun)
}

fn started() -> FlowEvent {
    FlowEvent::Started {
        browser: BrowserId::generate(),
        credential: None,
    }
}

#[tokio::test]
async fn flow_is_read_as_it_was_written() {
    let fixture = Fixture::create().await;
    let row = fixture.begin().await;
    assert_eq!(fixture.found(row.id()).await, row);
    let newest = fixture.store.newest_auth_flow(&fixture.connection.id).await;
    assert_eq!(newest.unwrap(), Some(row.clone()));
    let changed = fixture.apply(row.clone(), started()).await;
    assert_eq!(changed.version, 2);
    assert_eq!(fixture.found(row.id()).await, changed);
}

#[tokio::test]
async fn connection_has_one_flow_in_progress() {
    let fixture = Fixture::create().await;
    let first = fixture.begin().await;
    let (second, transition) = begun(&fixture.connection);
    let refused = fixture
        .store
        .create_auth_flow(&second, &transition, None)
        .await;
    assert!(matches!(refused, Err(CreateAuthFlowError::InProgress)));
    fixture.apply(first, FlowEvent::Canceled).await;
    let created = fixture
        .store
        .create_auth_flow(&second, &transition, None)
        .await;
    created.unwrap();
    let newest = fixture
        .store
        .newest_auth_flows(std::slice::from_ref(&fixture.connection.id));
    let newest = newest.await.unwrap();
    assert_eq!(newest, [second]);
    let unknown = connection(&fixture.connection.project_id, "other.example");
    let (row, transition) = begun(&unknown);
    let refused = fixture
        .store
        .create_auth_flow(&row, &transition, None)
        .await;
    assert!(matches!(
        refused,
        Err(CreateAuthFlowError::ConnectionNotFound)
    ));
}

#[tokio::test]
async fn flow_that_has_changed_is_not_overwritten() {
    let fixture = Fixture::create().await;
    let row = fixture.begin().await;
    fixture.apply(row.clone(), started()).await;
    let now = Utc::now();
    let transition = row.flow.apply(FlowEvent::Canceled, now);
    let store = &fixture.store;
    let lost = store.advance_auth_flow(row.clone(), &transition, now).await;
    assert_eq!(lost.unwrap(), None);
    assert_eq!(store.adopt_auth_flow(row.clone()).await.unwrap(), None);
    let states = store.auth_flow_states(row.id(), 0, 10).await.unwrap();
    let found = fixture.found(row.id()).await;
    assert_eq!(states.last().unwrap().state, found.flow.state());
    assert!(!found.flow.has_ended());
}

#[tokio::test]
async fn states_and_timeline_have_each_change_once() {
    let fixture = Fixture::create().await;
    let store = &fixture.store;
    let row = fixture.begin().await;
    let row = fixture.apply(row, started()).await;
    let ended = fixture.apply(row, FlowEvent::BrowserLost).await;
    let states = store.auth_flow_states(ended.id(), 0, 10).await.unwrap();
    let numbers: Vec<u64> = states.iter().map(|state| state.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(states[2].state, ended.flow.state());
    let later = store.auth_flow_states(ended.id(), 1, 1).await.unwrap();
    assert_eq!(later, states[1..2]);
    let listing = AuthTimelineListing {
        limit: 10,
        ..AuthTimelineListing::default()
    };
    let timeline = store.auth_timeline(&ended.connection_id, listing).await;
    let timeline = timeline.unwrap();
    let found: Vec<_> = timeline
        .iter()
        .map(|entry| (entry.status, entry.step.unwrap(), entry.error_code))
        .collect();
    let progress = AuthEventStatus::InProgress;
    assert_eq!(
        found,
        [
            (
                AuthEventStatus::Failed,
                FlowStep::Completed,
                Some(FlowErrorCode::BrowserLost)
            ),
            (progress, FlowStep::Discovering, None),
            (progress, FlowStep::Initialized, None),
        ]
    );
    assert_eq!(timeline[0].previous_status, Some(progress));
    assert!(timeline[0].completed_at.is_some() && timeline[1].completed_at.is_none());
    assert_eq!(timeline[1].browser_id.as_ref(), ended.flow.browser());
    assert_eq!(timeline[0].replay_id, ended.replay_id);
    let checks = AuthTimelineListing {
        event_type: Some(AuthEventType::HealthCheck),
        ..listing
    };
    let checks = store.auth_timeline(&ended.connection_id, checks).await;
    assert_eq!(checks.unwrap(), []);
    let second = AuthTimelineListing {
        offset: 1,
        limit: 1,
        event_type: Some(AuthEventType::Login),
    };
    let page = store.auth_timeline(&ended.connection_id, second).await;
    assert_eq!(page.unwrap(), timeline[1..]);
}

#[tokio::test]
async fn ended_flow_keeps_no_secrets() {
    let fixture = Fixture::create().await;
    let row = fixture.begin().await;
    let ended = fixture.apply(row, FlowEvent::Canceled).await;
    let found = fixture.found(ended.id()).await;
    assert_eq!((found.answers, found.handoff), (None, None));
    assert!(found.ended_at.is_some());
}

#[tokio::test]
async fn handoff_code_works_once_for_its_connection_and_in_time() {
    let fixture = Fixture::create().await;
    let (store, id) = (&fixture.store, &fixture.connection.id);
    let row = fixture.begin().await;
    let now = row.created_at;
    let expiry = now + TimeDelta::minutes(10);
    let other = AuthConnectionId::generate();
    for (connection, digest, time) in [
        (id, "other", now),
        (&other, "digest", now),
        (id, "digest", expiry),
        (id, "", now),
    ] {
        let found = store.find_handoff_code(connection, digest, time).await;
        assert_eq!(found.unwrap(), None, "{digest} at {time}");
    }
    let found = store.find_handoff_code(id, "digest", now).await.unwrap();
    assert_eq!(found.as_ref(), Some(&row));
    assert!(!store.use_handoff_code(row.id(), "other").await.unwrap());
    let at_once = (0..8).map(|_| store.use_handoff_code(row.id(), "digest"));
    let used = futures::future::join_all(at_once).await;
    let used = used.into_iter().filter(|used| *used.as_ref().unwrap());
    assert_eq!(used.count(), 1);
    // A driver that has read the row before does not restore the code.
    let row = fixture.apply(row, started()).await;
    let found = store.find_handoff_code(id, "digest", now).await;
    assert_eq!(found.unwrap(), None);
    assert!(!store.use_handoff_code(row.id(), "digest").await.unwrap());
}

#[tokio::test]
async fn deleted_connection_leaves_nothing() {
    let fixture = Fixture::create().await;
    let store = &fixture.store;
    let row = fixture.begin().await;
    let mut changes = store.flow_changes().subscribe(row.id());
    changes.mark_unchanged();
    let (project, id) = (&fixture.connection.project_id, &fixture.connection.id);
    assert!(store.delete_auth_connection(project, id).await.unwrap());
    assert!(changes.has_changed().unwrap());
    assert_eq!(store.find_auth_flow(row.id()).await.unwrap(), None);
    let states = store.auth_flow_states(row.id(), 0, 10).await.unwrap();
    assert_eq!(states, []);
    let listing = AuthTimelineListing {
        limit: 10,
        ..AuthTimelineListing::default()
    };
    assert_eq!(store.auth_timeline(id, listing).await.unwrap(), []);
}

#[tokio::test]
async fn only_ended_flows_are_purged() {
    let fixture = Fixture::create().await;
    let store = &fixture.store;
    let ended = fixture.begin().await;
    let ended = fixture.apply(ended, FlowEvent::Canceled).await;
    let active = fixture.begin().await;
    let later = Utc::now() + TimeDelta::seconds(1);
    let earlier = later - TimeDelta::hours(1);
    assert_eq!(store.purge_auth_flows(earlier).await.unwrap(), 0);
    assert_eq!(store.purge_auth_flows(later).await.unwrap(), 1);
    assert_eq!(store.find_auth_flow(ended.id()).await.unwrap(), None);
    let states = store.auth_flow_states(ended.id(), 0, 10).await.unwrap();
    assert_eq!(states, []);
    assert!(store.find_auth_flow(active.id()).await.unwrap().is_some());
    assert_eq!(store.purge_auth_timeline(earlier).await.unwrap(), 0);
    assert_eq!(store.purge_auth_timeline(later).await.unwrap(), 3);
}

#[tokio::test]
async fn flows_in_progress_are_found() {
    let fixture = Fixture::create().await;
    let row = fixture.begin().await;
    let store = &fixture.store;
    let active = store.active_auth_flows().await.unwrap();
    assert_eq!(active, std::slice::from_ref(&row));
    let active = store.active_auth_flow(&row.connection_id).await.unwrap();
    assert_eq!(active.as_ref(), Some(&row));
    // That of a newer program.
    let unreadable = format!(
        "UPDATE auth_flows SET state = '{{}}' WHERE id = '{}'",
        row.id()
    );
    store.writer.execute_unprepared(&unreadable).await.unwrap();
    assert_eq!(store.active_auth_flows().await.unwrap(), []);
}

#[tokio::test]
async fn timeline_is_read_with_an_index() {
    let fixture = Fixture::create().await;
    let row = fixture.begin().await;
    let database = fixture.store.db.get_database_backend();
    let rows = (0..2000).map(|number: i64| {
        let entry = auth_timeline_entry::Model {
            id: AuthTimelineId::generate().to_string(),
            connection_id: match number % 40 {
                0 => row.connection_id.to_string(),
                other => format!("conn_{other}"),
            },
            event_type: ["login", "health_check"][usize::from(number % 3 == 0)].to_owned(),
            flow_id: None,
            status: "SUCCESS".to_owned(),
            previous_status: None,
            step: None,
            error_code: None,
            website_error: None,
            browser_id: None,
            replay_id: None,
            created_at: number,
            completed_at: None,
        };
        auth_timeline_entry::ActiveModel::from(entry).reset_all()
    });
    for chunk in rows.collect::<Vec<_>>().chunks(500) {
        auth_timeline_entry::Entity::insert_many(chunk.to_vec())
            .exec_without_returning(&fixture.store.writer)
            .await
            .unwrap();
    }
    // PostgreSQL selects an index by its statistics.
    let analyze = "ANALYZE auth_timeline";
    let writer = &fixture.store.writer;
    writer.execute_unprepared(analyze).await.unwrap();
    for event_type in [None, Some(AuthEventType::HealthCheck)] {
        let listing = AuthTimelineListing {
            event_type,
            offset: 0,
            limit: 20,
        };
        let query = timeline::page_of(&row.connection_id, listing).unwrap();
        let plan = explain(&fixture.store.db, query.build(database)).await;
        assert!(!is_sorting(&plan), "{plan}");
    }
}

/// A login without a person, which is due.
async fn due_reauth(fixture: &Fixture) -> (AuthFlowRow, Transition) {
    let settings = FlowSettings {
        flow_type: FlowType::Reauth,
        is_attended: false,
        save_credentials: false,
    };
    let begun = Flow::begin(FlowId::generate(), settings, now());
    let (row, _) = self::begun(&fixture.connection);
    let row = AuthFlowRow {
        flow: begun.flow.clone(),
        answers: None,
        handoff: None,
        started_by: None,
        ..row
    };
    let before = fixture.connection().await;
    let change = HealthChange {
        health: ConnectionHealth {
            reauth_at: Some(now()),
            ..before.health.clone()
        },
        status: AuthConnectionStatus::NeedsAuth,
        check: None,
        before,
    };
    let changed = fixture.store.change_auth_health(change).await;
    assert!(changed.unwrap().is_some());
    (row, begun)
}

#[tokio::test]
async fn login_without_a_person_is_due_again_after_a_failure() {
    let fixture = Fixture::create().await;
    let (row, begun) = due_reauth(&fixture).await;
    let revision = fixture.connection().await.health.revision;
    let stale = fixture
        .store
        .create_auth_flow(&row, &begun, Some(revision - 1));
    assert!(stale.await.is_err());
    let created = fixture.store.create_auth_flow(&row, &begun, Some(revision));
    created.await.unwrap();
    let health = fixture.connection().await.health;
    assert_eq!((health.reauth_at, health.reauth_failures), (None, 0));
    fixture.apply(row, FlowEvent::BrowserLost).await;
    let failed = fixture.connection().await;
    assert_eq!(failed.status, AuthConnectionStatus::NeedsAuth);
    assert_eq!(failed.health.reauth_failures, 1);
    assert!(failed.health.reauth_at.is_some_and(|at| at > now()));
    assert!(failed.health.reauth_failing_since.is_some());
}

#[tokio::test]
async fn failed_login_with_a_person_leaves_the_schedule() {
    let fixture = Fixture::create().await;
    let before = fixture.connection().await;
    let row = fixture.begin().await;
    fixture.apply(row, FlowEvent::Canceled).await;
    assert_eq!(fixture.connection().await, before);
}

#[tokio::test]
async fn login_is_the_last_check_of_its_connection() {
    let fixture = Fixture::create().await;
    for seconds in [10, 20] {
        let (row, begun) = begun(&fixture.connection);
        let created = fixture.store.create_auth_flow(&row, &begun, None);
        created.await.unwrap();
        let row = fixture.apply(row, started()).await;
        let row = fixture.apply(row, FlowEvent::PageFound(welcome())).await;
        let end = now() + TimeDelta::seconds(seconds);
        let saved = row.flow.apply(FlowEvent::Saved, end);
        let advanced = fixture.store.advance_auth_flow(row, &saved, end).await;
        assert!(advanced.unwrap().is_some());
        let after = fixture.connection().await;
        assert_eq!(after.status, AuthConnectionStatus::Authenticated);
        assert_eq!(after.last_auth_at, Some(end));
        assert_eq!(after.last_auth_check_at, Some(end));
    }
}
