//! Tests of the table of auth connections.

use futures::future::join_all;
use sea_orm::QueryTrait;

use super::*;
use crate::control::store::{
    DeleteProfileOutcome, ProjectOutcome, UniqueConstraint,
    test_database::{TestDatabase, explain, is_sorting},
};

const LIMIT: u64 = 100;

pub(super) async fn store() -> (TestDatabase, Store, ProjectId) {
    let database = TestDatabase::create();
    let store = database.open().await;
    let project = store.default_project("default", Utc::now()).await.unwrap();
    (database, store, project.id)
}

pub(super) fn row(project: &ProjectId, domain: &str, profile: &str) -> AuthConnectionRow {
    let now = from_millis(1_700_000_000_123).unwrap();
    AuthConnectionRow {
        id: AuthConnectionId::generate(),
        project_id: project.clone(),
        domain: domain.to_owned(),
        profile_name: profile.to_owned(),
        status: AuthConnectionStatus::Authenticated,
        settings: AuthConnectionSettings {
            credential: None,
            allowed_domains: vec!["a.example".to_owned(), "b.example".to_owned()],
            login_url: Some("https://a.example/".to_owned()),
            health_checks: false,
            health_check_interval: 86_400,
            auto_reauth: true,
            save_credentials: false,
            record_session: true,
        },
        post_login_url: Some("https://a.example/home".to_owned()),
        last_auth_at: Some(now),
        last_auth_check_at: Some(now),
        browser_id: Some(BrowserId::generate()),
        revision: 1,
        created_at: now,
        updated_at: now,
        health: ConnectionHealth::default(),
    }
}

pub(super) async fn created(store: &Store, row: AuthConnectionRow) -> AuthConnectionRow {
    store.create_auth_connection(&row, LIMIT).await.unwrap();
    row
}

pub(super) async fn found(store: &Store, row: &AuthConnectionRow) -> AuthConnectionRow {
    let found = store.find_auth_connection(&row.project_id, &row.id).await;
    found.unwrap().unwrap()
}

fn references() -> [Option<CredentialReference>; 4] {
    let provider = "vault".to_owned();
    [
        None,
        Some(CredentialReference::Credential("shop".to_owned())),
        Some(CredentialReference::Item {
            provider: provider.clone(),
            path: "Team/Shop".to_owned(),
        }),
        Some(CredentialReference::ProviderMatch { provider }),
    ]
}

#[tokio::test]
async fn row_is_stored_and_its_settings_are_replaced() {
    let (_database, store, project) = store().await;
    for (number, credential) in references().into_iter().enumerate() {
        let mut row = row(&project, "a.example", &number.to_string());
        row.settings.credential = credential;
        store.create_auth_connection(&row, LIMIT).await.unwrap();
        assert_eq!(found(&store, &row).await, row);
        for credential in references() {
            row.settings.credential = credential;
            row.settings.login_url = None;
            row.settings.allowed_domains.pop();
            row.settings.health_checks ^= true;
            row.revision += 1;
            assert!(store.update_auth_connection(&row).await.unwrap());
            row.health.revision += 1;
            assert_eq!(found(&store, &row).await, row);
        }
    }
}

#[tokio::test]
async fn change_of_an_earlier_revision_is_not_stored() {
    let (_database, store, project) = store().await;
    let row = created(&store, row(&project, "a.example", "p")).await;
    let mut next = row.clone();
    next.revision += 1;
    next.settings.health_check_interval = 60;
    assert!(store.update_auth_connection(&next).await.unwrap());
    next.health.revision += 1;
    let mut late = next.clone();
    late.settings.health_check_interval = 61;
    assert!(!store.update_auth_connection(&late).await.unwrap());
    assert_eq!(found(&store, &row).await, next);
}

#[tokio::test]
async fn domain_and_profile_are_unique_in_a_project() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    created(&store, row(&project, "a.example", "p")).await;
    created(&store, row(&project, "a.example", "q")).await;
    created(&store, row(&project, "b.example", "p")).await;
    created(&store, row(&other, "a.example", "p")).await;
    let again = row(&project, "a.example", "p");
    let again = store.create_auth_connection(&again, LIMIT).await;
    assert!(matches!(
        again,
        Err(CreateAuthConnectionError::Store(
            StoreError::UniqueViolation(UniqueConstraint::AuthConnection)
        ))
    ));
}

#[tokio::test]
async fn concurrent_requests_create_no_more_than_the_limit() {
    let (_database, store, project) = store().await;
    let rows: Vec<_> = (0..8)
        .map(|number| row(&project, "a.example", &number.to_string()))
        .collect();
    let creations = rows.iter().map(|row| store.create_auth_connection(row, 3));
    let outcomes = join_all(creations).await;
    for outcome in &outcomes {
        let is_refused = matches!(outcome, Err(CreateAuthConnectionError::LimitReached));
        assert!(outcome.is_ok() || is_refused, "{outcome:?}");
    }
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 3);
    assert_eq!(store.count_auth_connections().await.unwrap(), 3);
}

#[tokio::test]
async fn project_is_never_deleted_beside_a_new_connection() {
    let (_database, store, _) = store().await;
    for number in 0..20 {
        let now = Utc::now();
        let project = store.create_project(&number.to_string(), now).await;
        let project = project.unwrap().id;
        let row = row(&project, "a.example", "p");
        let (created, deleted) = tokio::join!(
            store.create_auth_connection(&row, LIMIT),
            store.delete_project(&project, now)
        );
        match created {
            Ok(()) => {
                assert_eq!(deleted.unwrap(), ProjectOutcome::NotEmpty);
                let removed = store.delete_auth_connection(&project, &row.id).await;
                assert!(removed.unwrap());
                let deleted = store.delete_project(&project, now).await;
                assert_eq!(deleted.unwrap(), ProjectOutcome::Done(()));
            }
            Err(error) => {
                let is_refused = matches!(error, CreateAuthConnectionError::ProjectInactive);
                assert!(is_refused, "{error:?}");
                assert_eq!(deleted.unwrap(), ProjectOutcome::Done(()));
            }
        }
    }
}

#[tokio::test]
async fn new_names_are_followed_in_their_project() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    let credential = Some(CredentialReference::Credential("shop".to_owned()));
    let mut rows = Vec::new();
    for project in [&project, &other] {
        let mut row = row(project, "a.example", "shop");
        row.settings.credential = credential.clone();
        rows.push(created(&store, row).await);
    }
    let transaction = store.writer.begin().await.unwrap();
    let names = ("shop", "mall");
    let renamed = rename_credential_of_connections(&transaction, &project, names);
    renamed.await.unwrap();
    let renamed = rename_profile_of_connections(&transaction, project.as_str(), names);
    renamed.await.unwrap();
    transaction.commit().await.unwrap();
    let renamed = found(&store, &rows[0]).await;
    let expected = CredentialReference::Credential("mall".to_owned());
    assert_eq!(renamed.settings.credential, Some(expected));
    assert_eq!(renamed.profile_name, "mall");
    assert_eq!(found(&store, &rows[1]).await, rows[1]);
    // A change that has read the earlier name does not restore it.
    let mut late = rows[0].clone();
    late.revision += 1;
    assert!(!store.update_auth_connection(&late).await.unwrap());
}

#[tokio::test]
async fn profile_of_a_connection_is_not_deleted() {
    let (_database, store, project) = store().await;
    let row = created(&store, row(&project, "a.example", "shop")).await;
    let profile = store.create_profile(&project, Some("shop"), Utc::now());
    let profile = profile.await.unwrap().id;
    let delete = async || {
        let deleted = store.delete_profile(&project, &profile, Utc::now());
        deleted.await.unwrap()
    };
    let used = DeleteProfileOutcome::UsedByConnection(row.id.to_string());
    assert_eq!(delete().await, used);
    let deleted = store.delete_auth_connection(&project, &row.id).await;
    assert!(deleted.unwrap());
    assert_eq!(delete().await, DeleteProfileOutcome::Deleted(Vec::new()));
}

#[tokio::test]
async fn lists_of_a_project_use_indexes() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    let rows = (0..900).map(|number| {
        // PostgreSQL reads the rows of all projects if many of them are of one.
        let project = match number % 45 {
            0 => &project,
            _ => &other,
        };
        let row = row(project, &format!("{number}.example"), &number.to_string());
        auth_connection::ActiveModel::from(row.to_model().unwrap()).reset_all()
    });
    let insert = auth_connection::Entity::insert_many(rows);
    insert.exec_without_returning(&store.writer).await.unwrap();
    // PostgreSQL selects an index by its statistics.
    let analyze = "ANALYZE auth_connections";
    store.writer.execute_unprepared(analyze).await.unwrap();
    let listing = || AuthConnectionListing {
        limit: 20,
        ..AuthConnectionListing::default()
    };
    let by_domain = AuthConnectionListing {
        domain: Some("100.example".to_owned()),
        ..listing()
    };
    let by_profile = AuthConnectionListing {
        profile_name: Some("100".to_owned()),
        ..listing()
    };
    for (listing, index) in [
        (listing(), "auth_connections_of_a_project"),
        (by_domain, "auth_connections_by_domain"),
        (by_profile, "auth_connections_by_profile"),
    ] {
        let query = page_of(&project, &listing);
        let plan = explain(&store.db, query.build(store.db.get_database_backend())).await;
        assert!(plan.contains(index), "{plan}");
        assert!(!is_sorting(&plan), "{plan}");
    }
}
