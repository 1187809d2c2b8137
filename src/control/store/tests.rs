//! Tests of the errors of both databases.

use sea_orm::{ConnectOptions, ConnectionTrait, Database, TransactionTrait};

use super::{test_database::TestDatabase, *};

fn new_key(number: usize) -> NewApiKey {
    NewApiKey {
        name: "n".repeat(4096),
        public_part: format!("{number:012x}"),
        digest: [0; 32],
        project_id: None,
        expires_at: None,
        created_by: None,
    }
}

/// Opens the database with one connection, to which a limit of SQLite applies.
async fn with_one_connection(database: &TestDatabase) -> Store {
    let store = database.open().await;
    if database.postgres.is_some() {
        return store;
    }
    store.close().await.unwrap();
    let mut options = ConnectOptions::new(format!("sqlite:{}", database.file().display()));
    options.max_connections(1);
    let db = Database::connect(options).await.unwrap();
    Store {
        writer: db.clone(),
        db,
        name: "test".into(),
        process: None,
        hints: None,
        new_deliveries: Arc::default(),
        changed_flows: FlowChanges::default(),
    }
}

#[tokio::test]
async fn write_without_room_is_disk_full() {
    let database = TestDatabase::create();
    let store = with_one_connection(&database).await;
    store.default_project("default", Utc::now()).await.unwrap();
    let limit = match database.postgres {
        // SQLite takes this for the present number of pages.
        None => "PRAGMA max_page_count = 1",
        Some(_) => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql \
             AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON api_keys EXECUTE FUNCTION refuse()"
        }
    };
    store.writer.execute_unprepared(limit).await.unwrap();
    let mut error = None;
    for number in 0..100 {
        let created = store.create_api_key(new_key(number), Utc::now());
        error = created.await.err();
        if error.is_some() {
            break;
        }
    }
    assert!(matches!(error, Some(StoreError::DiskFull(_))), "{error:?}");
    store.close().await.unwrap();
}

#[tokio::test]
async fn writes_after_a_transaction_that_sqlite_has_ended_are_visible() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let failed = store.writer.begin().await.unwrap();
    // As SQLite does by itself if the disk is full at a commit.
    failed.execute_unprepared("ROLLBACK").await.unwrap();
    drop(failed);
    drop(store.writer.begin().await.unwrap());
    store.create_api_key(new_key(1), Utc::now()).await.unwrap();
    assert!(!store.is_empty().await.unwrap());
    store.close().await.unwrap();
}

#[tokio::test]
async fn violations_of_unique_constraints_are_distinguished() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    store.create_api_key(new_key(1), now).await.unwrap();
    let same_key = store.create_api_key(new_key(1), now).await.unwrap_err();
    store.create_project("p", now).await.unwrap();
    let same_name = store.create_project("p", now).await.unwrap_err();
    let default = store.default_project("default", now).await.unwrap();
    let second = "UPDATE projects SET default_marker = 1";
    let same_marker = store.writer.execute_unprepared(second).await.unwrap_err();
    for (error, expected) in [
        (same_key, UniqueConstraint::ApiKeyPublicPart),
        (same_name, UniqueConstraint::ProjectLiveName),
        (same_marker.into(), UniqueConstraint::DefaultProject),
    ] {
        match error {
            StoreError::UniqueViolation(constraint) => assert_eq!(constraint, expected),
            other => panic!("{other}"),
        }
    }
    let again = store.default_project("default", now).await.unwrap();
    assert_eq!(again.id, default.id);
}

#[tokio::test]
async fn total_size_of_replays_is_summed() {
    use crate::{
        api::ids::{BrowserId, ReplayId},
        control::replays::state::State,
    };
    let database = TestDatabase::create();
    let store = database.open().await;
    assert_eq!(store.stored_replay_bytes(None).await.unwrap(), 0);
    let project = store
        .default_project("default", Utc::now())
        .await
        .unwrap()
        .id;
    for _ in 0..3 {
        let id = ReplayId::generate();
        let browser = BrowserId::generate();
        let added = store.add_replay(&id, &project, &browser, Utc::now());
        added.await.unwrap();
        let end = ReplayEnd {
            size_bytes: Some(1 << 40),
            ..ReplayEnd::default()
        };
        let states = (State::Recording, State::Stored);
        assert!(store.move_replay(&id, states, &end).await.unwrap());
    }
    assert_eq!(store.stored_replay_bytes(None).await.unwrap(), 3 << 40);
}

#[tokio::test]
async fn closed_database_is_unavailable() {
    let database = TestDatabase::create();
    let store = database.open().await;
    store.clone().close().await.unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn concurrent_starts_migrate_once_and_agree_on_the_default_project() {
    let database = TestDatabase::create();
    // Of several processes with one SQLite file, the state directory's lock lets one migrate.
    let starts = if database.postgres.is_some() { 8 } else { 1 };
    let all = (0..starts).map(|_| async {
        let store = database.open().await;
        let project = store.default_project("default", Utc::now()).await.unwrap();
        store.close().await.unwrap();
        project.id
    });
    let found = futures::future::join_all(all).await;
    assert!(found.iter().all(|id| *id == found[0]), "{found:?}");
}
