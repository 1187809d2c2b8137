//! Tests of the schedule of health checks.

use chrono::TimeDelta;

use super::*;
use crate::{
    api::{
        auth_connections::AuthEventType,
        ids::{AuthTimelineId, BrowserId},
        projects::ProjectStatus,
    },
    control::store::{
        AuthTimelineListing, ProjectChange, ProjectOutcome,
        auth_connections::tests::{created, found, row, store},
    },
};

/// Returns a time in seconds after the creation of the rows.
fn at(seconds: i64) -> DateTime<Utc> {
    from_millis(1_700_000_000_123).unwrap() + TimeDelta::seconds(seconds)
}

fn with_health(row: AuthConnectionRow, health: ConnectionHealth) -> AuthConnectionRow {
    let mut row = AuthConnectionRow { health, ..row };
    row.settings.health_checks = true;
    row
}

fn check_at(seconds: i64) -> ConnectionHealth {
    ConnectionHealth {
        check_at: Some(at(seconds)),
        ..ConnectionHealth::default()
    }
}

fn change(row: &AuthConnectionRow, health: ConnectionHealth) -> HealthChange {
    HealthChange {
        before: row.clone(),
        status: row.status,
        health,
        check: None,
    }
}

#[tokio::test]
async fn whole_schedule_is_read_as_it_was_written() {
    let (_database, store, project) = store().await;
    let health = ConnectionHealth {
        check_at: Some(at(1)),
        failed_checks: 2,
        reauth_at: Some(at(3)),
        reauth_failures: 4,
        reauth_failing_since: Some(at(5)),
        reauth_stopped: Some(FlowErrorCode::InputRequired),
        expiry: Some(SessionExpiry {
            cookie: "cookie".to_owned(),
            at: at(6),
        }),
        warn_at: Some(at(7)),
        revision: 8,
    };
    let row = created(&store, with_health(row(&project, "a.example", "p"), health)).await;
    assert_eq!(found(&store, &row).await, row);
    let other = change(&row, check_at(9));
    let changed = store.change_auth_health(other).await.unwrap().unwrap();
    assert_eq!(found(&store, &row).await, changed);
    assert_eq!(
        changed.health,
        ConnectionHealth {
            revision: 9,
            ..check_at(9)
        }
    );
}

#[tokio::test]
async fn settings_and_active_projects_decide_on_due_connections() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    let reauth = ConnectionHealth {
        reauth_at: Some(at(5)),
        ..ConnectionHealth::default()
    };
    let warning = ConnectionHealth {
        warn_at: Some(at(5)),
        ..ConnectionHealth::default()
    };
    let at_5 = |domain: &str, health| with_health(row(&project, domain, "p"), health);
    let checked = created(&store, at_5("check.example", check_at(5))).await;
    let expired = created(&store, at_5("reauth.example", reauth.clone())).await;
    let warned = created(&store, at_5("warn.example", warning)).await;
    let mut unchecked = at_5("unchecked.example", check_at(5));
    unchecked.settings.health_checks = false;
    created(&store, unchecked).await;
    let mut manual = at_5("manual.example", reauth);
    manual.settings.auto_reauth = false;
    created(&store, manual).await;
    created(&store, at_5("later.example", check_at(6))).await;
    let archived = with_health(row(&other, "check.example", "p"), check_at(5));
    created(&store, archived).await;
    let archive = ProjectChange {
        name: None,
        status: Some(ProjectStatus::Archived),
    };
    let outcome = store.change_project(&other, &archive, Utc::now()).await;
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, ProjectOutcome::Done(_)), "{outcome:?}");
    let due = async |seconds| {
        let due = store.due_auth_connections(at(seconds), 10).await.unwrap();
        let mut ids: Vec<_> = due.into_iter().map(|row| row.id).collect();
        ids.sort();
        ids
    };
    assert!(due(4).await.is_empty());
    let mut expected = vec![checked.id, expired.id, warned.id];
    expected.sort();
    assert_eq!(due(5).await, expected);
}

#[tokio::test]
async fn change_of_a_schedule_that_has_changed_is_not_stored() {
    let (_database, store, project) = store().await;
    let row = created(
        &store,
        with_health(row(&project, "a.example", "p"), check_at(1)),
    )
    .await;
    let first = store.change_auth_health(change(&row, check_at(2))).await;
    let first = first.unwrap().unwrap();
    let entry = AuthTimelineRow {
        id: AuthTimelineId::generate(),
        connection_id: row.id.clone(),
        event_type: AuthEventType::HealthCheck,
        flow_id: None,
        status: AuthConnectionStatus::NeedsAuth.into(),
        previous_status: Some(AuthConnectionStatus::Authenticated.into()),
        step: None,
        error_code: Some(FlowErrorCode::LoggedOut),
        website_error: None,
        browser_id: Some(BrowserId::generate()),
        replay_id: None,
        created_at: at(1),
        completed_at: Some(at(3)),
    };
    let check = |before: &AuthConnectionRow| HealthChange {
        status: AuthConnectionStatus::NeedsAuth,
        check: Some(entry.clone()),
        ..change(before, check_at(4))
    };
    let late = store.change_auth_health(check(&row)).await.unwrap();
    assert_eq!(late, None);
    assert_eq!(found(&store, &row).await, first);
    let listing = AuthTimelineListing {
        limit: 10,
        ..AuthTimelineListing::default()
    };
    assert_eq!(store.auth_timeline(&row.id, listing).await.unwrap(), []);
    let second = store.change_auth_health(check(&first)).await.unwrap();
    let second = second.unwrap();
    assert_eq!(second.status, AuthConnectionStatus::NeedsAuth);
    assert_eq!(second.last_auth_check_at, Some(at(3)));
    assert_eq!(found(&store, &row).await, second);
    assert_eq!(
        store.auth_timeline(&row.id, listing).await.unwrap(),
        [entry]
    );
    // Neither does a change of settings that were read before.
    let mut settings = first;
    settings.revision += 1;
    assert!(!store.update_auth_connection(&settings).await.unwrap());
}
