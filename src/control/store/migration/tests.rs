//! Tests of the migrations.

use chrono::Utc;
use sea_orm::ConnectionTrait;

use super::*;
use crate::control::store::{
    entity::{api_key, organization},
    test_database::TestDatabase,
};

#[tokio::test]
async fn database_of_every_earlier_version_is_migrated() {
    let all = Migrator::migrations();
    for (applied, steps) in (1..all.len()).zip(1_u32..) {
        let database = TestDatabase::create();
        let old = database.connect().await;
        Migrator::up(&old, Some(steps)).await.unwrap();
        let insert = "INSERT INTO projects (id, name, live_name, status, created_at, updated_at) \
            VALUES ('proj_00000000000000000000000000', 'p', 'p', 'active', 0, 0)";
        old.execute_unprepared(insert).await.unwrap();
        let insert = "INSERT INTO api_keys (id, name, public_part, digest, created_at, updated_at) \
            VALUES ('key_00000000000000000000000000', 'k', '0', '', 0, 0)";
        old.execute_unprepared(insert).await.unwrap();
        let pending: Vec<&str> = all[applied..].iter().map(|each| each.name()).collect();
        assert_eq!(super::pending(&old).await.unwrap(), pending);
        assert_eq!(migrate(&old).await.unwrap(), pending);
        assert_eq!(migrate(&old).await.unwrap(), [""; 0]);
        old.close().await.unwrap();

        let store = database.open().await;
        let found = store.find_project_named("p").await.unwrap();
        assert!(found.is_some(), "{applied}");
        let organization = organization::Entity::find().all(&store.db).await.unwrap();
        assert_eq!(organization.len(), 1);
        let key = api_key::Entity::find().one(&store.db).await.unwrap();
        let key = key.unwrap();
        assert_eq!((key.name.as_str(), key.deleted_at), ("k", None));
        store.default_project("default", Utc::now()).await.unwrap();
        assert_eq!(store.purge_clock().await.unwrap(), None);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn schema_of_a_newer_version_is_refused_and_not_changed() {
    let database = TestDatabase::create();
    let db = database.connect().await;
    Migrator::up(&db, Some(1)).await.unwrap();
    let insert = "INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_future', 0)";
    db.execute_unprepared(insert).await.unwrap();
    for result in [migrate(&db).await, super::pending(&db).await] {
        let name = match result {
            Err(OpenFailure::Newer(name)) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(name, "m9999_future");
    }
    let applied = applied(&SchemaManager::new(&db)).await.unwrap();
    assert_eq!(applied.len(), 2);
    db.close().await.unwrap();
}

#[tokio::test]
async fn failed_migration_leaves_the_schema_as_it_was() {
    let database = TestDatabase::create();
    let db = database.connect().await;
    Migrator::up(&db, Some(1)).await.unwrap();
    // The third of the pending migrations finds its table already there.
    let conflict = "CREATE TABLE control_process (id INTEGER PRIMARY KEY)";
    db.execute_unprepared(conflict).await.unwrap();
    let failure = migrate(&db).await.unwrap_err();
    assert!(matches!(failure, OpenFailure::Store(_)), "{failure:?}");
    let applied = applied(&SchemaManager::new(&db)).await.unwrap();
    assert_eq!(applied, [Migrator::migrations()[0].name()]);
    let has_replays = SchemaManager::new(&db).has_table("replays").await;
    assert!(!has_replays.unwrap());
    db.execute_unprepared("DROP TABLE control_process")
        .await
        .unwrap();
    assert_eq!(
        migrate(&db).await.unwrap().len(),
        Migrator::migrations().len() - 1
    );
    db.close().await.unwrap();
}
